"""`ghostless identities`, and a server of two workers with what it made."""

import json
import stat
from pathlib import Path

from serving.security.identities import read_identities
from tests.support.command_line import Ghostless
from tests.support.onnx_models import write_version
from tests.support.processes import served

REQUEST = '{"context": {"user_id": 7, "hour": 12.0}, "candidates": {"item_id": [1], "duration": [8.0]}}'


def test_a_token_that_it_made_opens_a_server(ghostless: Ghostless, tmp_path: Path) -> None:
    file, token = tmp_path / "identities.toml", tmp_path / "ranker.token"
    status, out, _ = ghostless("identities", "token", file, "ranker", "--out", token, "--days", "1")
    assert status == 0
    secret = token.read_text().strip()
    assert secret not in out + file.read_text()
    assert [stat.S_IMODE(path.stat().st_mode) for path in (file, token)] == [0o600, 0o600]
    repository = tmp_path / "models"
    repository.mkdir()
    write_version(repository, 1)
    with served(repository, "--identities", str(file), "--workers", "2") as server:
        assert "--token-file TOKEN" in server.output
        ask = ("predict", "--address", server.address, "--format", "json", "--request", REQUEST)
        status, out, _ = ghostless(*ask, "--token-file", token)
        assert (status, json.loads(out)["rows"]) == (0, 1)
        status, _, problem = ghostless(*ask)
        assert status == 1
        assert "UNAUTHENTICATED: the call needs a bearer token" in problem
        assert server.stop() == 0


def test_a_second_token_is_added_beside_the_first(ghostless: Ghostless, tmp_path: Path) -> None:
    file = tmp_path / "identities.toml"
    for name, identity, more in (
        ("a", "ranker", ("--call", "predict", "--call", "outcomes")),
        ("b", "ranker", ()),
        ("c", "reader", ("--call", "read")),
    ):
        assert ghostless("identities", "token", file, identity, "--out", tmp_path / name, *more)[0] == 0
    found = read_identities(file)
    owners = [found.tokens.find((tmp_path / name).read_text().strip()) for name in "abc"]
    assert [owner.owner.name for owner in owners if owner] == ["ranker", "ranker", "reader"]
    assert found.by_name["ranker"].calls == {"predict", "outcomes"}
    status, out, _ = ghostless("identities", "check", file)
    assert (status, out) == (0, "ranker: outcomes, predict on *; no limits\nreader: read on *; no limits\n")
    status, out, _ = ghostless("identities", "check", file, "--json")
    assert [row["identity"] for row in json.loads(out)] == ["ranker", "reader"]


def test_what_is_wrong_is_one_line_and_changes_nothing(ghostless: Ghostless, tmp_path: Path) -> None:
    file, token = tmp_path / "identities.toml", tmp_path / "token"
    assert ghostless("identities", "token", file, "ranker", "--out", token)[0] == 0
    before = file.read_text()
    for arguments, complaint in (
        (("token", file, "ranker", "--out", token), "not overwritten"),
        (("token", file, "ranker", "--out", tmp_path / "new", "--call", "admin"), "already"),
        (("token", file, "a b", "--out", tmp_path / "new"), "identities file"),
        (("token", file, "other", "--out", tmp_path / "new", "--call", "fly"), "calls.0"),
        (("check", tmp_path / "none"), "cannot read the identities file"),
    ):
        status, _, problem = ghostless("identities", *arguments)
        assert status == 1
        assert complaint in problem
        assert problem.count("\n") == 1
    assert file.read_text() == before
    assert not (tmp_path / "new").exists()
