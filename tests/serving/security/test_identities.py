"""The identities file: what it says, and what it may not say."""

import math
from datetime import UTC, datetime
from pathlib import Path

import pytest

from ghostless.contract.errors import ConfigError
from serving.security.identities import IdentitiesFile, parse_identities, read_identities
from serving.security.tokens import new_token

TOKEN = '[[a.tokens]]\nid = "00000001"\nsha256 = "' + "0" * 64 + '"\n'


def test_everything_that_it_can_say() -> None:
    token, key_id, digest = new_token()
    found = parse_identities(
        f"""
        [ranker]
        calls = ["predict", "read"]
        models = ["demo", "ranker-*"]
        rows_per_s = 1000
        concurrent_rows = 64
        certificates = ["URI:spiffe://example.org/ranker", "DNS:ranker"]
        [[ranker.tokens]]
        id = "{key_id}"
        sha256 = "{digest}"
        expires = 2030-01-01T00:00:00Z
        [[ranker.tokens]]
        id = "00000002"
        sha256 = "{"1" * 64}"
        expires = 2030-01-01
        [reporter]
        calls = ["outcomes"]
        """
    )
    ranker, reporter = found.by_name["ranker"], found.by_name["reporter"]
    assert ranker.calls == frozenset(("predict", "read"))
    assert (ranker.rows_per_s, ranker.concurrent_rows) == (1000, 64)
    assert ranker.may_use("demo")
    assert ranker.may_use("ranker-2")
    assert not any(ranker.may_use(model) for model in ("demo2", "ranker", ""))
    assert (reporter.rows_per_s, reporter.may_use("anything")) == (math.inf, True)
    assert found.by_certificate == {"URI:spiffe://example.org/ranker": ranker, "DNS:ranker": ranker}
    stored = found.tokens.find(token)
    assert stored is not None
    assert (stored.owner, stored.expires) == (ranker, datetime(2030, 1, 1, tzinfo=UTC).timestamp())


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[a]\n", "calls: Field required"),
        ('[a]\ncalls = ["fly"]\n', "calls.0"),
        ('[a]\ncalls = []\nmodel = ["x"]\n', "model: Extra inputs"),
        ("[a]\ncalls = []\nrows_per_s = 0\n", "rows_per_s"),
        ('[a]\ncalls = []\ncertificates = ["ranker"]\n', "'ranker' is not URI"),
        ('[a]\ncalls = []\ncertificates = ["DNS:x"]\n[b]\ncalls = []\ncertificates = ["DNS:x"]\n', "'a' and 'b'"),
        ('["a b"]\ncalls = []\n', "'a b'"),
        ("[a]\ncalls = []\n" + TOKEN + TOKEN, "used twice"),
        ("[a]\ncalls = []\n" + TOKEN.replace("00000001", "1"), "tokens.0.id"),
        ("[a]\ncalls = []\n" + TOKEN.replace("0" * 64, "secret"), "tokens.0.sha256"),
        ("a = 1\n", "identity 'a'"),
        ("[a\n", "line 1"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "identities.toml"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(ConfigError, match=complaint):
        read_identities(path)


def test_a_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "identities.toml"
    path.write_text("")
    path.chmod(0o644)
    with pytest.raises(ConfigError, match="mode 0644"):
        IdentitiesFile(path)


def test_a_changed_file_is_read_and_a_broken_one_is_not_used(tmp_path: Path) -> None:
    path = tmp_path / "identities.toml"
    path.write_text("[a]\ncalls = []\n")
    path.chmod(0o600)
    file = IdentitiesFile(path)
    assert file.refresh() is None
    path.write_text("[a]\ncalls = []\n[b]\ncalls = []\n")
    assert file.refresh() is True
    assert set(file.current.by_name) == {"a", "b"}
    path.write_text("[broken\n")
    assert file.refresh() is False
    assert file.refresh() is None
    path.unlink()
    assert file.refresh() is False
    assert set(file.current.by_name) == {"a", "b"}
