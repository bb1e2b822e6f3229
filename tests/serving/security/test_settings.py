"""Plain text leaves the machine only where somebody asked for that."""

from pathlib import Path

import pytest

from ghostless.contract.errors import ConfigError
from serving.config import load_config

TLS = {"tls_cert": Path("server.pem"), "tls_key": Path("server-key.pem")}
CA = {"tls_client_ca": Path("ca.pem")}


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "::1", "[::1]", "localhost", "unix:/tmp/socket"])
def test_plain_text_is_the_default_on_this_machine(host: str) -> None:
    assert load_config({"host": host}).tls_paths is None
    assert load_config({}).host == "127.0.0.1"


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "ghostless.example.org", ""])
def test_plain_text_elsewhere_must_be_asked_for(host: str) -> None:
    with pytest.raises(ConfigError, match="--insecure"):
        load_config({"host": host, "metrics_port": 0})
    assert load_config({"host": host, "metrics_port": 0, "insecure": True}).insecure
    assert load_config({"host": host, **TLS}).metrics_tls_paths is not None


def test_the_operations_port_has_a_switch_of_its_own() -> None:
    with pytest.raises(ConfigError, match="--metrics-tls off"):
        load_config({"host": "0.0.0.0", "insecure": True})
    with pytest.raises(ConfigError, match="--metrics-tls off"):
        load_config({"metrics_host": "0.0.0.0"})
    assert load_config({"host": "0.0.0.0", "insecure": True, "metrics_tls": "off"}).metrics_tls_paths is None
    assert load_config({"host": "0.0.0.0", "insecure": True, "metrics_host": "127.0.0.1"}).metrics_tls_paths is None
    assert load_config({"host": "0.0.0.0", "metrics_tls": "off", **TLS}).metrics_tls_paths is None
    assert load_config({"host": "unix:/tmp/socket"}).exposition_host == "127.0.0.1"


@pytest.mark.parametrize(("metrics_tls", "requires_client"), [("auto", True), ("server", False), ("mutual", True)])
def test_the_operations_port_may_go_without_client_certificates(metrics_tls: str, requires_client: bool) -> None:
    paths = load_config({"metrics_tls": metrics_tls, **TLS, **CA}).metrics_tls_paths
    assert paths is not None
    assert paths.requires_client == requires_client


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        ({"tls_cert": Path("a")}, "--tls-cert and --tls-key"),
        ({"tls_key": Path("a")}, "--tls-cert and --tls-key"),
        (CA, "--tls-client-ca needs"),
        ({"tls_crl": Path("a"), **TLS}, "--tls-crl needs"),
        ({"metrics_tls": "server"}, "--metrics-tls server needs"),
        ({"metrics_tls": "mutual", **TLS}, "--metrics-tls mutual needs"),
        ({"triton_cert": Path("a"), "triton_ca": Path("b")}, "--triton-cert and --triton-key"),
        ({"triton_cert": Path("a"), "triton_key": Path("b")}, "--triton-cert needs --triton-ca"),
    ],
)
def test_settings_that_contradict_each_other_are_one_line(flags: dict[str, object], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint) as refused:
        load_config(flags)
    assert str(refused.value).startswith("--")
