"""The schema of a table: features with kind and role, and the target with its range."""

import json
import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

from learning.errors import DataError

Kind = Literal["id", "category", "bucket", "number"]
Type = Literal["int64", "float32", "string"]
Role = Literal["context", "candidate"]
# Minimum number of different float32 values inside a target's range.
LEAST_STEPS = 1000


@dataclass(frozen=True)
class Feature:
    """One input column.

    kind: `id` is looked up in a vocabulary and embedded, with a trained out-of-vocabulary row. `category` is the same
    for a value that many rows share and that does not identify a user or item (a country, a device). No effect is
    fitted for it, so it is not part of the epistemic variance. `bucket` and `number` are numbers; both are divided into
    buckets at their training quantiles and embedded, standardised, and encoded piecewise linearly
    (learning.data.encoding), whatever their unit. They differ in the default width of the embedding: `bucket` is for a
    single important number, such as the paper's duration, `number` for one of many. role: `context` has one value per
    request (such as the user), `candidate` one per row.
    """

    name: str
    kind: Kind
    role: Role = "candidate"
    type: Type = "int64"
    # Width of the embedding; 0 means the default of the kind.
    embedding: int = 0
    buckets: int = 100

    def __post_init__(self) -> None:
        if not self.embedding:
            object.__setattr__(self, "embedding", 8 if self.kind == "number" else 32)
        for field, allowed in (("kind", get_args(Kind)), ("role", get_args(Role)), ("type", get_args(Type))):
            if getattr(self, field) not in allowed:
                raise DataError(
                    f"feature '{self.name}': {field} is '{getattr(self, field)}', expected one of {allowed}"
                )
        if self.embedding < 1 or self.buckets < 2:
            raise DataError(
                f"feature '{self.name}': embedding is {self.embedding} and buckets {self.buckets}, "
                "expected at least 1 and 2"
            )
        if not self.is_coded and self.type != "float32":
            raise DataError(f"feature '{self.name}': kind '{self.kind}' needs type float32, not '{self.type}'")
        if self.is_coded and self.type == "float32":
            raise DataError(f"feature '{self.name}': kind '{self.kind}' needs type int64 or string, not float32")

    @property
    def is_coded(self) -> bool:
        """Whether values are looked up in a vocabulary: kinds `id` and `category`."""
        return self.kind in ("id", "category")


@dataclass(frozen=True)
class Target:
    """The predicted column; values are clipped to [low, high].

    An end that a schema file omits is infinite until it is taken from the data (learning.data.target_range).
    """

    name: str
    unit: str = ""
    low: float = -math.inf
    high: float = math.inf

    def __post_init__(self) -> None:
        if not self.low < self.high:
            raise DataError(f"target '{self.name}': low {self.low} must be below high {self.high}")
        # Targets are float32: around 1.7e9, for example, neighbouring values differ by 128.
        step = max(abs(self.low), abs(self.high)) * 2.0**-23
        if self.is_bounded and step * LEAST_STEPS > self.high - self.low:
            raise DataError(
                f"target '{self.name}': the range {self.low:g} to {self.high:g} is too narrow for values of this size, "
                f"which float32 rounds to steps of {step:.2g}; subtract a constant from the target"
            )

    @property
    def is_bounded(self) -> bool:
        """Whether both ends of the range are known."""
        return math.isfinite(self.low) and math.isfinite(self.high)


@dataclass(frozen=True)
class Schema:
    features: tuple[Feature, ...]
    target: Target

    def __post_init__(self) -> None:
        names = [feature.name for feature in self.features] + [self.target.name]
        repeated = sorted({name for name in names if names.count(name) > 1})
        if repeated:
            raise DataError(f"schema names {', '.join(repeated)} more than once")
        if not self.features:
            raise DataError("schema has no features")

    @property
    def id_names(self) -> tuple[str, ...]:
        return tuple(feature.name for feature in self.features if feature.kind == "id")

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], source: str = "schema") -> "Schema":
        """Build a schema from the content of a schema file; `source` names it in errors."""
        if not isinstance(values, Mapping):
            raise DataError(f"{source}: expected [[features]] and [target] as in docs/data.md, got {_kind(values)}")
        _refuse_unknown(values, ("features", "target"), source, "the schema")
        for name in ("features", "target"):
            if name not in values:
                raise DataError(f"{source}: no {name}; expected [[features]] and [target] as in docs/data.md")
        listed, target = values["features"], values["target"]
        if not isinstance(listed, list | tuple):
            raise DataError(f"{source}: features is {_kind(listed)}, expected a list: write [[features]] for each")
        features = tuple(
            _build(Feature, entry, source, f"feature {place}", ("name", "kind"))
            for place, entry in enumerate(listed, 1)
        )
        return cls(features, _build(Target, target, source, "the target", ("name",)))

    @classmethod
    def read(cls, path: Path) -> "Schema":
        """Read a TOML or JSON file."""
        try:
            text = path.read_text()
            values = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
        except (OSError, ValueError) as error:
            raise DataError(f"{path}: not a readable schema: {error}") from error
        return cls.from_dict(values, str(path))


Part = TypeVar("Part", Feature, Target)
# Accepted Python types for each declared type, and their description; an integer is also a number.
_ACCEPTED: dict[Any, tuple[tuple[type, ...], str]] = {
    str: ((str,), "a string in quotes"),
    int: ((int,), "a whole number"),
    float: ((int, float), "a number"),
}


def _build(kind: type[Part], entry: Any, source: str, what: str, required: Sequence[str]) -> Part:
    """Build a feature or the target from its table in a schema file, with a clear error if it is invalid."""
    if not isinstance(entry, Mapping):
        raise DataError(f"{source}: {what} is {_kind(entry)}, expected a table of settings")
    if isinstance(entry.get("name"), str):
        what = f"{what} ('{entry['name']}')"
    _refuse_unknown(entry, [field.name for field in fields(kind)], source, what)
    missing = [name for name in required if name not in entry]
    if missing:
        raise DataError(f"{source}: {what} has no {' and no '.join(missing)}")
    for field in fields(kind):
        types, expected = _ACCEPTED.get(field.type, ((str,), "a string in quotes"))
        value = entry.get(field.name)
        if field.name in entry and (not isinstance(value, types) or isinstance(value, bool)):
            raise DataError(f"{source}: {what}: {field.name} is {_kind(value)}, expected {expected}")
    return kind(**entry)


def _refuse_unknown(entry: Mapping[str, Any], known: Sequence[str], source: str, what: str) -> None:
    for name in entry:
        if name not in known:
            near = get_close_matches(str(name), known, 1)
            hint = f"; did you mean '{near[0]}'?" if near else ""
            raise DataError(f"{source}: {what} has an unknown key '{name}', expected {', '.join(known)}{hint}")


def _kind(value: Any) -> str:
    """Description of a value for an error message."""
    if isinstance(value, str):
        return f"the string '{value}'"
    if isinstance(value, bool | int | float):
        return str(value).lower() if isinstance(value, bool) else str(value)
    return {list: "a list", dict: "a table", type(None): "empty"}.get(type(value), f"a {type(value).__name__}")
