"""Writes ONNX node by node: the served graph is designed, not traced, so it contains no unintended nodes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NewType

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

# Accepted by ONNX Runtime 1.31 and by the runtimes that Triton has bundled since 2.40 (ONNX Runtime 1.16).
OPSET = 18
ML_OPSET = 3
IR_VERSION = 9

Array = npt.NDArray[Any]
# A tensor of a graph under construction, by its name. Only GraphBuilder creates them, so that a plain string (the name
# of a node or of an output) can't be used as one by mistake.
Value = NewType("Value", str)

FLOAT, FLOAT16, FLOAT64, INT32, INT64 = (
    int(kind)
    for kind in (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE, TensorProto.INT32, TensorProto.INT64)
)
_TYPES = {"int64": TensorProto.INT64, "float32": TensorProto.FLOAT, "string": TensorProto.STRING}


@dataclass(frozen=True)
class Place:
    """Location of a tensor's bytes: a file in the model's directory, and the offset in it."""

    file: str
    offset: int


@dataclass
class GraphBuilder:
    """A graph under construction. Values are referred to by name; every method adds one node and returns its output."""

    nodes: list[onnx.NodeProto] = field(default_factory=list)
    initializers: dict[str, Array] = field(default_factory=dict)
    inputs: list[onnx.ValueInfoProto] = field(default_factory=list)
    outputs: list[onnx.ValueInfoProto] = field(default_factory=list)
    # `merge` increases it if the merged graph needs a newer opset.
    opset: int = OPSET
    domains: set[str] = field(default_factory=set)
    _names: dict[str, int] = field(default_factory=dict)

    def input(self, name: str, kind: str) -> Value:
        """A graph input of shape [n]."""
        self.inputs.append(helper.make_tensor_value_info(name, _TYPES[kind], ["n"]))
        return Value(name)

    def named(self, name: str) -> Value:
        """A value of the graph that was created elsewhere."""
        return Value(name)

    def output(self, name: str, value: Value, width: int | None = None) -> Value:
        """Expose `value` as the float32 output `name`, shape [n] or [n, width]. No node is added: the value takes the
        name, unless another output has it already."""
        shape = ["n"] if width is None else ["n", width]
        taken = {output.name for output in self.outputs}
        self.outputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
        if value in taken:
            self.nodes.append(helper.make_node("Identity", [value], [name], name=f"output/{name}"))
            return Value(name)
        for node in self.nodes:
            for names in (node.input, node.output):
                for place, used in enumerate(names):
                    if used == value:
                        names[place] = name
        return Value(name)

    def constant(self, name: str, value: Array | Sequence[float] | float, dtype: Any = np.float32) -> Value:
        """An initializer of rank 1 or more; a suffix distinguishes equal names."""
        unique = self._unique(name)
        self.initializers[unique] = np.atleast_1d(np.asarray(value, dtype))
        return unique

    def node(
        self, op: str, inputs: Sequence[Value | None], name: str = "", domain: str = "", **attributes: Any
    ) -> Value:
        """Any operator with one output; None stands for an omitted optional input."""
        output, given = self._unique(name or op.lower()), [value or "" for value in inputs]
        self.nodes.append(helper.make_node(op, given, [output], name=output, domain=domain, **attributes))
        return output

    def split(self, value: Value, sizes: Sequence[int], names: Sequence[str], axis: int = -1) -> list[Value]:
        """Columns of [n, sum(sizes)], or parts along another axis, as separate values; a single part is the value
        itself."""
        if len(sizes) == 1:
            return [value]
        outputs = [self._unique(name) for name in names[: len(sizes)]]
        length = self.constant("split/sizes", sizes, np.int64)
        self.nodes.append(helper.make_node("Split", [value, length], outputs, name=f"split/{outputs[0]}", axis=axis))
        return outputs

    def slice(self, value: Value, first: int, last: int, name: str, axis: int = -1) -> Value:
        """Columns first to last - 1, or the same along another axis."""
        ends = (self.constant("slice", [at], np.int64) for at in (first, last, axis))
        return self.node("Slice", [value, *ends], name)

    def transpose(self, value: Value, name: str) -> Value:
        """[a, b] -> [b, a]."""
        return self.node("Transpose", [value], name, perm=[1, 0])

    def linear(self, x: Value, weight: Array, bias: Array | None, name: str) -> Value:
        """x [n, inputs] @ weight [inputs, outputs] + bias [outputs]."""
        operands = [x, self.constant(f"{name}/weight", weight, weight.dtype)]
        if bias is not None:
            operands.append(self.constant(f"{name}/bias", bias, bias.dtype))
        return self.node("Gemm", operands, name)

    def reshape(self, value: Value, shape: Sequence[int], name: str = "reshape") -> Value:
        return self.node("Reshape", [value, self.constant("shape", shape, np.int64)], name)

    def row(self, value: Value, index: int, name: str) -> Value:
        """[rows, n] -> [n]."""
        place = self._unique("row")
        # An index of rank 0, so that Gather removes the axis.
        self.initializers[place] = np.array(index, np.int64)
        return self.node("Gather", [value, place], name, axis=0)

    def squeeze(self, value: Value, axis: int = -1) -> Value:
        return self.node("Squeeze", [value, self.constant("axis", [axis], np.int64)], "squeeze")

    def at_least(self, value: Value, bound: float, name: str) -> Value:
        """max(value, bound), by Clip: on a CPU it takes less time than Max with a constant."""
        return self.node("Clip", [value, self.constant("least", bound)], name)

    def at_most(self, value: Value, bound: float, name: str) -> Value:
        return self.node("Clip", [value, None, self.constant("most", bound)], name)

    def zeros_like(self, value: Value, name: str) -> Value:
        return self.node("Mul", [value, self.constant("zero", 0.0)], name)

    def sum(self, value: Value, name: str, axis: int = -1, keepdims: bool = False) -> Value:
        """Sum over an axis, which is removed or stays with length 1."""
        along = self.constant("axis", [axis], np.int64)
        return self.node("ReduceSum", [value, along], name, keepdims=int(keepdims))

    def merge(self, model: onnx.ModelProto, inputs: Mapping[str, Value], prefix: str) -> dict[str, Value]:
        """Add the nodes of another graph, which must have no control flow, and return its outputs. Its names get a
        prefix. inputs: a value for each of its inputs; further entries are ignored."""
        place = self._unique(prefix)
        for entry in model.opset_import:
            if entry.domain in ("", "ai.onnx"):
                self.opset = max(self.opset, entry.version)
            elif entry.domain != "ai.onnx.ml":
                self.domains.add(entry.domain)
        renamed: dict[str, str] = {"": "", **{value.name: inputs[value.name] for value in model.graph.input}}
        for tensor in model.graph.initializer:
            renamed[tensor.name] = f"{place}/{tensor.name}"
            self.initializers[renamed[tensor.name]] = numpy_helper.to_array(tensor)
        for index, node in enumerate(model.graph.node):
            added = onnx.NodeProto()
            added.CopyFrom(node)
            added.name = f"{place}/{node.name or index}"
            for name in node.output:
                renamed[name] = f"{place}/{name}" if name else ""
            for names in (added.input, added.output):
                for position, name in enumerate(names):
                    names[position] = renamed[name]
            del added.metadata_props[:]
            added.doc_string = ""
            self.nodes.append(added)
        return {value.name: Value(renamed[value.name]) for value in model.graph.output}

    def drop_unused(self) -> None:
        """Remove nodes and initializers that no output needs."""
        wanted = {value.name for value in self.outputs}
        kept: list[onnx.NodeProto] = []
        for node in reversed(self.nodes):
            if wanted.intersection(node.output):
                wanted.update(node.input)
                kept.append(node)
        self.nodes = kept[::-1]
        self.initializers = {name: value for name, value in self.initializers.items() if name in wanted}

    def model(self, metadata: dict[str, str], beside: Mapping[str, Place] | None = None) -> onnx.ModelProto:
        """The finished model. `beside`: the initializers that are stored in a separate file, and their location in
        it."""
        beside = beside or {}
        initializers = [
            _external(name, value, beside[name])
            if name in beside
            else numpy_helper.from_array(np.require(value, requirements="C"), name)
            for name, value in self.initializers.items()
        ]
        graph = helper.make_graph(self.nodes, "ghostless", self.inputs, self.outputs, initializers)
        opsets = [helper.make_opsetid("", self.opset), helper.make_opsetid("ai.onnx.ml", ML_OPSET)]
        opsets += [helper.make_opsetid(domain, 1) for domain in sorted(self.domains)]
        # Opset 21 and later require IR version 10.
        ir_version = IR_VERSION if self.opset <= 20 else 10
        model = helper.make_model(graph, opset_imports=opsets, ir_version=ir_version, producer_name="ghostless")
        helper.set_model_props(model, metadata)
        return model

    def _unique(self, name: str) -> Value:
        count = self._names.get(name, 0)
        self._names[name] = count + 1
        return Value(name if count == 0 else f"{name}_{count}")


def _external(name: str, value: Array, place: Place) -> onnx.TensorProto:
    kind = helper.np_dtype_to_tensor_dtype(value.dtype)
    tensor = TensorProto(name=name, data_type=kind, dims=value.shape, data_location=TensorProto.EXTERNAL)
    for key, entry in (("location", place.file), ("offset", place.offset), ("length", value.nbytes)):
        tensor.external_data.add(key=key, value=str(entry))
    return tensor
