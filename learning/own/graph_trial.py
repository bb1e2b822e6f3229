"""Runs a ranker's graph on its own to find problems that its nodes do not show: rows that influence each other, values
that are not finite, a fixed batch size. The error names the first node at which the problem appears."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime as ort
from onnx import TensorProto

from learning.errors import RankerError

Array = npt.NDArray[Any]
# Largest difference of a row's answer between two batches, relative to the largest answer.
TOLERANCE = 1e-5
BATCHES = (1, 2, 3)

_ROW_HINTS = {
    "Softmax": "softmax over rows: give it the dimension of the columns",
    "LogSoftmax": "softmax over rows: give it the dimension of the columns",
    "TopK": "sorts rows: sort inside a row, or not at all",
    "CumSum": "adds up rows: give it the dimension of the columns",
}


def session(model: onnx.ModelProto, source: str) -> ort.InferenceSession:
    """A session with one thread, so that the order of a sum does not vary."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    # Errors are raised; ONNX Runtime would also print them.
    options.log_severity_level = 4
    try:
        return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # ONNX Runtime has an exception type for each of its status codes
        raise RankerError(f"{source}: ONNX Runtime can't load it: {first_line(error)}") from error


def run(running: ort.InferenceSession, feed: Mapping[str, Array], source: str) -> Array:
    """The output [n, width] for n rows, checked for its shape."""
    rows = len(next(iter(feed.values())))
    try:
        output: Array = running.run(None, dict(feed))[0]
    except Exception as error:  # see `session`
        raise RankerError(f"{source}: ONNX Runtime fails on {rows} rows: {first_line(error)}") from error
    if output.ndim != 2 or len(output) != rows:
        raise RankerError(
            f"{source}: the output has shape {list(output.shape)} for {rows} rows, expected [{rows}, width]; its batch "
            "dimension is fixed, or it is not the tensor below the output layer"
        )
    return output


def check(model: onnx.ModelProto, source: str, usual: Mapping[str, Array], extreme: Mapping[str, Array]) -> int:
    """Raise an error if the graph can't answer each row independently; returns the width of its output. usual, extreme:
    feeds of its inputs, at least 8 rows each."""
    running = session(model, source)
    for rows in BATCHES:
        width = int(run(running, _first(usual, rows), source).shape[1])
    _check_finite(model, running, source, "usual", usual)
    first = _first(usual, 4)
    # The same first row in a batch with other rows.
    beside = {name: np.concatenate([values[:1], values[4:7]]) for name, values in usual.items()}
    answers = [run(running, feed, source)[0] for feed in (first, beside, _first(usual, 1))]
    if not _equal(run(running, first, source), run(running, first, source)):
        raise RankerError(f"{source}: the same rows get different answers; a node draws random numbers")
    if not (_equal(answers[0], answers[1]) and _equal(answers[0], answers[2])):
        raise RankerError(
            f"{source}: a row's answer depends on the other rows of its batch{_culprit(model, first, beside)}"
        )
    _check_finite(model, running, source, "extreme", extreme)
    return width


def _check_finite(
    model: onnx.ModelProto, running: ort.InferenceSession, source: str, title: str, feed: Mapping[str, Array]
) -> None:
    if not np.isfinite(run(running, feed, source)).all():
        raise RankerError(
            f"{source}: the output is not finite for {title} values{_unsound(model, feed)}; clip or standardise the "
            "inputs inside the model"
        )


def _first(feed: Mapping[str, Array], rows: int) -> dict[str, Array]:
    return {name: values[:rows] for name, values in feed.items()}


def _equal(one: Array, other: Array) -> bool:
    scale = max(float(np.abs(one).max(initial=0.0)), 1e-6)
    return bool((np.abs(one - other) <= TOLERANCE * scale).all())


def _every_value(model: onnx.ModelProto, *feeds: Mapping[str, Array]) -> list[dict[str, Array]]:
    """All float values inside the graph, for each feed."""
    typed = {value.name for value in model.graph.value_info if value.type.tensor_type.elem_type == TensorProto.FLOAT}
    opened = onnx.ModelProto()
    opened.CopyFrom(model)
    known = {value.name for value in opened.graph.output}
    names = [name for node in model.graph.node for name in node.output if name in typed and name not in known]
    opened.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    running = session(opened, "ranker")
    wanted = [*known, *names]
    return [dict(zip(wanted, running.run(wanted, dict(feed)), strict=True)) for feed in feeds]


def _culprit(model: onnx.ModelProto, first: Mapping[str, Array], beside: Mapping[str, Array]) -> str:
    """The first node whose output for the first row differs between the two feeds, although they share that row."""
    rows = len(next(iter(first.values())))
    one, other = _every_value(model, first, beside)
    for node in model.graph.node:
        for name in node.output:
            values = one.get(name)
            if values is None or not values.ndim or values.shape[0] != rows:
                continue
            if not _equal(values[0], other[name][0]):
                hint = _ROW_HINTS.get(node.op_type, "reduces or mixes rows: use the dimension of the columns")
                return f": node '{node.name or name}' ({node.op_type}) {hint}"
    return "; use only operations inside a row, and call model.eval() before the export"


def _unsound(model: onnx.ModelProto, feed: Mapping[str, Array]) -> str:
    """The first node with a value that is not finite."""
    (values,) = _every_value(model, feed)
    for node in model.graph.node:
        for name in node.output:
            if name in values and not np.isfinite(values[name]).all():
                return f", first at node '{node.name or name}' ({node.op_type})"
    return ""


def first_line(error: Exception) -> str:
    """The first line of a message that is not empty."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
