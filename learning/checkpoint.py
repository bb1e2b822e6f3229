"""A trained model on disk: one file with weights, encoding, schema, configuration, metrics and data fingerprint."""

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch

from ghostless.contract.errors import ConfigError, GhostlessError
from ghostless.contract.pair_test import PairTest
from ghostless.heads.effect_variance import EffectVariance
from learning import format_1, format_2
from learning.calibration import calibrate
from learning.config import FROZEN, ModelConfig, TrainConfig
from learning.data.encoding import Encoding
from learning.data.table import Table
from learning.errors import CheckpointError
from learning.model import Model, Network
from learning.own import probe
from learning.own.model import model_class
from learning.schema import Schema

# The format that is written, and those that are read. Fields that an older file lacks get the defaults of the
# configurations and of `Checkpoint`; before format 3 there are no effects.
FORMAT = 3
READABLE = (1, 2, 3)
FILE = "checkpoint.pt"


@dataclass(frozen=True)
class Checkpoint:
    """Everything that evaluation and export need, without the training data."""

    network: Network
    encoding: Encoding
    model_config: ModelConfig
    train_config: TrainConfig
    data: str
    fingerprint: str
    metrics: Mapping[str, Any] = field(default_factory=dict)
    # Rows that training never saw, to calibrate a pool or ensemble and to verify exports.
    calibration: Table | None = None
    # The pair test on held-out rows, once it has been run.
    pairs: PairTest | None = None

    @property
    def model(self) -> Model:
        """The network, if it can be served."""
        if not isinstance(self.network, Model):
            raise CheckpointError(
                f"'{self.model_config.baseline}' is a baseline and cannot be exported; train with --head qr or cr"
            )
        return self.network

    @property
    def schema(self) -> Schema:
        return self.encoding.schema

    @property
    def target_sample(self) -> torch.Tensor:
        """Training targets [k], sorted."""
        return torch.from_numpy(self.encoding.target_sample)

    def save(self, directory: Path) -> Path:
        """Write `checkpoint.pt`, and `run.json` for people and scripts."""
        directory.mkdir(parents=True, exist_ok=True)
        effects = self.network.effects if isinstance(self.network, Model) else None
        summary = {
            "data": self.data,
            "fingerprint": self.fingerprint,
            "metrics": dict(self.metrics),
            "model": asdict(self.model_config),
            "schema": self.schema.to_dict(),
            "train": asdict(self.train_config),
        }
        content = {
            "format": FORMAT,
            "encoding": {key: _tensor(value) for key, value in self.encoding.state().items()},
            "state": self.network.state_dict(),
            "hidden": list(self.network.hidden),
            "calibration": None if self.calibration is None else _table_state(self.calibration),
            "effects": None if effects is None else effects.state(),
            "pairs": None if self.pairs is None else self.pairs.to_dict(),
            "probe": probe.answer(self.network),
            **summary,
        }
        save_atomically(content, directory / FILE)
        (directory / "run.json").write_text(json.dumps(summary, indent=2) + "\n")
        return directory / FILE

    @classmethod
    def load(cls, path: Path, build: "Build | None" = None) -> "Checkpoint":
        """Load from a run's directory or its checkpoint file; `build` creates networks that are not served."""
        file = path / FILE if path.is_dir() else path
        content = load_file(file)
        if content.get("format") not in READABLE:
            readable = " and ".join(map(str, READABLE))
            raise CheckpointError(
                f"{file}: format {content.get('format')!r}, this version reads {readable}; train again"
            )
        try:
            is_old = content["format"] == 1
            content = format_1.upgraded(content) if is_old else content
            content = format_2.upgraded(content) if content["format"] < FORMAT else content
            model_config = ModelConfig(**{**content["model"], "hidden": tuple(content["model"]["hidden"])})
            schema = Schema.from_dict(content["schema"], str(file))
            encoding = _encoding(content["encoding"], schema, model_config)
            # After pruning there are fewer units than in the configuration.
            trained = replace(model_config, hidden=tuple(content["hidden"]))
            network = (build or build_model)(trained, encoding)
            # Format 1 has no buffers for atoms, warp and calibration; those of the untrained head fit.
            buffers = {name: value for name, value in network.named_buffers() if is_old and name.startswith("head.")}
            network.load_state_dict({**buffers, **content["state"]})
            if isinstance(network, Model) and content.get("effects") is not None:
                network.effects = EffectVariance.from_state(content["effects"])
            network.eval()
            probe.check(network, content.get("probe"))
            train_config = TrainConfig(**content["train"])
            described = (content["data"], content["fingerprint"], content["metrics"])
            calibration = _table(content.get("calibration"), schema)
            pairs = None if content.get("pairs") is None else PairTest.from_dict(content["pairs"])
            if is_old:
                calibrate(network, encoding, calibration)
        except (GhostlessError, KeyError, TypeError, ValueError, RuntimeError) as error:
            is_own = isinstance(error, GhostlessError) and bool(content.get("model", {}).get("own"))
            what = "can't be loaded" if is_own else "not a checkpoint of this version"
            raise CheckpointError(f"{file}: {what}: {_first_line(error)}") from error
        return cls(network, encoding, model_config, train_config, *described, calibration, pairs)


# An untrained network that fits the encoding.
Build = Callable[[ModelConfig, Encoding], Network]
NetworkT = TypeVar("NetworkT", bound=Network)


def build_network(kind: type[NetworkT], config: ModelConfig, encoding: Encoding) -> NetworkT:
    """An untrained network that fits the encoding; its biases start at the training marginal."""
    rows = encoding.table_sizes()
    pieces = {name: encoding.pieces(name) for name in encoding.knots}
    targets = torch.from_numpy(encoding.target_sample)
    network = kind(config, encoding.schema, rows, pieces, targets)
    network.head.start_at(targets)
    return network


def build_model(config: ModelConfig, encoding: Encoding) -> Model:
    """An untrained network with a head that can be served."""
    if config.baseline:
        raise ConfigError(f"'{config.baseline}' is a baseline and cannot be served; leave baseline unset")
    return build_network(model_class(config.own), config, encoding)


def save_atomically(content: dict[str, Any], path: Path) -> None:
    """Write the file so that a reader sees either the old one or the new one, never a partial one."""
    partial = path.with_suffix(f".partial{os.getpid()}")
    torch.save(content, partial)
    partial.replace(path)


def load_file(path: Path) -> dict[str, Any]:
    """Read a file of `save_atomically` without executing code from it."""
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError as missing:
        raise CheckpointError(f"{path}: no such checkpoint; train one with `ghostless train --out`") from missing
    except Exception as broken:  # a damaged pickle can raise any exception
        raise CheckpointError(f"{path}: damaged or not a checkpoint: {_first_line(broken)}") from broken
    if not isinstance(content, dict):
        raise CheckpointError(f"{path}: not a Ghostless checkpoint but a {type(content).__name__}")
    return content


def _encoding(state: Mapping[str, Any], schema: Schema, config: ModelConfig) -> Encoding:
    if config.own != FROZEN:
        return Encoding.from_state(state, schema)
    # Imported only here: it needs ONNX Runtime.
    from learning.own.frozen import FrozenEncoding

    return FrozenEncoding.from_state(state, schema)


def _first_line(error: Exception) -> str:
    line = next(iter(str(error).splitlines()), type(error).__name__)
    # Replace torch's message, which recommends executing the code in the file.
    return "it contains other Python objects" if line.startswith("Weights only load failed") else line


def _tensor(value: Any) -> Any:
    return torch.from_numpy(value.copy()) if isinstance(value, np.ndarray) else value


def _table_state(table: Table) -> dict[str, Any]:
    """Columns and target of a table as tensors; columns of strings as lists."""
    columns = {
        name: values.tolist() if values.dtype.kind == "U" else _tensor(values) for name, values in table.columns.items()
    }
    return {"columns": columns, "target": _tensor(table.target)}


def _table(state: Mapping[str, Any] | None, schema: Schema) -> Table | None:
    if state is None:
        return None
    return Table(schema, {name: np.asarray(values) for name, values in state["columns"].items()}, state["target"])
