"""torch's exporter, with a clear error where it fails: module or stored program -> ONNX."""

import copy
import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from learning.errors import RankerError

OPSET = 18
# Messages of torch when it fails, and what to do about them.
_REASONS = (
    (
        ("Constraints violated", "specialized", "marked as dynamic but"),
        "its batch dimension is fixed: a shape or a Python number depends on the number of rows; use x.shape[0] or -1",
    ),
    (
        ("data-dependent", "DataDependent", "unbacked"),
        "a shape or a branch depends on the data; use a mask instead (torch.where)",
    ),
    (
        ("No ONNX function found", "DispatchError", "custom op"),
        "it has an operator that ONNX does not have; write it with operators of torch",
    ),
)
_MOST_TEXT = 300


class _Positional(nn.Module):
    """Takes the features one by one, so that the graph's inputs have their names."""

    def __init__(self, ranker: nn.Module, names: list[str]) -> None:
        super().__init__()
        self.ranker, self.names = ranker, names

    def forward(self, *columns: Tensor) -> Tensor:
        output: Tensor = self.ranker(dict(zip(self.names, columns, strict=True)))
        return output


def graph_of(ranker: nn.Module, source: str, batch: Mapping[str, Tensor], output: str) -> Any:
    """The onnx.ModelProto of a backbone in evaluation mode: inputs by the names in `batch`, one output."""
    names, rows = list(batch), torch.export.Dim("n", min=2)
    with _quiet(source):
        exported = torch.onnx.export(
            _Positional(copy.deepcopy(ranker), names).eval(),
            tuple(batch.values()),
            dynamo=True,
            dynamic_shapes=(tuple({0: rows} for _ in names),),
            input_names=names,
            output_names=[output],
            opset_version=OPSET,
            verbose=False,
        )
    assert exported is not None
    return exported.model_proto


def graph_of_program(path: Path) -> Any:
    """The onnx.ModelProto of a program that torch.export saved (.pt2)."""
    if not path.is_file():
        raise RankerError(f"{path}: no such file")
    with _quiet(str(path)):
        program = torch.export.load(path)
        exported = torch.onnx.export(program, dynamo=True, opset_version=OPSET, verbose=False)
    assert exported is not None
    return exported.model_proto


@contextmanager
def _quiet(source: str) -> Iterator[None]:
    """Hide torch's warnings about its own deprecated functions and about packages that are not installed, and turn a
    failure into an error of one line."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except Exception as error:  # torch.export and its parts raise many kinds
        raise RankerError(f"{source}: torch can't export it: {_reason(error)}") from error
    finally:
        logger.setLevel(level)


def _reason(error: Exception) -> str:
    """The cause of a failed export in one line, and what to do."""
    chain: list[str] = []
    current: BaseException | None = error
    while current is not None:
        chain.append(f"{type(current).__name__}: {current}")
        current = current.__cause__ or current.__context__
    lines = [line.strip() for line in "\n".join(chain).splitlines() if line.strip()]
    for marks, advice in _REASONS:
        for line in lines:
            if any(mark in line for mark in marks):
                return f"{advice} ({line[:_MOST_TEXT]})"
    return lines[0][:_MOST_TEXT]
