"""Candidates given as a list of dicts instead of columns."""

from collections.abc import Mapping, Sequence
from typing import Any

from ghostless.contract.errors import InvalidRequestError


def columns_of(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Convert n rows to columns of n values. Raises InvalidRequestError if the rows don't have the same keys."""
    if not rows:
        raise InvalidRequestError("candidates is an empty list; expected at least one dict of feature: value")
    for index, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise InvalidRequestError(
                f"candidate {index} is a {type(row).__name__}; expected a dict of feature: value like the others"
            )
        if row.keys() != rows[0].keys():
            raise InvalidRequestError(f"candidate {index} {_difference(row, rows[0])}; expected the same features")
    return {name: [row[name] for row in rows] for name in rows[0]}


def _difference(row: Mapping[str, Any], first: Mapping[str, Any]) -> str:
    """How the keys of a row differ from those of the first one, as text."""
    lacking = ", ".join(repr(name) for name in first if name not in row)
    added = ", ".join(repr(name) for name in row if name not in first)
    parts = []
    if lacking:
        parts.append(f"lacks {lacking}, which candidate 0 has")
    if added:
        parts.append(f"has {added}, which candidate 0 lacks")
    return " and ".join(parts)
