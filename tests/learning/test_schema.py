"""A wrong schema file is one plain sentence that names the file, the place and what is expected."""

from pathlib import Path
from typing import Any

import pytest

from learning.errors import DataError
from learning.schema import Schema

TARGET = {"name": "y"}
FEATURE = {"name": "zone", "kind": "id"}


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"features": [FEATURE], "target": {**TARGET, "lower": 0}}, "target .*unknown key 'lower'.*mean 'low'"),
        ({"features": [{**FEATURE, "embeding": 8}], "target": TARGET}, "feature 1 .'zone'.*'embeding'.*'embedding'"),
        ({"features": [FEATURE], "target": TARGET, "extra": 1}, "unknown key 'extra'"),
        ({"features": [FEATURE]}, "no target"),
        ({"target": TARGET}, "no features"),
        ({"features": [{"name": "zone"}], "target": TARGET}, "feature 1 .'zone'. has no kind"),
        ({"features": [{}], "target": TARGET}, "has no name and no kind"),
        ({"features": FEATURE, "target": TARGET}, r"features is a table.*\[\[features\]\]"),
        ({"features": ["zone"], "target": TARGET}, "feature 1 is the string 'zone'"),
        ({"features": [FEATURE], "target": "y"}, "target is the string 'y'"),
        ({"features": [FEATURE], "target": {"name": "y", "low": "0"}}, "low is the string '0', expected a number"),
        ({"features": [FEATURE], "target": {"name": "y", "low": True}}, "low is true, expected a number"),
        ({"features": [{**FEATURE, "embedding": 8.5}], "target": TARGET}, "embedding is 8.5, expected a whole number"),
        ({"features": [{**FEATURE, "name": 3}], "target": TARGET}, "name is 3, expected a string"),
        ({"features": [FEATURE], "target": {"name": "y", "low": 3, "high": 1}}, "must be below"),
        ([FEATURE], "got a list"),
    ],
)
def test_a_wrong_schema_is_one_sentence(values: Any, said: str) -> None:
    with pytest.raises(DataError, match=said) as raised:
        Schema.from_dict(values, "rides.toml")
    assert "__init__" not in str(raised.value)


def test_a_range_may_be_left_out(tmp_path: Path) -> None:
    file = tmp_path / "rides.toml"
    file.write_text('[target]\nname = "y"\nlow = 0\n[[features]]\nname = "zone"\nkind = "id"\n')
    target = Schema.read(file).target
    assert not target.is_bounded
    assert target.low == 0
