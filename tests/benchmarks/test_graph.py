"""`ghostless bench graph`: its clock, its profile, its memory and its figures."""

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from rich.console import Console

from benchmarks.graph import command, graphs, large, timing
from benchmarks.graph.graphs import Graph
from export.builder import GraphBuilder
from export.checks import Check
from export.verification import Report
from loadtest.figures import Figures
from tests.support import torch_models as models

WIDTH = 64


def chain(path: Path, layers: int) -> Path:
    """x [n] -> `layers` products of 64 by 64: a graph that costs what it has layers."""
    g = GraphBuilder()
    weight = np.random.default_rng(0).normal(0, 0.1, (WIDTH, WIDTH)).astype(np.float32)
    h = g.linear(g.reshape(g.input("x", "float32"), [-1, 1]), weight[:1], None, "first")
    for _ in range(layers):
        h = g.linear(h, weight, None, "layer")
    g.output("y", h, WIDTH)
    path.write_bytes(g.model({}).SerializeToString())
    return path


FEED = {"x": np.ones(256, np.float32)}


def test_a_graph_of_ten_times_the_work_takes_longer(tmp_path: Path) -> None:
    loaded = timing.copies([chain(tmp_path / f"{layers}.onnx", layers) for layers in (2, 40)], 3)
    times = timing.interleaved(loaded, FEED, rounds=5)
    assert times.shape == (3, 5, 2)
    assert (times > 0).all()
    assert np.median(timing.ratios(times, 1, 0)) > 3.0


def test_ratios_are_taken_within_a_round_and_reported_by_copy() -> None:
    slow_phase = np.array([[2.0, 1.0], [60.0, 20.0], [100.0, 1.0]])
    times = np.stack([slow_phase, 2.0 * slow_phase])
    assert timing.ratios(times, 0, 1) == [3.0, 3.0]
    assert timing.ratios(times, 1, 0) == pytest.approx([1 / 3, 1 / 3])


def test_turns_alternate_between_graphs() -> None:
    """Each graph runs in every round, so that a slow moment meets all, and none is always the first."""
    order: list[str] = []

    def loaded(name: str) -> SimpleNamespace:
        return SimpleNamespace(run=lambda outputs, feed: order.append(name))

    timing.interleaved([[loaded("a"), loaded("b")], [loaded("A"), loaded("B")]], {}, rounds=2)
    warm_up = "".join(name * timing.WARM_UP for name in "abAB")
    turns = "abABbaBA"
    assert "".join(order) == warm_up + "".join(name * timing.TURN_CALLS for name in turns)


def test_the_profile_lists_nodes_dearest_first(tmp_path: Path) -> None:
    nodes = timing.profile(chain(tmp_path / "chain.onnx", 4), FEED, tmp_path, calls=10)
    assert [duration for *_, duration in nodes] == sorted((duration for *_, duration in nodes), reverse=True)
    assert {operator for _, operator, _ in nodes} & {"Gemm", "FusedGemm"}
    assert len({name for name, *_ in nodes}) >= 4


def test_memory_is_what_loading_adds_to_a_process(tmp_path: Path) -> None:
    peak, seconds = timing.memory_mb(table(tmp_path / "table.onnx", 60), {"x": np.zeros(256, np.int64)})
    # The table once, or twice while it is read, and ONNX Runtime's own.
    assert 60 < peak < 300
    assert seconds > 0


def table(path: Path, megabytes: int) -> Path:
    g = GraphBuilder()
    rows = g.constant("rows", np.ones((megabytes * 2**14, 16), np.float32))
    g.output("y", g.node("Gather", [rows, g.input("x", "int64")], axis=0), 16)
    path.write_bytes(g.model({}).SerializeToString())
    return path


def test_a_large_id_table_exports_loads_and_answers_exactly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large, "ModelConfig", models.config)
    result = large.measure(tmp_path, ids=50_000)
    assert result.error <= 1e-4
    assert result.export_s > 0
    assert result.load_s > 0
    # 50,000 ids of 16 numbers.
    assert result.file_mb > 50_000 * 16 * 4 / 1e6
    assert result.peak_mb > 50_000 * 16 * 4 / 1e6


def test_the_bare_network_answers_with_the_last_layers_outputs(tmp_path: Path) -> None:
    checkpoint = models.video_checkpoint(method="deterministic")
    running = timing.session(graphs._bare(checkpoint, tmp_path / "bare.onnx"))
    (outputs,) = running.run(None, models.some_rows(checkpoint, 10))
    assert np.asarray(outputs).shape[1] == checkpoint.model_config.levels


def collected(tmp_path: Path, *checks: Check) -> tuple[int, dict[str, object]]:
    """Exit status and JSON of the figures that a report becomes."""
    figures = Figures("bench", console=Console(quiet=True))
    command._exactness(figures, [Graph("qr", "vbll", tmp_path, Report(checks)), Graph("qr", "bare", tmp_path, None)])
    try:
        figures.finish(tmp_path / "figures.json")
    except SystemExit as error:
        return int(error.code or 0), json.loads((tmp_path / "figures.json").read_text())
    return 0, json.loads((tmp_path / "figures.json").read_text())


def checks(error: float) -> list[Check]:
    return [
        Check("mean: against torch, random rows", error, 1e-4),
        Check("values that are not finite, random rows", 0, 0),
        Check("mean: a row alone against a batch of 4096", 0.0, 1e-5),
        Check("bins: against 4000 posterior draws", 0.001, 0.002),
    ]


def test_averages_of_a_graph_that_draws_its_masks_are_not_held_to_an_exact_answers_bound(tmp_path: Path) -> None:
    status, content = collected(tmp_path, Check("mean: average against torch's dropout, standard errors", 1.8, 6.0))
    assert status == 0
    assert isinstance(content["figures"], list)
    assert [figure["bound"] for figure in content["figures"]] == ["<= 6"]


def test_figures_stand_beside_their_bounds(tmp_path: Path) -> None:
    status, content = collected(tmp_path, *checks(2e-5))
    assert status == 0
    first = {"name": "qr vbll: largest relative error against torch", "value": 2e-5, "bound": "<= 1e-4", "ok": True}
    assert isinstance(content["figures"], list)
    assert content["figures"][0].items() >= first.items()
    assert [figure["bound"] for figure in content["figures"]] == ["<= 1e-4", "<= 1e-5", "== 0", "<= 0.002"]


@pytest.mark.parametrize("error", [2e-4, float("nan")])
def test_a_figure_that_falls_short_fails_the_bench(tmp_path: Path, error: float) -> None:
    status, content = collected(tmp_path, *checks(error))
    assert status == 1
    assert isinstance(content["figures"], list)
    assert [figure["ok"] for figure in content["figures"]] == [False, True, True, True]
