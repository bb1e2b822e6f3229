"""Load over TLS: answers larger than a record and a read, and a server that is not trusted."""

from pathlib import Path

import pytest

from loadtest.errors import GeneratorError
from loadtest.generator.connection_pool import ConnectionPool
from loadtest.generator.plan import LoadPlan, RequestMix
from loadtest.generator.request_frames import PreparedFrames, header_blocks
from loadtest.generator.run import run_load
from serving.engines.batcher import BatchLimits
from tests.support.certificates import make_certificates
from tests.support.running import FakeEngine, serving


def test_every_answer_comes_whole(tmp_path: Path) -> None:
    certificates = make_certificates(tmp_path)
    with serving(FakeEngine(BatchLimits(1, 4096, 100_000)), **certificates.server) as running:
        plan = LoadPlan(
            running.address,
            "closed",
            concurrency=8,
            max_requests=200,
            duration_s=60.0,
            warm_up_s=0.0,
            connections=2,
            mix=RequestMix(candidates=(1, 4000), distinct=32),
            deadline_s=20.0,
            tls_ca=str(certificates.ca),
        )
        result = run_load(plan)
    assert result.sent >= 200
    assert result.ok == result.sent
    assert not result.check_failures


def test_a_server_of_another_authority_is_no_server(tmp_path: Path) -> None:
    certificates, others = make_certificates(tmp_path / "a"), make_certificates(tmp_path / "b")
    with serving(FakeEngine(BatchLimits(1, 8, 100)), **certificates.server) as running:
        frames = PreparedFrames(header_blocks(running.address, 1.0, {}, "https"), [b""])
        pool = ConnectionPool(running.address, frames, 1, str(others.ca))
        with pytest.raises(GeneratorError, match="certificate verify failed"):
            pool.wait_ready()
        pool.close()
