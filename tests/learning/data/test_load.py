"""What names a source, and how many of its rows are loaded."""

from pathlib import Path

import pytest

from ghostless.contract.errors import ConfigError
from learning.data.load import load


class TestGenerated:
    def test_rows(self) -> None:
        assert load("synthetic:300").rows == 300
        assert load("synthetic:300", rows=100).rows == 100
        assert load("synthetic", rows=200).rows == 200
        assert load("toy", rows=50).rows == 50
        assert load("synthetic:300").fingerprint() == load("synthetic:300").fingerprint()

    @pytest.mark.parametrize("spec", ["synthetic:many", "synthetic:0", "synthetic:-5", "kuairand", "uber:"])
    def test_what_makes_no_sense(self, spec: str) -> None:
        with pytest.raises(ConfigError, match=spec):
            load(spec)

    def test_an_own_schema_takes_no_other(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match="has a built-in schema"):
            load("toy", schema=tmp_path / "schema.toml")

    def test_rows_must_be_some(self) -> None:
        with pytest.raises(ConfigError, match="rows is 0"):
            load("toy", rows=0)
