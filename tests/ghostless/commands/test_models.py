import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ghostless.commands.models import app
from ghostless.contract.errors import ConfigError, InvalidModelError, RepositoryError
from serving.engines.interface import VersionState
from tests.support.certificates import make_certificates
from tests.support.identities import IdentitiesWriter
from tests.support.onnx_models import Recipe, write_version
from tests.support.running import serving_repository
from tests.support.waiting import eventually


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for version in (1, 2, 3):
        write_version(tmp_path, version, Recipe(seed=version))
    return tmp_path


def _run(root: Path, *words: str) -> str:
    result = CliRunner().invoke(app, [*words, "--repository", str(root)], env={"COLUMNS": "300"})
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


def test_list_promote_and_roll_back(root: Path) -> None:
    assert json.loads(_run(root, "list", "--json")) == [
        {"name": "demo", "wanted": 3, "versions": [1, 2, 3], "previous": [2, 1]}
    ]
    assert json.loads(_run(root, "promote", "demo", "1", "--json")) == {"name": "demo", "version": 1, "previous": [3]}
    assert "version 3 is wanted" in _run(root, "rollback", "demo")
    assert "demo" in _run(root, "list")


def test_promote_refuses_a_version_that_can_not_be_served_and_changes_nothing(root: Path) -> None:
    file = root / "demo" / "2" / "model.onnx"
    file.write_bytes(file.read_bytes()[:1000])
    with pytest.raises(InvalidModelError, match=r"can't load it.*demo version 3 stays in service; --no-check"):
        _run(root, "promote", "demo", "2")
    with pytest.raises(InvalidModelError, match=r"demo version 3 stays in service"):
        _run(root, "rollback", "demo")
    assert json.loads(_run(root, "list", "--json"))[0]["wanted"] == 3
    _run(root, "promote", "demo", "2", "--no-check")
    assert json.loads(_run(root, "list", "--json"))[0]["wanted"] == 2


def test_lists_show_what_servers_serve_and_why_not_the_wanted(root: Path) -> None:
    (root / "demo" / "2" / "model.onnx").write_bytes(b"damaged")
    with serving_repository(root) as server:
        _run(root, "promote", "demo", "2", "--no-check")
        eventually(
            lambda: VersionState.FAILED in {v.state for v in server.engine.models()[0].versions}, "the server's attempt"
        )
        gone = "127.0.0.1:1"
        (listed,) = json.loads(_run(root, "list", "--json", "--address", f"{server.address},{gone}"))
        assert (listed["wanted"], listed["served"][server.address]["version"]) == (2, 3)
        assert "ONNX Runtime can't load it" in listed["served"][server.address]["why_not"]
        assert "UNAVAILABLE" in listed["served"][gone]["why_not"]
        assert f"{server.address}: 3" in _run(root, "list", "--address", server.address)
        with pytest.raises(RepositoryError, match=r"does not serve demo version 2: version 3 stays in service: .*ONNX"):
            _run(root, "promote", "demo", "2", "--no-check", "--address", server.address)
        assert "is in service" in _run(root, "promote", "demo", "1", "--address", server.address)
        (listed,) = json.loads(_run(root, "list", "--json", "--address", server.address))
        assert listed["served"] == {server.address: {"version": 1, "why_not": ""}}


def test_describe(root: Path) -> None:
    described = json.loads(_run(root, "describe", "demo", "--json"))
    assert described["version"] == 3
    assert described["in_service"] is True
    assert described["target"]["name"] == "watch_ratio"
    assert "mean" in described["outputs"]
    assert "feature user_id" in _run(root, "describe", "demo", "--version", "2")


def test_an_unknown_model_is_named(root: Path) -> None:
    with pytest.raises(RepositoryError, match="no model 'other'"):
        _run(root, "rollback", "other")


def test_servers_with_tls_and_identities_are_asked(root: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("security")
    certificates = make_certificates(folder)
    identities = IdentitiesWriter(folder / "identities.toml")
    token = folder / "token"
    token.write_text(identities.add("operator", 'calls = ["read"]'))
    token.chmod(0o600)
    with serving_repository(root, identities=identities.path, **certificates.server) as server:
        address = f"localhost:{server.port}"
        options = ["--address", address, "--ca", str(certificates.ca), "--token-file", str(token)]
        (listed,) = json.loads(_run(root, "list", "--json", *options))
        assert listed["served"] == {address: {"version": 3, "why_not": ""}}
        (refused,) = json.loads(_run(root, "list", "--json", *options[:4]))
        assert "UNAUTHENTICATED" in refused["served"][address]["why_not"]
        assert "is in service" in _run(root, "promote", "demo", "1", *options)
        assert "is in service" in _run(root, "rollback", "demo", *options)
    with pytest.raises(ConfigError, match="as plain text"):
        _run(root, "list", "--address", "example.org:8500", "--token-file", str(token))
