"""A model's graph without the nodes that only other outputs need.

ONNX Runtime runs every node, whichever outputs a run asks for, and keeps nodes whose outputs nobody reads. So a request
for the mean alone costs as much as one for everything, unless it has a graph of its own. The file is taken apart on
protobuf's wire format, because a server has no `onnx` package.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from ghostless.contract.encoding import header

# Field numbers of onnx.proto.
_MODEL_GRAPH = 7
_NODE, _INITIALIZER, _OUTPUT, _VALUE_INFO, _SPARSE_INITIALIZER = 1, 5, 12, 13, 15
_NODE_INPUT, _NODE_OUTPUT, _NODE_ATTRIBUTE = 1, 2, 5
_ATTRIBUTE_GRAPH, _ATTRIBUTE_GRAPHS = 6, 11
_TENSOR_NAME, _TENSOR_LOCATION = 8, 14
_VALUE_NAME = 1

_VARINT, _FIXED_64, _LENGTH_DELIMITED, _FIXED_32 = 0, 1, 2, 5


@dataclass(frozen=True, slots=True)
class _Field:
    """`whole` is with its tag and length; `value` is a view of the content, empty for numbers."""

    number: int
    whole: memoryview
    value: memoryview

    @property
    def text(self) -> str:
        return str(self.value, "utf-8")


def reduce_graph(model: memoryview, outputs: Collection[str], max_initializer_bytes: int) -> bytes | None:
    """The model with these outputs only, and with the nodes and initializers that they need.

    None where it can't be reduced: a node has a graph of its own, weights lie outside the file, or there would be more
    than `max_initializer_bytes` of them, which the other session has in memory as well.
    """
    parts = list(_fields(model))
    graphs = [part for part in parts if part.number == _MODEL_GRAPH]
    if len(graphs) != 1:
        return None
    kept = _reduce(list(_fields(graphs[0].value)), set(outputs), max_initializer_bytes)
    if kept is None:
        return None
    head = header(_MODEL_GRAPH, sum(map(len, kept)))
    others = (part.whole for part in parts if part.number != _MODEL_GRAPH)
    return b"".join((*others, head, *kept))


def _reduce(fields: list[_Field], outputs: set[str], max_initializer_bytes: int) -> list[memoryview] | None:
    needed = set(outputs)
    nodes: list[memoryview] = []
    # ONNX wants nodes sorted: what one reads was written by another before it.
    for node in reversed([field for field in fields if field.number == _NODE]):
        parts = list(_fields(node.value))
        if any(_has_graph(part.value) for part in parts if part.number == _NODE_ATTRIBUTE):
            return None
        if not needed.isdisjoint(part.text for part in parts if part.number == _NODE_OUTPUT):
            needed.update(part.text for part in parts if part.number == _NODE_INPUT)
            nodes.append(node.whole)
    kept, initializer_bytes = nodes[::-1], 0
    for field in fields:
        if field.number == _SPARSE_INITIALIZER:
            return None
        if field.number == _INITIALIZER:
            tensor = {part.number: part for part in _fields(field.value)}
            if tensor[_TENSOR_NAME].text not in needed:
                continue
            initializer_bytes += len(field.value)
            if _TENSOR_LOCATION in tensor or initializer_bytes > max_initializer_bytes:
                return None
        elif field.number == _OUTPUT:
            if next(part.text for part in _fields(field.value) if part.number == _VALUE_NAME) not in outputs:
                continue
        elif field.number in (_NODE, _VALUE_INFO):
            # Shapes of values in between are inferred again.
            continue
        kept.append(field.whole)
    return kept


def _has_graph(attribute: memoryview) -> bool:
    return any(part.number in (_ATTRIBUTE_GRAPH, _ATTRIBUTE_GRAPHS) for part in _fields(attribute))


def _fields(message: memoryview) -> Iterator[_Field]:
    at, end = 0, len(message)
    while at < end:
        tag, value_at = _varint(message, at)
        kind = tag & 7
        if kind == _LENGTH_DELIMITED:
            length, value_at = _varint(message, value_at)
            value_end = value_at + length
        elif kind == _VARINT:
            value_at = value_end = _varint(message, value_at)[1]
        elif kind in (_FIXED_64, _FIXED_32):
            value_at = value_end = value_at + (8 if kind == _FIXED_64 else 4)
        else:
            raise ValueError(f"wire type {kind} in a model file")
        if value_end > end:
            raise ValueError("a model file ends within a field")
        yield _Field(tag >> 3, message[at:value_end], message[value_at:value_end])
        at = value_end


def _varint(message: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        octet = message[at]
        at += 1
        value |= (octet & 0x7F) << shift
        if octet < 0x80:
            return value, at
        shift += 7
