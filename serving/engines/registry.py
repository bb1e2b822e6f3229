"""Which versions are loaded and which one serves: hot reload by polling the repository.

A version serves only after it loaded, passed its checks and warmed up; until then, and if it never does, the one
before it serves on. Readers take one immutable snapshot, so a request keeps the version that it resolved to.
"""

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

from ghostless.contract import repository
from ghostless.contract.errors import InvalidModelError, RepositoryError
from ghostless.contract.repository import ModelEntry
from serving.engines.interface import ModelStatus, ModelVersion, VersionState, VersionStatus
from serving.errors import NotFoundError, UnavailableError

_log = logging.getLogger(__name__)

LoadedT = TypeVar("LoadedT", bound=ModelVersion)
# (model file, model name, version) -> the model, ready to serve; InvalidModelError if it can't.
LoadModel = Callable[[Path, str, int], LoadedT]
_Signature = tuple[int, int, int]


@dataclass(frozen=True)
class _Failure:
    message: str
    signature: _Signature


@dataclass(frozen=True)
class _RegisteredModel(Generic[LoadedT]):
    """One model in a snapshot."""

    in_service: LoadedT | None = None
    loaded: Mapping[int, LoadedT] = field(default_factory=dict)
    failed: Mapping[int, _Failure] = field(default_factory=dict)
    loading: int = 0

    def statuses(self) -> tuple[VersionStatus, ...]:
        serving = self.in_service.version if self.in_service else 0
        states = {v: VersionStatus(v, VersionState.READY, v == serving) for v in self.loaded}
        states |= {v: VersionStatus(v, VersionState.FAILED, False, f.message) for v, f in self.failed.items()}
        if self.loading and self.loading not in states:
            states[self.loading] = VersionStatus(self.loading, VersionState.LOADING, False)
        return tuple(states[v] for v in sorted(states))


class ModelRegistry(Generic[LoadedT]):
    def __init__(
        self,
        root: Path,
        load: LoadModel[LoadedT],
        *,
        poll_s: float = 1.0,
        keep_versions: int = 2,
        default_model: str = "",
    ) -> None:
        self._root = root
        self._load = load
        self._poll_s = poll_s
        self._keep_versions = keep_versions
        self._default_model = default_model
        self._snapshot: Mapping[str, _RegisteredModel[LoadedT]] = {}
        self._refreshing = threading.Lock()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Load what is in service, then watch the repository, loading the other versions to keep in the background."""
        self._refresh(only_in_service=True)
        self._thread = threading.Thread(target=self._watch, name="registry", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()

    def refresh(self) -> None:
        """Bring what is loaded in line with the repository, now."""
        self._refresh(only_in_service=False)

    def resolve(self, name: str, version: int) -> LoadedT:
        """The version that a request means: empty name the default model, 0 the version in service."""
        snapshot = self._snapshot
        name = name or self.default_model()
        if not name:
            raise NotFoundError(f"the request names no model and there is no default; there is: {_list(snapshot)}")
        served = snapshot.get(name)
        if served is None:
            raise NotFoundError(f"no model {name!r}; there is: {_list(snapshot)}")
        if version == 0:
            if served.in_service is None:
                raise UnavailableError(f"model {name!r} has no version that is ready")
            return served.in_service
        if version not in served.loaded:
            raise NotFoundError(f"model {name!r} has no version {version} loaded; there is: {_list(served.loaded)}")
        return served.loaded[version]

    def default_model(self) -> str:
        if self._default_model:
            return self._default_model
        names = list(self._snapshot)
        return names[0] if len(names) == 1 else ""

    def models(self) -> Sequence[ModelStatus]:
        return [
            ModelStatus(name, served.statuses(), served.in_service) for name, served in sorted(self._snapshot.items())
        ]

    def is_ready(self) -> bool:
        snapshot = self._snapshot
        wanted_is_there = not self._default_model or self._default_model in snapshot
        return bool(snapshot) and wanted_is_there and all(s.in_service for s in snapshot.values())

    def _watch(self) -> None:
        while True:
            try:
                self.refresh()
            except RepositoryError as error:
                _log.error("%s; what is loaded serves on", error)
            except Exception:
                _log.exception("looking at the repository failed; what is loaded serves on")
            if self._stopped.wait(self._poll_s):
                return

    def _refresh(self, only_in_service: bool) -> None:
        with self._refreshing:
            entries = repository.scan(self._root)
            for name in self._snapshot.keys() - entries.keys():
                _log.info("%s is gone from the repository", name)
                self._snapshot = {n: s for n, s in self._snapshot.items() if n != name}
            for name, entry in entries.items():
                self._refresh_model(name, entry, only_in_service)

    def _refresh_model(self, name: str, entry: ModelEntry, only_in_service: bool) -> None:
        for version in self._candidates(name, entry):
            if self._ensure_loaded(name, entry, version):
                self._put_in_service(name, version)
                break
        if only_in_service:
            return
        for version in self._versions_to_load(name, entry):
            self._ensure_loaded(name, entry, version)
        self._drop_surplus(name, entry)

    def _candidates(self, name: str, entry: ModelEntry) -> list[int]:
        """What may serve, best first: the version in service; then, so as to serve at all, what serves now or older."""
        present = self._served(name).in_service
        earlier = entry.pointer.previous if entry.pointer else ()
        order = [entry.in_service, *([present.version] if present else []), *earlier, *reversed(entry.versions)]
        on_disk = set(entry.versions) | set(self._served(name).loaded)
        return [version for version in dict.fromkeys(order) if version in on_disk]

    def _versions_to_load(self, name: str, entry: ModelEntry) -> list[int]:
        serving = self._served(name).in_service
        order = [*(entry.pointer.previous if entry.pointer else ()), *reversed(entry.versions)]
        others = [v for v in dict.fromkeys(order) if v in entry.versions and (not serving or v != serving.version)]
        return others[: self._keep_versions - 1]

    def _ensure_loaded(self, name: str, entry: ModelEntry, version: int) -> bool:
        served = self._served(name)
        if version in served.loaded:
            return True
        file = entry.model_file(version)
        signature = _signature(file)
        known = served.failed.get(version)
        if known is not None and known.signature == signature:
            return False
        self._update(name, loading=version)
        try:
            model = self._load(file, name, version)
        except InvalidModelError as error:
            _log.error("%s version %d is not served: %s", name, version, error)
            failed = {**served.failed, version: _Failure(str(error), signature)}
            self._update(name, failed=failed, loading=0)
            return False
        failed = {v: f for v, f in served.failed.items() if v != version}
        self._update(name, loaded={**served.loaded, version: model}, failed=failed, loading=0)
        return True

    def _put_in_service(self, name: str, version: int) -> None:
        served = self._served(name)
        if served.in_service is None or served.in_service.version != version:
            _log.info("%s version %d is in service", name, version)
            self._update(name, in_service=served.loaded[version])

    def _drop_surplus(self, name: str, entry: ModelEntry) -> None:
        served = self._served(name)
        keep = {*self._versions_to_load(name, entry), *([served.in_service.version] if served.in_service else [])}
        on_disk = set(entry.versions)
        self._update(
            name,
            loaded={v: m for v, m in served.loaded.items() if v in keep},
            failed={v: f for v, f in served.failed.items() if v in on_disk},
        )

    def _served(self, name: str) -> _RegisteredModel[LoadedT]:
        return self._snapshot.get(name, _RegisteredModel())

    def _update(self, name: str, **changes: object) -> None:
        values = {**self._served(name).__dict__, **changes}
        self._snapshot = {**self._snapshot, name: _RegisteredModel(**values)}


def _signature(file: Path) -> _Signature:
    """Changes when the file is replaced, so that a repaired version is tried again."""
    try:
        stat = file.stat()
    except OSError:
        return (0, 0, 0)
    return (stat.st_ino, stat.st_size, stat.st_mtime_ns)


def _list(values: Mapping[str, object] | Mapping[int, object]) -> str:
    return ", ".join(str(value) for value in sorted(values)) or "none"
