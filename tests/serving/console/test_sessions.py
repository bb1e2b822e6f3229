"""Sessions expire, and end when their identity's token is withdrawn."""

from pathlib import Path

import pytest

from serving.console.responses import HttpError, Request
from serving.console.sessions import COOKIE, LIFETIME_S, Sessions
from tests.support.identities import IdentitiesWriter


def with_cookie(key: str) -> Request:
    return Request("GET", "/", {}, {"cookie": f"{COOKIE}={key}"})


@pytest.fixture
def writer(tmp_path: Path) -> IdentitiesWriter:
    writer = IdentitiesWriter(tmp_path / "identities.toml")
    writer.add("ranker", 'calls = ["read"]')
    return writer


def test_a_session_expires(writer: IdentitiesWriter) -> None:
    now = [1000.0]
    sessions = Sessions(writer.path, lambda: now[0])
    key, session, identity = sessions.log_in(writer.tokens["ranker"])
    assert identity.name == "ranker"
    assert sessions.find(with_cookie(key)) is session
    assert sessions.authorization(with_cookie(key)) == f"Bearer {writer.tokens['ranker']}"
    now[0] += LIFETIME_S
    assert sessions.find(with_cookie(key)) is None
    assert sessions.authorization(with_cookie(key)) == ""


def test_a_withdrawn_token_ends_its_sessions(writer: IdentitiesWriter) -> None:
    sessions = Sessions(writer.path)
    key, _, _ = sessions.log_in(writer.tokens["ranker"])
    writer.remove_all()
    assert sessions.identity(with_cookie(key)) is None
    with pytest.raises(HttpError, match="not valid"):
        sessions.log_in(writer.tokens["ranker"])


def test_the_requests_own_header_wins_over_its_cookie(writer: IdentitiesWriter) -> None:
    sessions = Sessions(writer.path)
    key, _, _ = sessions.log_in(writer.tokens["ranker"])
    request = Request("GET", "/", {}, {"cookie": f"{COOKIE}={key}", "authorization": "Bearer other"})
    assert sessions.authorization(request) == "Bearer other"
    assert sessions.identity(request) is None
