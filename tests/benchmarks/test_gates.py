"""The stages of `ghostless bench gates` that are quick enough to be tests: refusals, and clients of other makes."""

from pathlib import Path

import pytest

from benchmarks.gates import foreign_clients
from benchmarks.gates.gates_bench import QUICK, GatesBench, make_authority
from benchmarks.gates.refusals import Refusals, run_refusals
from loadtest.figures import Figures
from loadtest.workload import find_model
from serving.security import gate
from tests.support.onnx_models import write_version


@pytest.fixture
def bench(tmp_path: Path) -> GatesBench:
    repository, folder = tmp_path / "models", tmp_path / "certs"
    repository.mkdir()
    write_version(repository, 1)
    authority = make_authority(folder)
    return GatesBench(repository, find_model(repository, ""), "h2load", QUICK, Figures("gates"), folder, authority)


def test_every_case_of_a_wrong_identity_is_refused(bench: GatesBench) -> None:
    refusals = Refusals(bench)
    refusals.write()
    assert len(refusals.cases()) >= 40
    assert len({case.name for case in refusals.cases()}) >= 40
    assert [(case.name, code.name) for case, code in run_refusals(bench)] == []


def test_every_method_of_the_server_is_of_some_kind() -> None:
    from tritonclient.grpc import service_pb2 as oip

    from ghostless.v1 import prediction_pb2 as pb

    own = {method.name for method in pb.DESCRIPTOR.services_by_name["PredictionService"].methods}
    assert own <= gate._KINDS.keys()
    protocol = {method.name for method in oip.DESCRIPTOR.services_by_name["GRPCInferenceService"].methods}
    assert protocol <= gate._KINDS.keys() | gate._AUDITED


def test_clients_of_other_makes_are_answered_over_tls(bench: GatesBench, capsys: pytest.CaptureFixture[str]) -> None:
    foreign_clients.measure_foreign_clients(bench)
    asked, failed = bench.figures.figures
    assert failed.value == 0, capsys.readouterr().out
    assert asked.value + len(bench.figures.skipped) == len(foreign_clients.CLIENTS)
