"""A backbone that is not ours as nodes of the served graph, below the hand-written head.

A PyTorch backbone is exported by torch and gets the inputs it was trained with: table rows of ids, z of numbers. A
frozen ranker is already a graph and gets the raw features. Both are checked (learning.own.graph_rules, graph_trial) and
then merged node by node; the export is verified like that of any model.
"""

from collections.abc import Mapping

import numpy as np
import onnx
from torch import Tensor

from export import features, reference, rows
from export.builder import INT32, Array, GraphBuilder, Value
from learning.checkpoint import Checkpoint
from learning.data.encoding import FARTHEST
from learning.own import graph_rules, graph_trial, torch_export
from learning.own.frozen import FrozenEncoding
from learning.own.model import TorchRankerNetwork
from learning.own.onnx_ranker import RankerInput

OUTPUT = "features"
TRIED_ROWS = 64


def phi(g: GraphBuilder, checkpoint: Checkpoint, inputs: Mapping[str, Value]) -> Value:
    """Raw features -> phi [n, D] of a checkpoint whose backbone is not ours."""
    if isinstance(checkpoint.encoding, FrozenEncoding):
        return _frozen(g, checkpoint.encoding, inputs)
    return g.merge(torch_graph(checkpoint), _encoded_inputs(g, checkpoint, inputs), "ranker")[OUTPUT]


def _encoded_inputs(g: GraphBuilder, checkpoint: Checkpoint, inputs: Mapping[str, Value]) -> dict[str, Value]:
    """For each feature, the table row of an id, int64 [n], or the z of a number, float32 [n]."""
    encoding = checkpoint.encoding
    given: dict[str, Value] = {}
    for feature in encoding.schema.features:
        name = feature.name
        if feature.is_coded:
            places = np.arange(encoding.cardinality(name))
            given[name] = features.gather_id(g, inputs[name], feature, encoding.vocabularies[name], places)
    numbers = [feature.name for feature in encoding.schema.features if not feature.is_coded]
    if numbers:
        centres, spreads = ([values[name] for name in numbers] for values in (encoding.centres, encoding.spreads))
        linear = [name in encoding.linear for name in numbers]
        z = features.bend(g, [inputs[name] for name in numbers], centres, spreads, linear)
        columns = g.split(z, [1] * len(numbers), [f"{name}/z" for name in numbers])
        given |= {name: g.reshape(column, [-1], f"{name}/row_z") for name, column in zip(numbers, columns, strict=True)}
    return given


def torch_graph(checkpoint: Checkpoint) -> onnx.ModelProto:
    """A PyTorch backbone as a checked graph. Its inputs are the features' names, its output is OUTPUT."""
    model = checkpoint.network
    assert isinstance(model, TorchRankerNetwork)
    source = model.config.own
    usual, extreme = (
        {name: values[:TRIED_ROWS] for name, values in _model_inputs(checkpoint, columns).items()}
        for columns in (rows.plausible(checkpoint.encoding, TRIED_ROWS, 0), rows.extreme(checkpoint.encoding))
    )
    exported = torch_export.graph_of(model.ranker, source, usual, OUTPUT)
    graph = graph_rules.prepared(exported, OUTPUT, source)
    graph_rules.output_width(graph, source)
    # An input that the backbone does not use has no counterpart in its graph.
    taken = {value.name for value in graph.graph.input}
    feeds = [{name: part[name].numpy() for name in taken} for part in (usual, extreme)]
    graph_trial.check(graph, source, *feeds)
    return graph


def _model_inputs(checkpoint: Checkpoint, columns: Mapping[str, Array]) -> dict[str, Tensor]:
    model = checkpoint.network
    assert isinstance(model, TorchRankerNetwork)
    return model.encoded_inputs(reference.encode(checkpoint, columns))


def _frozen(g: GraphBuilder, encoding: FrozenEncoding, inputs: Mapping[str, Value]) -> Value:
    """The features of a frozen ranker, standardised."""
    given = {name: _raw(g, encoding, name, value) for name, value in inputs.items()}
    fed = {item.name: _ranker_input(g, item, given) for item in encoding.ranker.inputs}
    model = encoding.ranker.proto
    (output,) = g.merge(model, fed, "ranker").values()
    centre = g.constant("ranker/centre", encoding.feature_centres[None, :])
    spread = g.constant("ranker/spread", encoding.feature_spreads[None, :])
    scaled = g.node("Div", [g.node("Sub", [output, centre], "ranker/centred"), spread], "ranker/scaled")
    ends = (g.constant("ranker/end", end * FARTHEST) for end in (-1.0, 1.0))
    return g.node("Clip", [scaled, *ends], "ranker/phi")


def _raw(g: GraphBuilder, encoding: FrozenEncoding, name: str, value: Value) -> Value:
    """FrozenEncoding.ranker_columns for one feature, [n]. Every id is also looked up, because its effect needs the
    row."""
    (feature,) = (feature for feature in encoding.schema.features if feature.name == name)
    if not feature.is_coded:
        ends = (g.constant(f"{name}/end", float(end)) for end in encoding.limits(name))
        low, high = ends
        return g.node("Min", [g.node("Max", [value, low]), high], f"{name}/inside")
    vocabulary = encoding.vocabularies[name]
    if feature.type == "string":
        features.gather_id(g, value, feature, vocabulary, np.arange(len(vocabulary) + 1))
        if name not in encoding.ranker.unknown:
            return value
        words = vocabulary.tolist()
        mapped = {"keys_strings": words, "values_strings": words, "default_string": str(encoding.unknown(name))}
        return g.node("LabelEncoder", [value], f"{name}/known_id", "ai.onnx.ml", **mapped)
    known = np.concatenate([np.array([encoding.unknown(name)], np.int64), vocabulary])
    looked_up = features.gather_id(g, value, feature, vocabulary, known)
    return looked_up if name in encoding.ranker.unknown else value


def _ranker_input(g: GraphBuilder, item: RankerInput, given: Mapping[str, Value]) -> Value:
    """An input of the ranker from columns [n]."""
    columns = [given[name] for name in item.features]
    if item.type == "int32":
        columns = [g.node("Cast", [column], f"{item.name}/narrow", to=INT32) for column in columns]
    if item.rank == 1:
        return columns[0]
    columns = [g.reshape(column, [-1, 1], f"{item.name}/column") for column in columns]
    return columns[0] if len(columns) == 1 else g.node("Concat", columns, f"{item.name}/columns", axis=1)
