"""The token that a client sends, and where it does not."""

import os
import time
from pathlib import Path

import pytest

from ghostless.client import Client, Tls
from ghostless.client import token as tokens
from ghostless.client.token import BearerToken
from ghostless.contract.errors import ConfigError


def test_a_file_is_read_again_when_it_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "_LOOK_EVERY_S", 0.0)
    path = tmp_path / "token"
    path.write_text("first\n")
    path.chmod(0o600)
    token = BearerToken(path)
    assert token.metadata() == (("authorization", "Bearer first"),)
    path.write_text("second-longer\n")
    assert token.metadata() == (("authorization", "Bearer second-longer"),)
    path.unlink()
    assert token.metadata() == (("authorization", "Bearer second-longer"),)


def test_a_file_is_looked_at_no_more_than_once_a_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "token"
    path.write_text("first\n")
    path.chmod(0o600)
    token = BearerToken(path)
    path.write_text("second-longer\n")
    assert token.metadata() == (("authorization", "Bearer first"),)
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 2.0)
    assert token.metadata() == (("authorization", "Bearer second-longer"),)


def test_a_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("first")
    os.chmod(path, 0o644)
    with pytest.raises(ConfigError, match="mode 0644"):
        BearerToken(path)
    with pytest.raises(ConfigError, match="No such file"):
        BearerToken(tmp_path / "none")


@pytest.mark.parametrize("token", ["", " \n", "two words", "line\nbreak", "schlüssel"])
def test_what_is_no_token_is_refused(token: str) -> None:
    with pytest.raises(ConfigError, match="token"):
        BearerToken(token)


@pytest.mark.parametrize("address", ["ranker.example.org:8500", "10.0.0.1:8500", "localhost:1,10.0.0.1:2"])
def test_no_token_leaves_the_machine_as_plain_text(address: str) -> None:
    with pytest.raises(ConfigError, match="plain text"):
        Client(address, token="secret")
    if "," not in address:
        Client(address, token="secret", tls=Tls()).close()


@pytest.mark.parametrize("address", ["localhost:8500", "127.0.0.1:8500", "[::1]:8500", "unix:/tmp/socket"])
def test_on_this_machine_it_may(address: str) -> None:
    Client(address, token="secret").close()
