"""TLS towards Triton. A Ghostless server, which speaks the same protocol, stands in for it."""

from pathlib import Path

import pytest

from ghostless.contract.errors import ConfigError
from serving.engines.batcher import BatchLimits
from serving.engines.triton.channels import TritonTls, triton_tls
from serving.engines.triton.endpoint import Endpoint
from tests.support.certificates import Certificates, make_certificates
from tests.support.running import FakeEngine, serving
from tests.support.waiting import eventually


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return make_certificates(tmp_path)


def _tls(certificates: Certificates, server_name: str, with_certificate: bool = True) -> TritonTls:
    if not with_certificate:
        return TritonTls(certificates.ca, server_name=server_name)
    own = certificates.folder / "ranker.pem", certificates.folder / "ranker-key.pem"
    return TritonTls(certificates.ca, own[0], own[1], server_name)


@pytest.mark.parametrize(
    ("server_name", "with_certificate", "is_ready"),
    [("localhost", True, True), ("", True, True), ("triton.example.org", True, False), ("localhost", False, False)],
)
def test_an_endpoint_is_reached_with_the_right_name_and_certificate_only(
    certificates: Certificates, server_name: str, with_certificate: bool, is_ready: bool
) -> None:
    probes: list[None] = []
    with serving(FakeEngine(BatchLimits(1, 8, 100)), **certificates.mutual) as running:
        tls = _tls(certificates, server_name, with_certificate)
        endpoint = Endpoint(running.address, 0.05, lambda: probes.append(None), tls)
        endpoint.start()
        try:
            eventually(lambda: endpoint.ready or len(probes) >= 2, "an answer")
            assert endpoint.ready == is_ready
        finally:
            endpoint.stop()


def test_the_name_is_that_of_the_first_address_unless_given() -> None:
    assert triton_tls(["triton:8001", "other:8001"], None, None, None, "") is None
    ca = Path("ca.pem")
    assert triton_tls(["triton:8001", "other:8001"], ca, None, None, "") == TritonTls(ca, server_name="triton")
    assert triton_tls(["[::1]:8001"], ca, None, None, "") == TritonTls(ca, server_name="::1")
    assert triton_tls(["triton:8001"], ca, None, None, "gpu") == TritonTls(ca, server_name="gpu")


def test_files_that_cannot_be_read_are_named(certificates: Certificates) -> None:
    with pytest.raises(ConfigError, match=r"none\.pem"):
        TritonTls(certificates.folder / "none.pem").credentials()
    (certificates.folder / "ranker-key.pem").chmod(0o644)
    with pytest.raises(ConfigError, match="mode 0644"):
        _tls(certificates, "localhost").credentials()
