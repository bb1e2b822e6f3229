"""Shared by the tests that export through the whole way."""

import pytest

from export import verification


@pytest.fixture
def few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer rows and draws than an export verifies with; the bounds are the same."""
    for name, value in (("RANDOM_ROWS", 500), ("DRAWS", 500)):
        monkeypatch.setattr(verification, name, value)
