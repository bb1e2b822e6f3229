"""`ghostless certs`, and a server and a client with what it made."""

import json
import stat
from pathlib import Path

from tests.support.command_line import Ghostless
from tests.support.onnx_models import write_version
from tests.support.processes import served

REQUEST = '{"context": {"user_id": 7, "hour": 12.0}, "candidates": {"item_id": [1], "duration": [8.0]}}'


def test_what_it_makes_serves_and_predicts(ghostless: Ghostless, tmp_path: Path) -> None:
    certs = tmp_path / "certs"
    status, out, _ = ghostless("certs", "create", certs, "--client", "ranker")
    assert status == 0
    assert out.split() == [
        str(certs / name) for name in ("ca.pem", "server.pem", "server-key.pem", "ranker.pem", "ranker-key.pem")
    ]
    for name in ("ca-key.pem", "server-key.pem", "ranker-key.pem"):
        assert stat.S_IMODE((certs / name).stat().st_mode) == 0o600
    repository = tmp_path / "models"
    repository.mkdir()
    write_version(repository, 1)
    flags = [
        "--tls-cert",
        certs / "server.pem",
        "--tls-key",
        certs / "server-key.pem",
        "--tls-client-ca",
        certs / "ca.pem",
    ]
    with served(repository, *map(str, flags), "--workers", "2") as server:
        assert "--ca CA.pem --cert CLIENT.pem --key CLIENT-key.pem" in server.output
        assert "metrics: https://" in server.output
        ask = ("predict", "--address", f"localhost:{server.port}", "--format", "json", "--request", REQUEST)
        credentials = ("--ca", certs / "ca.pem", "--cert", certs / "ranker.pem", "--key", certs / "ranker-key.pem")
        status, out, _ = ghostless(*ask, *credentials)
        assert (status, json.loads(out)["rows"]) == (0, 1)
        status, _, problem = ghostless(*ask, "--ca", certs / "ca.pem", "--timeout", "1")
        assert status == 1
        assert problem.count("\n") == 1
        assert server.stop() == 0


def test_a_second_time_renews_under_the_same_authority(ghostless: Ghostless, tmp_path: Path) -> None:
    assert ghostless("certs", "create", tmp_path)[0] == 0
    authority, server = (tmp_path / "ca.pem").read_bytes(), (tmp_path / "server.pem").read_bytes()
    assert (
        ghostless("certs", "create", tmp_path, "--host", "a.example.org", "--host", "10.1.2.3", "--days", "7")[0] == 0
    )
    assert (tmp_path / "ca.pem").read_bytes() == authority
    assert (tmp_path / "server.pem").read_bytes() != server
    status, out, _ = ghostless("certs", "show", "--json", tmp_path / "server.pem")
    (shown,) = json.loads(out)
    assert status == 0
    assert shown["names"] == ["DNS:a.example.org", "IP:10.1.2.3"]
    assert 6.9 < shown["days_left"] <= 7
    _, text, _ = ghostless("certs", "show", tmp_path / "server.pem")
    assert "DNS:a.example.org, IP:10.1.2.3; expires " in text


def test_what_is_wrong_is_one_line(ghostless: Ghostless, tmp_path: Path) -> None:
    for arguments, complaint in (
        (("certs", "revoke", "ranker", "--folder", tmp_path), "holds no authority"),
        (("certs", "create", tmp_path, "--client", "../up"), "'../up'"),
        (("certs", "revoke", "nobody", "--folder", tmp_path), "cannot read"),
        (("certs", "show", tmp_path / "ca-key.pem"), "cannot read the certificates"),
    ):
        status, _, problem = ghostless(*arguments)
        assert status == 1
        assert complaint in problem
        assert problem.count("\n") == 1
