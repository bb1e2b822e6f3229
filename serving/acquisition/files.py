"""Parquet files of acquired rows: FOLDER/MODEL/VERSION/TIME-PID-NUMBER.parquet.

A file is written under a hidden name and appears by one rename when it is closed, so readers of the folder see
whole files only. Columns are the features by their names, as training takes them, and ours beside them, prefixed.
"""

import itertools
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ghostless.contract import metadata
from serving.engines.interface import ModelVersion
from serving.telemetry.instruments import Counter, Labelled
from serving.telemetry.record import CallRecord

PREFIX = "ghostless_"
_PART = ".part"


@dataclass(frozen=True)
class FileLimits:
    """When a file is closed, and how many closed ones are stored per model version."""

    max_bytes: int
    max_age_s: float
    max_files: int


@dataclass(frozen=True)
class AcquiredRow:
    """`features` and `prediction` are plain values by column."""

    features: dict[str, Any]
    prediction: dict[str, Any]

    @classmethod
    def of(cls, record: CallRecord, row: int, score: float, seconds: float) -> "AcquiredRow":
        outputs = record.outputs
        scalars = (metadata.MEAN, metadata.ALEATORIC, metadata.EPISTEMIC, metadata.LOGIT_VARIANCE)
        return cls(
            {name: column[row : row + 1].tolist()[0] for name, column in record.inputs.items()},
            {
                "request_id": record.request_id,
                "row": row,
                "time": round(seconds * 1e6),
                "score": score,
                **{name: float(outputs[name][row]) if name in outputs else None for name in scalars},
                "quantiles": outputs[metadata.QUANTILES][row].tolist() if metadata.QUANTILES in outputs else None,
            },
        )


class AcquisitionFiles:
    """Used by one thread at a time. pyarrow is loaded when the first row comes.

    `counted` counts rows by result: written when their file is closed and has its name, dropped where that fails.
    Before that no file holds them."""

    def __init__(self, folder: Path, limits: FileLimits, counted: Labelled[Counter]) -> None:
        self._folder = folder
        self._limits = limits
        self._counted = counted
        self._open: dict[tuple[str, int], _OpenFile] = {}
        self._numbers = itertools.count(1)

    def append(self, model: ModelVersion, rows: Sequence[AcquiredRow]) -> None:
        key = (model.name, model.version)
        try:
            file = self._open.get(key)
            if file is None:
                folder = self._folder / model.name / str(model.version)
                file = self._open[key] = _OpenFile(folder, next(self._numbers), model)
            file.append(rows)
        except OSError:
            self._counted.labels("dropped").inc(len(rows))
            if broken := self._open.pop(key, None):
                self._discard(broken)
            raise
        self.rotate()

    def rotate(self) -> None:
        """Close the files that are large or old enough."""
        for key, file in list(self._open.items()):
            if file.bytes >= self._limits.max_bytes or file.age_s >= self._limits.max_age_s:
                del self._open[key]
                self._finish(file)

    def close(self) -> None:
        """All of them, also if one fails; the last failure is raised."""
        failure: OSError | None = None
        for file in self._open.values():
            try:
                self._finish(file)
            except OSError as error:
                failure = error
        self._open.clear()
        if failure is not None:
            raise failure

    def _finish(self, file: "_OpenFile") -> None:
        try:
            file.finish()
        except OSError:
            self._discard(file)
            raise
        self._counted.labels("written").inc(file.rows)
        for oldest in sorted(file.folder.glob("*.parquet"))[: -self._limits.max_files]:
            oldest.unlink(missing_ok=True)
        # What a worker that died had begun can't be read; a living one writes more often than this.
        abandoned = time.time() - 2 * self._limits.max_age_s - 600
        for part in file.folder.glob(f".*{_PART}"):
            if part.stat().st_mtime < abandoned:
                part.unlink(missing_ok=True)

    def _discard(self, file: "_OpenFile") -> None:
        self._counted.labels("dropped").inc(file.rows)
        file.discard()


class _OpenFile:
    def __init__(self, folder: Path, number: int, model: ModelVersion) -> None:
        import pyarrow.parquet

        folder.mkdir(parents=True, exist_ok=True)
        name = f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{os.getpid()}-{number:04d}.parquet"
        self.folder = folder
        self._final = folder / name
        self._part = folder / f".{name}{_PART}"
        self._schema = _schema(model)
        self._opened = time.monotonic()
        self.rows = 0
        self._writer = pyarrow.parquet.ParquetWriter(self._part, self._schema)

    @property
    def bytes(self) -> int:
        return self._part.stat().st_size

    @property
    def age_s(self) -> float:
        return time.monotonic() - self._opened

    def append(self, rows: Sequence[AcquiredRow]) -> None:
        import pyarrow as pa

        content = [{**row.features, **{PREFIX + name: value for name, value in row.prediction.items()}} for row in rows]
        self._writer.write_table(pa.Table.from_pylist(content, self._schema))
        self.rows += len(rows)

    def finish(self) -> None:
        self._writer.close()
        os.replace(self._part, self._final)

    def discard(self) -> None:
        with suppress(OSError):
            self._writer.close()
        self._part.unlink(missing_ok=True)


def _schema(model: ModelVersion) -> Any:
    import pyarrow as pa

    types = {"int64": pa.int64(), "float32": pa.float32(), "string": pa.string()}
    features = [pa.field(feature.name, types[feature.type]) for feature in model.metadata.features]
    ours = {
        "request_id": pa.string(),
        "row": pa.uint32(),
        "time": pa.timestamp("us", "UTC"),
        "score": pa.float32(),
        metadata.MEAN: pa.float32(),
        metadata.ALEATORIC: pa.float32(),
        metadata.EPISTEMIC: pa.float32(),
        metadata.LOGIT_VARIANCE: pa.float32(),
        "quantiles": pa.list_(pa.float32()),
    }
    described = {"ghostless.model": model.name, "ghostless.version": str(model.version), **model.properties}
    return pa.schema(features + [pa.field(PREFIX + name, kind) for name, kind in ours.items()], described)
