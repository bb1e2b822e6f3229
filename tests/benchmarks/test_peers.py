"""`ghostless bench peers`: the hand-written handlers answer what the graph does, and a short run compares them."""

import grpc
import numpy as np
import pytest

from benchmarks.demo_model import stored_repository
from benchmarks.peers import judgement
from benchmarks.peers.raw_model import RawModel, raw_request
from benchmarks.peers.rounds import SIZES, Comparison, Measured, Plan
from benchmarks.peers.servers import GHOSTLESS, GRPC_SERVERS, TRITON, UVICORN, Peer, Target
from benchmarks.turns import Sample
from loadtest.bare_session import BareLoad
from loadtest.figures import Figures
from loadtest.h2load import METHOD, find_h2load
from loadtest.server_process import BenchError
from loadtest.workload import find_model


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Target:
    root = tmp_path_factory.mktemp("peers")
    stored = stored_repository(root)
    try:
        return Target(stored, find_model(stored, "demo"), root, find_h2load())
    except BenchError as missing:
        pytest.skip(str(missing))


@pytest.mark.parametrize("count", [1, 37])
def test_the_handlers_answer_is_the_graphs(target: Target, count: int) -> None:
    rows = target.model.rows(count, seed=1)
    answer = RawModel(target.model.path, target.model.outputs).answer(raw_request(rows))
    expected = np.concatenate([values.ravel() for values in target.model.infer(rows).values()])
    np.testing.assert_array_equal(np.frombuffer(answer, "<f4"), expected)


@pytest.mark.parametrize("peer", GRPC_SERVERS, ids=lambda peer: peer.name)
def test_the_grpc_servers_answer_is_the_graphs(target: Target, peer: Peer) -> None:
    rows = target.model.rows(5, seed=2)
    with peer.start(target, 1) as server, grpc.insecure_channel(server.address) as channel:
        call: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(METHOD)
        answer = call(raw_request(rows), timeout=30, wait_for_ready=True)
    assert answer == b"".join(values.tobytes() for values in target.model.infer(rows).values())


def test_a_short_comparison(target: Target) -> None:
    """h2load's own check fails where a server answers with fewer bytes than the outputs have."""
    said: list[str] = []
    peers = (GHOSTLESS, UVICORN)
    comparison = Comparison(target, peers, Plan(rounds=1, slice_s=0.3, slices=1), said.append)
    (measured,) = comparison.run()
    for peer in peers:
        assert {comparison.best[peer, size] for size in SIZES} <= set(peer.processes)
        # A thousand rows cost more than one, and any request more than a microsecond and less than a second.
        assert 1e-3 < measured.cpu_ms(peer, 1) < measured.cpu_ms(peer, 1000) < 1e3
        assert measured.samples[peer, 256].requests_per_s > 1
    assert 0 < measured.mean_only_cpu_ms < 2 * measured.cpu_ms(GHOSTLESS, 1000)
    assert measured.bare[256].runs_per_s > 1
    table = judgement.table("short", peers, comparison.best, [measured])
    assert table.row_count == 2 + len(peers)
    assert any("uvicorn" in line for line in said)


def test_bounds_are_taken_within_a_round() -> None:
    """Twice as slow in the second round, everything: no ratio changes."""
    measured = [_round(1.0), _round(2.0)]
    figures = Figures("test")
    judgement.judge_overhead(figures, measured)
    judgement.judge_mean_only(figures, measured)
    judgement.judge_peers(figures, (GHOSTLESS, UVICORN, *GRPC_SERVERS, TRITON), measured)
    values = {figure.name: figure for figure in figures.figures}
    assert values["256 rows: CPU per request / bare ONNX Runtime"].value == pytest.approx(1.2)
    assert values["1 row: CPU per request above bare ONNX Runtime, ms"].value == pytest.approx(0.2 * 1.5)
    assert values["1000 rows: CPU of a request for the mean only over that of all outputs"].value == pytest.approx(0.7)
    assert values[f"256 rows: requests/s / {UVICORN.name}"].value == pytest.approx(2.0)
    assert not values[f"1000 rows: p99 of {TRITON.name} / this server"].ok
    assert len(figures.figures) == 4 + 4 * 4


def _round(slower: float) -> Measured:
    """This server: 1.2 ms CPU where bare takes 1; its peers have half its rate and its p99."""
    peers = (UVICORN, *GRPC_SERVERS, TRITON)
    samples = {(peer, size): Sample(2e-3 * slower, 500 / slower, 4e-3, 8e-3) for peer in peers for size in SIZES}
    samples |= {(GHOSTLESS, size): Sample(1.2e-3 * slower, 1000 / slower, 4e-3, 8e-3) for size in SIZES}
    return Measured(samples, {size: BareLoad(2000 / slower, 1e-3 * slower) for size in SIZES}, 0.84 * slower)


def test_the_present_graph_is_held_against_the_reference() -> None:
    figures = Figures("test")
    judgement.judge_present(figures, [_round(2.0)], [_round(1.0)])
    assert [figure.ok for figure in figures.figures] == [False] * len(SIZES)
    judgement.judge_present(figures, [_round(1.0)], [_round(2.0)])
    assert [figure.ok for figure in figures.figures[len(SIZES) :]] == [True] * len(SIZES)
