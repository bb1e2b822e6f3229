"""What all Tritons together serve: models, their versions, and the one in service.

A version can be asked if any Triton has it ready. Which one is in service:
1. what `ghostless models promote --triton` set, once all Tritons that it was sent to agree: so a roll-out, which visits
   one after the other, switches a facade's answers once, and at a moment when every Triton has both versions;
2. else what the model repository says, where the facade has it;
3. else the highest version that every Triton has.
"""

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from ghostless.contract.errors import InvalidModelError
from ghostless.contract.metadata import ModelMetadata
from serving.engines.interface import ModelVersion
from serving.engines.snapshot import ModelSnapshot, ServedModel
from serving.engines.triton.state import RemoteModel
from serving.engines.triton.wire import Wire

_log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class TritonVersion(ModelVersion):
    max_rows: int

    @cached_property
    def wire(self) -> Wire:
        return Wire(self)


# (model, version) -> its `ghostless.*` metadata where Triton does not know them, or None.
ReadProperties = Callable[[str, int], Mapping[str, str] | None]
# model -> the version that the repository has in service, 0 if there is none.
ReadPointer = Callable[[str], int]


class Catalogue:
    def __init__(self, default_model: str, read_properties: ReadProperties, read_pointer: ReadPointer) -> None:
        self.snapshot: ModelSnapshot[TritonVersion] = ModelSnapshot(default_model)
        self._read_properties = read_properties
        self._read_pointer = read_pointer
        self._lock = threading.Lock()

    def update(self, states: Sequence[Mapping[str, RemoteModel]]) -> None:
        """`states` of the Tritons that are ready now. With none the last known models stay: they are to come back."""
        if not states:
            return
        with self._lock:
            names = sorted({name for state in states for name in state})
            models = {name: self._merge(name, [state[name] for state in states if name in state]) for name in names}
            self.snapshot = replace(self.snapshot, models=models)

    def _merge(self, name: str, remotes: Sequence[RemoteModel]) -> ServedModel[TritonVersion]:
        before = self.snapshot.served(name)
        failed = {version: why for remote in remotes for version, why in remote.failed.items()}
        versions: dict[int, TritonVersion] = {}
        for version in sorted({version for remote in remotes for version in remote.ready}):
            try:
                versions[version] = self._version(name, version, remotes, before)
            except InvalidModelError as error:
                failed[version] = str(error)
                if version not in before.failed:
                    _log.error("%s version %d is not served: %s", name, version, error)
        pointer = self._read_pointer(name)
        number = self._in_service(remotes, before, set(versions), pointer)
        if number and (before.in_service is None or before.in_service.version != number):
            _log.info("%s version %d is in service", name, number)
        loading = frozenset(version for remote in remotes for version in remote.loading)
        return ServedModel(
            versions.get(number),
            versions,
            loading,
            {v: w for v, w in failed.items() if v not in versions},
            pointer,
        )

    def _version(
        self, name: str, version: int, remotes: Sequence[RemoteModel], before: ServedModel[TritonVersion]
    ) -> TritonVersion:
        holders = [remote for remote in remotes if version in remote.ready]
        max_rows = min(remote.max_rows for remote in holders)
        outputs = holders[0].outputs
        reported = next((remote.properties[version] for remote in holders if version in remote.properties), None)
        known = before.ready.get(version)
        unchanged = known is not None and (known.max_rows, known.outputs) == (max_rows, outputs)
        if known is not None and unchanged and (reported is None or reported == known.properties):
            # Requests in flight and plans made for it hold on to this very object.
            return known
        properties = reported if reported is not None else self._read_properties(name, version)
        if properties is None:
            raise InvalidModelError(
                f"Triton's config of {name!r} has no ghostless.* parameters for version {version}, and the facade has "
                "no repository to read them from; write the config with `ghostless export`"
            )
        if max_rows < 1:
            raise InvalidModelError(f"Triton's config of {name!r} has max_batch_size 0, so rows can't be batched")
        described = ModelMetadata.parse(properties, f"Triton's config of {name!r}, version {version}")
        return TritonVersion(name, version, described, outputs, properties, max_rows)

    def _in_service(
        self, remotes: Sequence[RemoteModel], before: ServedModel[TritonVersion], there: set[int], pointer: int
    ) -> int:
        votes = {remote.in_service for remote in remotes if remote.in_service} & there
        if len(votes) > 1 and before.in_service and before.in_service.version in there:
            return before.in_service.version
        everywhere = set.intersection(*(set(remote.ready) for remote in remotes)) & there
        order = [*sorted(votes)[:1], *([pointer] if pointer in everywhere else [])]
        order += [*sorted(everywhere, reverse=True), *sorted(there, reverse=True)]
        return order[0] if order else 0
