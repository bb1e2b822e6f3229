"""What a table's columns mean: features with kind and role, and the target with its range."""

import json
import tomllib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from learning.errors import DataError

Kind = Literal["id", "bucket", "number"]
Type = Literal["int64", "float32", "string"]
Role = Literal["context", "candidate"]


@dataclass(frozen=True)
class Feature:
    """One input column.

    kind: `id` is looked up in a vocabulary and embedded, with a trained out-of-vocabulary row. `bucket` and
    `number` are numbers; both are cut at their training quantiles and embedded, standardised, and encoded
    piecewise linearly (learning.data.encoding), whatever their unit. They differ in the embedding's default
    width: a `bucket` is a feature of the paper's weight (its duration), a `number` is one among many.
    role: `context` has one value per request (the user), `candidate` one per row.
    """

    name: str
    kind: Kind
    role: Role = "candidate"
    type: Type = "int64"
    # Width; 0 takes the kind's default.
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
        if self.kind != "id" and self.type != "float32":
            raise DataError(f"feature '{self.name}': kind '{self.kind}' needs type float32, not '{self.type}'")
        if self.kind == "id" and self.type == "float32":
            raise DataError(f"feature '{self.name}': an id is int64 or string, not float32")


@dataclass(frozen=True)
class Target:
    """The predicted column; values are clipped to [low, high]."""

    name: str
    unit: str
    low: float
    high: float

    def __post_init__(self) -> None:
        if not self.low < self.high:
            raise DataError(f"target '{self.name}': low {self.low} must be below high {self.high}")


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
    def from_dict(cls, values: dict[str, Any], source: str = "schema") -> "Schema":
        try:
            features = tuple(Feature(**feature) for feature in values["features"])
            return cls(features, Target(**values["target"]))
        except (KeyError, TypeError) as error:
            raise DataError(f"{source}: {error}; expected [[features]] and [target] as in docs/data.md") from error

    @classmethod
    def read(cls, path: Path) -> "Schema":
        """From a TOML or JSON file."""
        try:
            text = path.read_text()
            values = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
        except (OSError, ValueError) as error:
            raise DataError(f"{path}: not a readable schema: {error}") from error
        return cls.from_dict(values, str(path))
