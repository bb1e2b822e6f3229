"""Shared by the tests of benches that export."""

from tests.export.conftest import few_rows

__all__ = ["few_rows"]
