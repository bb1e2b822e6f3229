"""An ensemble as five calls: an engine that turns one job into a job for each member model and merges the results.

It wraps the embedded or the triton engine inside an unchanged server. A team with five exported models and no fused
graph would build the same.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ghostless.contract.arrays import Array, Tensors
from ghostless.contract.errors import InvalidModelError, RequestError
from loadtest.compare.mixture import member_outputs, merge_members, merged_outputs
from serving.engines.interface import (
    Engine,
    EngineStatistics,
    Job,
    ModelStatus,
    ModelVersion,
    VersionState,
    VersionStatus,
)
from serving.errors import NotFoundError, OverloadedError, UnavailableError


class FanOutEngine:
    """`groups` maps the name of each ensemble to the names of its members in `inner`."""

    def __init__(self, inner: Engine, groups: Mapping[str, Sequence[str]]) -> None:
        self._inner = inner
        self._groups = groups
        # The ensembles as last resolved. Requests in flight and cached plans are tied to the identity of the object.
        self._resolved: dict[str, Ensemble] = {}
        self._gatherings: dict[Job, _Gathering] = {}

    def resolve(self, model: str, version: int) -> ModelVersion:
        name = model or self.default_model()
        if name not in self._groups:
            raise NotFoundError(f"no ensemble {name!r}; available: {', '.join(self._groups)}")
        members = tuple(self._inner.resolve(member, version) for member in self._groups[name])
        known = self._resolved.get(name)
        if known is None or known.members != members:
            known = self._resolved[name] = join_members(name, members)
        return known

    def submit(self, job: Job) -> None:
        """Submit the members' jobs one by one. If one is rejected, the request is rejected and the others are
        cancelled."""
        gathering = self._gatherings[job] = _Gathering(job, self._end)
        try:
            for part in gathering.parts:
                self._inner.submit(part)
        except RequestError:
            if gathering.close():
                self._end(gathering)
                raise

    def cancel(self, job: Job) -> None:
        job.cancelled = True
        gathering = self._gatherings.get(job)
        if gathering is not None and gathering.close():
            self._end(gathering)

    def check_overload(self) -> OverloadedError | None:
        return self._inner.check_overload()

    def run_queued(self) -> float | None:
        return self._inner.run_queued()

    def models(self) -> Sequence[ModelStatus]:
        return [self._status(name) for name in self._groups]

    def default_model(self) -> str:
        return next(iter(self._groups)) if len(self._groups) == 1 else ""

    def is_ready(self) -> bool:
        return self._inner.is_ready() and all(status.serving is not None for status in self.models())

    def statistics(self) -> EngineStatistics:
        return self._inner.statistics()

    def _status(self, name: str) -> ModelStatus:
        try:
            serving = self.resolve(name, 0)
        except (NotFoundError, UnavailableError):
            return ModelStatus(name, (), None)
        return ModelStatus(name, (VersionStatus(serving.version, VersionState.READY, True),), serving)

    def _end(self, gathering: "_Gathering") -> None:
        """Cancel the members' jobs that have not run, because the request has ended."""
        self._gatherings.pop(gathering.job, None)
        for part in gathering.unfinished():
            self._inner.cancel(part)


@dataclass(frozen=True, eq=False)
class Ensemble(ModelVersion):
    members: tuple[ModelVersion, ...]
    knots: Array
    levels: Array


def join_members(name: str, members: tuple[ModelVersion, ...]) -> Ensemble:
    """The ensemble as one model. Raises InvalidModelError if the members' distributions can't be averaged."""
    first = members[0].metadata
    for member in members:
        described = member.metadata
        if (described.head, described.knots, described.edges, described.levels) != (
            first.head,
            first.knots,
            first.edges,
            first.levels,
        ):
            raise InvalidModelError(
                f"{member.name!r} and {members[0].name!r} differ in head, knots, edges or levels, so their "
                "distributions can't be averaged; train them on the same rows and export them with the same options"
            )
        if described.method != "deterministic":
            raise InvalidModelError(f"member {member.name!r} is {described.method}, expected a deterministic network")
    described = replace(first, name=name, method="ensemble")
    return Ensemble(
        name=name,
        version=members[0].version,
        metadata=described,
        outputs=merged_outputs(members[0].outputs),
        properties=described.dump(),
        members=members,
        knots=np.asarray(first.knots, np.float32),
        levels=np.asarray(first.levels, np.float32),
    )


class _Gathering:
    """The member jobs of one request and their results. It ends once: with the last result, the first failure, or when
    the request is cancelled."""

    def __init__(self, job: Job, on_end: Callable[["_Gathering"], None]) -> None:
        ensemble = job.model
        assert isinstance(ensemble, Ensemble), "jobs carry what `resolve` returned"
        self.job = job
        self._ensemble = ensemble
        wanted = member_outputs(job.wanted)
        self.parts = [_Part(self, index, member, wanted) for index, member in enumerate(ensemble.members)]
        self._answers: list[Tensors | None] = [None] * len(self.parts)
        self._missing = len(self.parts)
        self._open = True
        self._watched = False
        self._on_end = on_end
        self._lock = threading.Lock()

    def close(self) -> bool:
        """Mark it as ended; returns whether it was still open."""
        with self._lock:
            was_open, self._open = self._open, False
            return was_open

    def unfinished(self) -> list["_Part"]:
        return [part for part, answer in zip(self.parts, self._answers, strict=True) if answer is None]

    def answered(self, index: int, outputs: Tensors) -> None:
        with self._lock:
            self._answers[index] = outputs
            self._missing -= 1
            complete = self._missing == 0 and self._open
        if complete:
            answers = [answer for answer in self._answers if answer is not None]
            merged = merge_members(answers, self.job.wanted, self._ensemble.knots, self._ensemble.levels)
            if self.close():
                self._on_end(self)
                self.job.finish(merged)

    def failed(self, error: RequestError) -> None:
        if self.close():
            self._on_end(self)
            self.job.fail(error)

    def on_queued(self) -> None:
        with self._lock:
            first, self._watched = not self._watched, True
        if first:
            self.job.on_queued()


class _Part(Job):
    __slots__ = ("_gathering", "_index")

    def __init__(self, gathering: _Gathering, index: int, member: ModelVersion, wanted: tuple[str, ...]) -> None:
        job = gathering.job
        super().__init__(member, job.inputs, job.rows, wanted, job.deadline)
        self._gathering = gathering
        self._index = index

    def succeed(self, outputs: Tensors) -> None:
        self._gathering.answered(self._index, outputs)

    def fail(self, error: RequestError) -> None:
        self._gathering.failed(error)

    def on_queued(self) -> None:
        self._gathering.on_queued()
