"""Which models an engine has, and which version of each serves: one immutable value, made anew at each change.

Readers take the current one without a lock, so a request keeps the version that it resolved to.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from serving.engines.interface import ModelStatus, ModelVersion, VersionState, VersionStatus
from serving.errors import NotFoundError, UnavailableError

VersionT = TypeVar("VersionT", bound=ModelVersion)


@dataclass(frozen=True)
class ServedModel(Generic[VersionT]):
    """One model; `failed` says why. `wanted`: the version that should be in service, 0 where nobody says."""

    in_service: VersionT | None = None
    ready: Mapping[int, VersionT] = field(default_factory=dict)
    loading: frozenset[int] = frozenset()
    failed: Mapping[int, str] = field(default_factory=dict)
    wanted: int = 0

    def versions(self) -> tuple[VersionStatus, ...]:
        """Ascending."""
        serving = self.in_service.version if self.in_service else 0
        states = {v: VersionStatus(v, VersionState.LOADING, False) for v in self.loading}
        states |= {v: VersionStatus(v, VersionState.FAILED, False, why) for v, why in self.failed.items()}
        states |= {v: VersionStatus(v, VersionState.READY, v == serving) for v in self.ready}
        return tuple(states[v] for v in sorted(states))


@dataclass(frozen=True)
class ModelSnapshot(Generic[VersionT]):
    """`named_default` is what --default-model says; without it the only model is the default one."""

    named_default: str = ""
    models: Mapping[str, ServedModel[VersionT]] = field(default_factory=dict)

    def resolve(self, name: str, version: int) -> VersionT:
        """The version that a request means: empty name the default model, 0 the version in service."""
        name = name or self.default_model()
        if not name:
            raise NotFoundError(
                f"the request names no model and the server has no default model; available: {_list(self.models)}"
            )
        served = self.models.get(name)
        if served is None:
            raise NotFoundError(f"no model {name!r}; available: {_list(self.models)}")
        if version == 0:
            if served.in_service is None:
                raise UnavailableError(f"model {name!r} has no version ready")
            return served.in_service
        if version not in served.ready:
            raise NotFoundError(f"model {name!r} has no version {version} loaded; available: {_list(served.ready)}")
        return served.ready[version]

    def default_model(self) -> str:
        """Its name; empty if a request must name one."""
        if self.named_default:
            return self.named_default
        return next(iter(self.models)) if len(self.models) == 1 else ""

    def statuses(self) -> Sequence[ModelStatus]:
        return [
            ModelStatus(name, served.versions(), served.in_service, served.wanted)
            for name, served in sorted(self.models.items())
        ]

    def is_ready(self) -> bool:
        """Whether every model has a version in service, the default one among them."""
        default_is_there = not self.named_default or self.named_default in self.models
        return bool(self.models) and default_is_there and all(served.in_service for served in self.models.values())

    def served(self, name: str) -> ServedModel[VersionT]:
        return self.models.get(name) or ServedModel()

    def with_model(self, name: str, served: ServedModel[VersionT]) -> "ModelSnapshot[VersionT]":
        return replace(self, models={**self.models, name: served})

    def without(self, name: str) -> "ModelSnapshot[VersionT]":
        return replace(self, models={other: served for other, served in self.models.items() if other != name})


def _list(values: Mapping[str, object] | Mapping[int, object]) -> str:
    return ", ".join(str(value) for value in sorted(values)) or "none"
