"""The work of the hand-written handlers: raw columns in, raw outputs out, nothing is checked.

The request consists of the context's values and then the candidates' columns; the response consists of the outputs.
"""

import os
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

from ghostless.contract.metadata import ModelMetadata
from loadtest.workload import Rows
from serving.engines.embedded import session_options

MODEL, OUTPUTS = "PEER_MODEL", "PEER_OUTPUTS"
# Printed by a process when its model is loaded.
READY = "<model loaded>"
_DTYPES: dict[str, np.dtype[Any]] = {"int64": np.dtype("<i8"), "float32": np.dtype("<f4")}


class RawModel:
    """A session with the options of the server's embedded engine."""

    def __init__(self, path: Path, outputs: list[str]) -> None:
        self._session = ort.InferenceSession(path, session_options(), providers=["CPUExecutionProvider"])
        features = ModelMetadata.parse(self._session.get_modelmeta().custom_metadata_map, str(path)).features
        self._context = [(each.name, _DTYPES[each.type]) for each in features if each.role == "context"]
        self._candidates = [(each.name, _DTYPES[each.type]) for each in features if each.role == "candidate"]
        self._context_bytes = sum(dtype.itemsize for _, dtype in self._context)
        self._row_bytes = sum(dtype.itemsize for _, dtype in self._candidates)
        self._outputs = outputs

    def answer(self, message: bytes) -> bytes:
        rows, at, feeds = (len(message) - self._context_bytes) // self._row_bytes, 0, {}
        for name, dtype in self._context:
            feeds[name] = np.frombuffer(message, dtype, 1, at).repeat(rows)
            at += dtype.itemsize
        for name, dtype in self._candidates:
            feeds[name] = np.frombuffer(message, dtype, rows, at)
            at += rows * dtype.itemsize
        return b"".join(self._session.run(self._outputs, feeds))


@cache
def served_model() -> RawModel:
    """The model that the bench started this process with."""
    model = RawModel(Path(os.environ[MODEL]), os.environ[OUTPUTS].split(","))
    print(READY, flush=True)
    return model


def raw_request(rows: Rows) -> bytes:
    return b"".join(values.tobytes() for values in (*rows.context.values(), *rows.candidates.values()))
