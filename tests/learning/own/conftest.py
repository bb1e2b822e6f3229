"""What the tests of the way from a ranker to a served model share with those of export."""

from tests.export.conftest import few_rows

__all__ = ["few_rows"]
