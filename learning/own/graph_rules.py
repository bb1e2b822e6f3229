"""Decides which ONNX graphs can be served under a head, from the graph itself, before it is run.

The answer to a row must not depend on the other rows of its batch, and must always be the same for the same row. A
graph that can't do this is rejected with an error that names the node and says what to change. Properties that only
show when a graph runs are checked in learning.own.graph_trial.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path, PurePath
from typing import Any

import onnx
from google.protobuf.message import DecodeError
from onnx import TensorProto, helper, inliner, shape_inference, version_converter

from learning.errors import RankerError
from learning.own.torch_export import OPSET

# The newest opset that a ranker may have; older ones are converted to that of the graphs that export writes.
NEWEST_OPSET = 22
NEWEST_IR = 11
# Operators of ONNX, of its machine learning part, and of ONNX Runtime, which serves the graph.
DOMAINS = ("", "ai.onnx", "ai.onnx.ml", "com.microsoft")
# A protobuf is limited to 2 GB.
MOST_BYTES = 2**31 - 1

_CONTROL = ("If", "Loop", "Scan", "SequenceMap")
_RANDOM = ("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")
_DATA_SHAPED = ("Compress", "NonZero", "Unique", "NonMaxSuppression", "StringSplit")


def read(path: Path) -> onnx.ModelProto:
    """The model in a file, with its tensors that are stored in separate files."""
    try:
        model = onnx.load(path, load_external_data=False)
    except FileNotFoundError as missing:
        raise RankerError(f"{path}: no such file") from missing
    except (DecodeError, OSError, ValueError) as error:
        raise RankerError(f"{path}: not an ONNX model: {error}") from error
    if not model.graph.output:
        raise RankerError(f"{path}: not an ONNX model, or one without outputs")
    for tensor in _external(model.graph):
        place = next((entry.value for entry in tensor.external_data if entry.key == "location"), "")
        parts = PurePath(place).parts
        if not place or PurePath(place).is_absolute() or ".." in parts:
            raise RankerError(
                f"{path}: tensor '{tensor.name}' lies in '{place}', outside the model's folder; save the model again "
                "with its data beside it"
            )
        if not (path.parent / place).is_file():
            raise RankerError(f"{path}: tensor '{tensor.name}' lies in '{place}', which is missing beside the model")
    size = path.stat().st_size + sum((path.parent / place).stat().st_size for place in _external_files(model.graph))
    if size > MOST_BYTES:
        raise RankerError(f"{path}: {size / 1e9:.1f} GB with its data; a ranker of up to 2 GB can be used")
    onnx.load_external_data_for_model(model, str(path.parent))
    return model


def _external(graph: onnx.GraphProto) -> Iterator[Any]:
    for tensor in graph.initializer:
        if tensor.data_location == TensorProto.EXTERNAL:
            yield tensor


def _external_files(graph: onnx.GraphProto) -> set[str]:
    return {entry.value for tensor in _external(graph) for entry in tensor.external_data if entry.key == "location"}


def prepared(model: onnx.ModelProto, output: str, source: str) -> onnx.ModelProto:
    """The part of a model that `output` needs, checked, with inlined functions and an opset that can be served.

    output: its name, or its number among the outputs, counted from 0.
    """
    names = [value.name for value in model.graph.output]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise RankerError(f"{source}: two outputs are called '{twice[0]}'; give every output a name of its own")
    if output.isdecimal() and int(output) < len(names):
        output = names[int(output)]
    if output not in names:
        raise RankerError(f"{source}: no output '{output}'; it has {', '.join(names)} (--features-from)")
    _check_versions(model, source)
    model = inliner.inline_local_functions(model)
    if model.graph.sparse_initializer:
        raise RankerError(f"{source}: has sparse tensors; save the model with dense ones")
    _keep_only(model.graph, output)
    _check_nodes(model.graph, source)
    _check_inputs(model.graph, source)
    opset = _opset(model)
    if opset < OPSET:
        try:
            model = version_converter.convert_version(model, OPSET)
        except Exception as error:  # the converter passes on any exception of its adapters
            raise RankerError(
                f"{source}: opset {opset} can't be converted to {OPSET}: {str(error).strip().splitlines()[0]}; export "
                f"the model again with opset {OPSET}"
            ) from error
    return shape_inference.infer_shapes(model)


def output_width(model: onnx.ModelProto, source: str) -> int:
    """Columns of the only output, which must be float32 [rows, width]."""
    (value,) = model.graph.output
    tensor = value.type.tensor_type
    if tensor.elem_type != TensorProto.FLOAT:
        kind = TensorProto.DataType.Name(tensor.elem_type)
        raise RankerError(f"{source}: output '{value.name}' is {kind}, expected FLOAT; cast it to float32")
    dims = list(tensor.shape.dim)
    shape = [dim.dim_param or (dim.dim_value if dim.HasField("dim_value") else "?") for dim in dims]
    if tensor.HasField("shape") and len(dims) != 2:
        raise RankerError(
            f"{source}: output '{value.name}' has shape {shape}, expected [rows, width]: name the tensor below the "
            "output layer, or flatten it (--features-from)"
        )
    if dims and dims[0].HasField("dim_value"):
        raise _fixed(source, f"output '{value.name}'", shape)
    return dims[1].dim_value if len(dims) == 2 and dims[1].HasField("dim_value") else 0


def _fixed(source: str, what: str, shape: Iterable[object]) -> RankerError:
    return RankerError(
        f"{source}: {what} has shape {list(shape)}, so its batch dimension is fixed; export the model with a dynamic "
        "first dimension (dynamic_shapes in torch.onnx.export)"
    )


def _opset(model: onnx.ModelProto) -> int:
    return next((int(entry.version) for entry in model.opset_import if entry.domain in ("", "ai.onnx")), 1)


def _check_versions(model: onnx.ModelProto, source: str) -> None:
    opset = _opset(model)
    if opset > NEWEST_OPSET:
        raise RankerError(
            f"{source}: opset {opset} is too new, the newest that is served is {NEWEST_OPSET}; export the model again "
            f"with opset {OPSET}"
        )
    if model.ir_version > NEWEST_IR:
        raise RankerError(
            f"{source}: IR version {model.ir_version} is too new, the newest that is served is {NEWEST_IR}; save the "
            "model with an older onnx, or set model.ir_version"
        )


def _keep_only(graph: onnx.GraphProto, output: str) -> None:
    """Remove everything that `output` does not need."""
    wanted = {output}
    kept = []
    for node in reversed(graph.node):
        if wanted.intersection(node.output):
            kept.append(node)
            wanted.update(node.input)
            wanted.update(_outer_values(node))
    constants = {tensor.name for tensor in graph.initializer}
    for field, keep in (
        (graph.node, kept[::-1]),
        (graph.initializer, [tensor for tensor in graph.initializer if tensor.name in wanted]),
        # Before IR version 4, constants are among the inputs.
        (graph.input, [value for value in graph.input if value.name in wanted - constants]),
        (graph.output, [value for value in graph.output if value.name == output]),
    ):
        del field[:]
        field.extend(keep)


def _outer_values(node: Any) -> Iterator[str]:
    """Names that the sub-graphs of a node use."""
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            for inner in graph.node:
                yield from inner.input
                yield from _outer_values(inner)


def _check_nodes(graph: onnx.GraphProto, source: str) -> None:
    for node in graph.node:
        problem = _problem(node, graph)
        if problem:
            raise RankerError(f"{source}: node '{node.name or node.output[0]}' ({node.op_type}) {problem}")


def _problem(node: Any, graph: onnx.GraphProto) -> str:
    """Why a node can't be served and what to do; empty if it can."""
    kind = node.op_type
    attributes = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
    if node.domain not in DOMAINS:
        return f"is a custom operator of '{node.domain}'; write it with operators of ONNX"
    if kind in _CONTROL:
        return "is control flow; write it without branches and loops (torch.where instead of if), or unroll it"
    if kind in _RANDOM:
        return "draws random numbers, so the same row has different answers; remove it, or export in evaluation mode"
    if kind in _DATA_SHAPED:
        return "has an output whose shape depends on the data; use a mask instead (torch.where)"
    if kind == "BatchNormalization" and attributes.get("training_mode", 0):
        return "is in training mode, so a row's answer depends on its batch; call model.eval() before the export"
    if kind == "Dropout" and len(node.input) > 2 and node.input[2]:
        modes = {tensor.name: tensor for tensor in graph.initializer}
        mode = modes.get(node.input[2])
        if mode is None or onnx.numpy_helper.to_array(mode).any():
            return "is in training mode; call model.eval() before the export"
    return ""


def _check_inputs(graph: onnx.GraphProto, source: str) -> None:
    for value in graph.input:
        tensor = value.type.tensor_type
        shape = [dim.dim_param or (dim.dim_value if dim.HasField("dim_value") else "?") for dim in tensor.shape.dim]
        if tensor.elem_type == TensorProto.DOUBLE:
            raise RankerError(
                f"{source}: input '{value.name}' is float64, but features are float32; call model.float() before the "
                "export, or cast inside the model"
            )
        if tensor.shape.dim and tensor.shape.dim[0].HasField("dim_value"):
            raise _fixed(source, f"input '{value.name}'", shape)
