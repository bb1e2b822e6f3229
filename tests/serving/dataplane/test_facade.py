"""Predict over a real socket: equal to the graph, scored and ranked; models listed."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
import numpy as np
import pytest

from ghostless.contract import metadata
from ghostless.contract.item_draws import standard_normal
from ghostless.v1 import prediction_pb2 as pb
from serving.engines.embedded import LoadedModel, load_model
from tests.support.onnx_models import CR_OUTPUTS, REALISTIC, SMALL, Recipe, with_string_ids, write_version
from tests.support.running import Running, graph_inputs, predict_request, response_tensors, serving_repository
from tests.support.tritons import serving_triton

QR = Recipe(head="qr", cells=12, seed=3)
# Of a file exported before the candidates' part and the last layer's were outputs.
BEFORE_THE_SPLIT = tuple(
    name for name in CR_OUTPUTS if name not in (metadata.EPISTEMIC_CANDIDATE, metadata.EPISTEMIC_LAST_LAYER)
)


@pytest.fixture(scope="module", params=["embedded", "triton"])
def running(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    root = tmp_path_factory.mktemp("repository")
    write_version(root, 1, SMALL, "demo")
    write_version(root, 1, QR, "quantiles")
    write_version(root, 1, Recipe(features=with_string_ids()), "texts")
    write_version(root, 1, Recipe(outputs=("mean", "epistemic", "quantiles")), "few")
    write_version(root, 1, REALISTIC, "large")
    write_version(root, 1, Recipe(outputs=BEFORE_THE_SPLIT), "before")
    serve = serving_repository if request.param == "embedded" else serving_triton
    with serve(root, default_model="demo") as server:
        yield server


def _graph(running: Running, name: str) -> LoadedModel:
    """The model's file itself, whatever engine serves it."""
    assert running.root is not None
    name = name or "demo"
    return load_model(running.root / name / "1" / "model.onnx", name, 1, warm_up_rows=())


@pytest.mark.parametrize("name", ["demo", "quantiles"])
@pytest.mark.parametrize("rows", [1, 2, 37, 500])
def test_the_answer_is_the_graphs_own_bit_for_bit(running: Running, name: str, rows: int) -> None:
    request = predict_request(rows, seed=rows, model=name, request_id="abc")
    answer = running.stub.Predict(request, timeout=5)
    graph = _graph(running, name)
    expected = graph.run(graph_inputs(request), graph.outputs)
    got = response_tensors(answer)
    assert got.keys() == expected.keys() - {metadata.CDF}
    for output, values in got.items():
        np.testing.assert_array_equal(values, expected[output], err_msg=output)
    assert (answer.model, answer.version, answer.rows, answer.request_id) == (name, 1, rows, "abc")
    total = expected[metadata.ALEATORIC] + expected[metadata.EPISTEMIC]
    np.testing.assert_array_equal(np.array(answer.uncertainty.total, np.float32), total)
    assert list(answer.quantiles.levels) == pytest.approx(graph.metadata.levels)
    assert list(answer.bins.edges) == pytest.approx(graph.metadata.edges)
    assert not answer.score
    assert not answer.ranking


def test_batched_answers_are_within_1e_5_of_the_graph(running: Running) -> None:
    requests = [predict_request(1 + i % 40, seed=i, model="demo") for i in range(200)]
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda r: running.stub.Predict(r, timeout=10), requests))
    graph = _graph(running, "demo")
    for request, answer in zip(requests, answers, strict=True):
        expected = graph.run(graph_inputs(request), graph.outputs)
        for output, values in response_tensors(answer).items():
            np.testing.assert_allclose(values, expected[output], rtol=1e-5, atol=1e-5, err_msg=output)


def test_text_ids_and_unknown_ids(running: Running) -> None:
    request = pb.PredictRequest(model="texts")
    request.context["user_id"].strings.values.append("id7")
    request.context["hour"].floats.values.append(3.0)
    request.candidates["item_id"].strings.values.extend(["id3", "nobody", "", "id199"])
    request.candidates["duration"].floats.values.extend([1.0, 2.0, 2.0, 4.0])
    mean = running.stub.Predict(request, timeout=5).mean
    assert len(mean) == 4
    assert mean[1] == mean[2], "two unknown ids share the out-of-vocabulary row"
    assert mean[0] != mean[1]


def test_only_asked_for_outputs_come(running: Running) -> None:
    answer = running.stub.Predict(predict_request(outputs=[pb.OUTPUT_MEAN, pb.OUTPUT_BINS]), timeout=5)
    assert len(answer.mean) == 3
    assert answer.HasField("bins")
    assert not answer.HasField("quantiles")
    assert not answer.HasField("uncertainty")
    few = running.stub.Predict(predict_request(model="few"), timeout=5)
    assert few.HasField("quantiles")
    assert not few.HasField("uncertainty"), "epistemic without aleatoric is no uncertainty split"


def test_levels_of_the_clients_own_lie_on_the_same_cdf(running: Running) -> None:
    levels = [0.5, 0.123, 0.9]
    request = predict_request(20, quantile_levels=levels, thresholds=[0.5, 1.7], outputs=[pb.OUTPUT_MEAN])
    answer = running.stub.Predict(request, timeout=5)
    graph = _graph(running, "demo")
    cdf = graph.run(graph_inputs(request), (metadata.CDF,))[metadata.CDF]
    values = np.array(answer.quantiles.values).reshape(20, 3)
    above = np.array(answer.exceedance).reshape(20, 2)
    for row in range(20):
        assert np.interp(values[row], graph.metadata.knots, cdf[row]) == pytest.approx(levels, abs=1e-5)
        assert 1 - np.interp([0.5, 1.7], graph.metadata.knots, cdf[row]) == pytest.approx(above[row], abs=1e-5)
    assert list(answer.quantiles.levels) == pytest.approx(levels)


def test_exported_levels_come_from_the_graph_itself(running: Running) -> None:
    request = predict_request(9, quantile_levels=[0.9, 0.1])
    answer = running.stub.Predict(request, timeout=5)
    graph = _graph(running, "demo")
    exported = graph.run(graph_inputs(request), (metadata.QUANTILES,))[metadata.QUANTILES]
    np.testing.assert_array_equal(np.array(answer.quantiles.values, np.float32).reshape(9, 2), exported[:, [4, 0]])


def _tensors(running: Running, request: pb.PredictRequest) -> dict[str, np.ndarray]:
    graph = _graph(running, request.model)
    outputs = graph.run(graph_inputs(request), graph.outputs)
    return {name: values.astype(np.float64) for name, values in outputs.items()}


@pytest.mark.parametrize(
    ("scoring", "formula"),
    [
        (pb.Scoring(mean=pb.Scoring.Mean()), lambda t: t["mean"]),
        (pb.Scoring(ucb=pb.Scoring.Ucb(kappa=2)), lambda t: t["mean"] + 2 * np.sqrt(t["epistemic_candidate"])),
        (pb.Scoring(acquisition=pb.Scoring.Acquisition(gamma=0.5)), lambda t: t["epistemic"] + 0.5 * t["aleatoric"]),
        (
            pb.Scoring(risk_averse=pb.Scoring.RiskAverse(weight=1.5)),
            lambda t: t["mean"] - 1.5 * np.sqrt(t["aleatoric"] + t["epistemic"]),
        ),
        (pb.Scoring(quantile=pb.Scoring.Quantile(level=0.9)), lambda t: t["quantiles"][:, 4]),
    ],
)
def test_scores_and_ranking(
    running: Running, scoring: pb.Scoring, formula: Callable[[dict[str, np.ndarray]], np.ndarray]
) -> None:
    request = predict_request(50, scoring=scoring, top_k=7)
    answer = running.stub.Predict(request, timeout=5)
    expected = formula(_tensors(running, request))
    assert list(answer.score) == pytest.approx(expected, abs=1e-4)
    assert list(answer.ranking) == np.argsort(-np.array(answer.score), kind="stable")[:7].tolist()


def test_thompson_is_repeatable_by_seed(running: Running) -> None:
    def ranking(seed: int) -> list[int]:
        scoring = pb.Scoring(thompson=pb.Scoring.Thompson(seed=seed))
        return list(running.stub.Predict(predict_request(200, scoring=scoring), timeout=5).ranking)

    assert ranking(1) == ranking(1)
    assert ranking(1) != ranking(2)
    assert sorted(ranking(1)) == list(range(200))


@pytest.mark.parametrize(("scale", "expected"), [(None, 0.25), (0.0, 0.0), (2.0, 2.0)])
def test_thompson_adds_one_draw_an_item_scaled(running: Running, scale: float | None, expected: float) -> None:
    scoring = pb.Scoring(thompson=pb.Scoring.Thompson(seed=9, scale=scale))
    request = predict_request(300, scoring=scoring)
    answer = running.stub.Predict(request, timeout=5)
    drawn = standard_normal(9, [graph_inputs(request)["item_id"]])
    mean, variance = (np.array(v, np.float64) for v in (answer.mean, answer.uncertainty.epistemic_candidate))
    np.testing.assert_allclose(answer.score, mean + expected * np.sqrt(variance) * drawn, atol=1e-6)


def test_ucb_is_made_of_the_returned_fields(running: Running) -> None:
    request = predict_request(300, scoring=pb.Scoring(ucb=pb.Scoring.Ucb(kappa=1.5)))
    answer = running.stub.Predict(request, timeout=5)
    mean, variance = (np.array(v, np.float64) for v in (answer.mean, answer.uncertainty.epistemic_candidate))
    np.testing.assert_allclose(answer.score, mean + 1.5 * np.sqrt(variance), rtol=0, atol=1e-6)
    assert (variance < np.array(answer.uncertainty.epistemic)).all(), "the user's part is left out"


def test_new_items_move_up_by_ucb(running: Running) -> None:
    request = predict_request(200)
    ids = request.candidates["item_id"].int64s.values
    ids[:] = range(200)
    ids[::4] = range(10_000, 10_050)

    def mean_place(scoring: pb.Scoring) -> float:
        request.scoring.CopyFrom(scoring)
        ranking = np.array(running.stub.Predict(request, timeout=5).ranking)
        return float(np.flatnonzero(ranking % 4 == 0).mean())

    by_mean = mean_place(pb.Scoring(mean=pb.Scoring.Mean()))
    assert mean_place(pb.Scoring(ucb=pb.Scoring.Ucb(kappa=1.0))) < by_mean - 5


def test_a_file_without_the_candidates_part_gives_the_whole(running: Running) -> None:
    request = predict_request(20, model="before", scoring=pb.Scoring(ucb=pb.Scoring.Ucb(kappa=2.0)))
    answer = running.stub.Predict(request, timeout=5)
    split = answer.uncertainty
    assert split.epistemic_candidate == split.epistemic
    assert not split.epistemic_last_layer
    np.testing.assert_allclose(answer.score, np.array(answer.mean) + 2 * np.sqrt(split.epistemic), atol=1e-6)


def test_top_k_alone_ranks_by_the_mean(running: Running) -> None:
    answer = running.stub.Predict(predict_request(10, top_k=99), timeout=5)
    assert list(answer.ranking) == np.argsort(-np.array(answer.mean), kind="stable").tolist()


def test_models_are_listed_and_described(running: Running) -> None:
    listed = running.stub.ListModels(pb.ListModelsRequest(), timeout=5)
    assert [model.name for model in listed.models] == ["before", "demo", "few", "large", "quantiles", "texts"]
    assert listed.default_model == "demo"
    model = running.stub.GetModel(pb.GetModelRequest(model="quantiles"), timeout=5)
    assert (model.head, model.method, model.version) == ("qr", "vbll", 1)
    assert [f.name for f in model.features] == ["user_id", "hour", "item_id", "duration"]
    assert model.features[0].role == pb.Feature.CONTEXT
    assert model.features[2].vocabulary_size == 200
    assert model.target.high == 3.0
    assert list(model.outputs) == [pb.OUTPUT_MEAN, pb.OUTPUT_QUANTILES, pb.OUTPUT_BINS, pb.OUTPUT_UNCERTAINTY]
    assert model.metadata["ghostless.head"] == '"qr"'
    assert [(v.version, v.state, v.in_service) for v in model.versions] == [(1, pb.Model.READY, True)]
    with pytest.raises(grpc.RpcError) as refused:
        running.stub.GetModel(pb.GetModelRequest(model="demo", version=3), timeout=5)
    assert refused.value.code() is grpc.StatusCode.NOT_FOUND
