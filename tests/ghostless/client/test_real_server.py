"""Client and `ghostless predict` against the real server process."""

import asyncio
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ghostless.client import (
    Acquisition,
    AsyncClient,
    Client,
    Mean,
    Prediction,
    Quantile,
    RejectedError,
    RiskAverse,
    Scoring,
    Thompson,
    Ucb,
)
from ghostless.commands.main import main
from loadtest.server_process import ServerProcess, running_server
from loadtest.workload import ServedModel, largest_difference

ROWS = 20


@pytest.fixture(scope="module")
def server(repository: Path) -> Iterator[ServerProcess]:
    with running_server(repository) as running:
        yield running


@pytest.fixture
def client(server: ServerProcess) -> Iterator[Client]:
    with Client(server.address, timeout_s=10.0) as connected:
        yield connected


def ask(client: Client, model: ServedModel, scoring: Scoring | None = None, **others: Any) -> Prediction:
    arguments: dict[str, Any] = {**model.rows(ROWS, seed=1).arguments("demo"), "scoring": scoring, **others}
    return client.predict(**arguments)


def test_answers_are_the_graphs_own(client: Client, server: ServerProcess, model: ServedModel) -> None:
    rows = model.rows(ROWS, seed=1)
    assert largest_difference(client.predict(**rows.arguments("demo")), model.infer(rows)) == 0

    async def ask_many() -> list[Prediction]:
        async with AsyncClient(server.address, timeout_s=10.0) as waiting:
            return await asyncio.gather(
                *(waiting.predict(**model.rows(ROWS, seed).arguments("demo")) for seed in range(16))
            )

    for seed, prediction in enumerate(asyncio.run(ask_many())):
        assert largest_difference(prediction, model.infer(model.rows(ROWS, seed))) <= 1e-5


def test_only_what_was_asked_comes_back(client: Client, model: ServedModel) -> None:
    prediction = ask(client, model, outputs=("mean",))
    assert prediction.mean is not None
    assert prediction.quantiles is prediction.bins is prediction.aleatoric is prediction.exceedance is None


def test_levels_and_thresholds_between_the_exported_ones(client: Client, model: ServedModel) -> None:
    prediction = ask(client, model, quantile_levels=(0.05, 0.5, 0.95), thresholds=(0.0, 1.5, 3.0))
    assert prediction.quantiles is not None
    assert prediction.exceedance is not None
    assert np.all(np.diff(prediction.quantiles, axis=1) >= 0)
    np.testing.assert_array_equal(prediction.exceedance[:, [0, 2]], np.tile([1.0, 0.0], (ROWS, 1)))
    # P(y > 1.5) is above one half just where the median is above 1.5.
    np.testing.assert_array_equal(prediction.exceedance[:, 1] > 0.5, prediction.quantiles[:, 1] > 1.5)


def test_every_scoring_rule_scores_as_it_says(client: Client, model: ServedModel) -> None:
    plain = ask(client, model, quantile_levels=(0.9,))
    assert plain.mean is not None
    assert plain.quantiles is not None
    assert plain.epistemic is not None
    assert plain.epistemic_candidate is not None
    assert plain.epistemic_last_layer is not None
    assert plain.aleatoric is not None
    assert plain.total is not None
    expected: dict[Scoring, np.ndarray] = {
        Mean(): plain.mean,
        Quantile(0.9): plain.quantiles[:, 0],
        Ucb(1.5): plain.mean + 1.5 * np.sqrt(plain.epistemic_candidate),
        Acquisition(0.3): plain.epistemic + 0.3 * plain.aleatoric,
        RiskAverse(0.5): plain.mean - 0.5 * np.sqrt(plain.total),
    }
    for rule, score in expected.items():
        prediction = ask(client, model, rule, top_k=5)
        assert prediction.score is not None
        np.testing.assert_allclose(prediction.score, score, rtol=1e-5, atol=1e-6, err_msg=str(rule))
        np.testing.assert_array_equal(prediction.ranking, np.argsort(-prediction.score, kind="stable")[:5])


def test_thompson_draws_repeat_by_seed(client: Client, model: ServedModel) -> None:
    first, again, other, wider = (
        ask(client, model, rule).score for rule in (Thompson(7), Thompson(7), Thompson(8), Thompson(7, scale=0.5))
    )
    mean = ask(client, model).mean
    np.testing.assert_array_equal(first, again)
    assert wider is not None
    assert mean is not None
    assert first is not None
    assert other is not None
    assert np.any(first != other)
    np.testing.assert_allclose(wider - mean, 2 * (first - mean), atol=1e-6)


def test_the_servers_complaint_reaches_the_caller(client: Client) -> None:
    with pytest.raises(RejectedError, match="item_id") as raised:
        client.predict(context={"user_id": 1, "hour": 1.0}, candidates={"duration": [1.0]})
    assert raised.value.code.name == "INVALID_ARGUMENT"


def test_the_model_is_described(client: Client, model: ServedModel) -> None:
    described = client.get_model()
    assert described.name == "demo"
    assert set(described.features) == set(model.features)
    assert client.list_models().models[0].versions[0].in_service


def test_ghostless_predict(
    server: ServerProcess, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    request = {"context": {"user_id": 1, "hour": 9}, "candidates": {"item_id": [1, 2, 3], "duration": [10, 20, 30]}}
    arguments = ["--address", server.address, "--request", json.dumps(request), "--format", "json"]
    monkeypatch.setattr(sys, "argv", ["ghostless", "predict", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    answer = json.loads(capsys.readouterr().out)
    assert len(answer["quantiles"]) == 3
    assert answer["ranking"] == sorted(range(3), key=lambda row: -answer["mean"][row])
