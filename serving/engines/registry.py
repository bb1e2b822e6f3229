"""Loaded versions and the one in service, with hot reload by polling the repository.

A version serves only after it has loaded, passed its checks and warmed up; until then, or if it fails, the previous
version stays in service.
"""

import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Generic

from ghostless.contract import repository
from ghostless.contract.errors import InvalidModelError, RepositoryError
from ghostless.contract.repository import ModelEntry
from serving.engines.snapshot import ModelSnapshot, VersionT

_log = logging.getLogger(__name__)

# (model file, model name, version) -> the model, ready to serve. Raises InvalidModelError.
LoadModel = Callable[[Path, str, int], VersionT]
_Signature = tuple[tuple[int, int, int], ...]


class ModelRegistry(Generic[VersionT]):
    def __init__(
        self,
        root: Path,
        load: LoadModel[VersionT],
        *,
        poll_s: float = 1.0,
        keep_versions: int = 2,
        default_model: str = "",
    ) -> None:
        self._root = root
        self._load = load
        self._poll_s = poll_s
        self._keep_versions = keep_versions
        self.snapshot: ModelSnapshot[VersionT] = ModelSnapshot(default_model)
        # Signatures of files that failed to load, by model and version; a file is tried again when it changes.
        self._failed_files: dict[tuple[str, int], _Signature] = {}
        self._refreshing = threading.Lock()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Load the versions in service, then poll the repository and load the other versions in the background."""
        self._refresh(only_in_service=True)
        self._thread = threading.Thread(target=self._watch, name="registry", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()

    def refresh(self) -> None:
        """Update the loaded versions from the repository now."""
        self._refresh(only_in_service=False)

    def _watch(self) -> None:
        while True:
            try:
                self.refresh()
            except RepositoryError as error:
                _log.error("%s; loaded versions stay in service", error)
            except Exception:
                _log.exception("reading the repository failed; loaded versions stay in service")
            if self._stopped.wait(self._poll_s):
                return

    def _refresh(self, only_in_service: bool) -> None:
        with self._refreshing:
            entries = repository.scan(self._root)
            for name in self.snapshot.models.keys() - entries.keys():
                _log.info("%s was removed from the repository", name)
                self.snapshot = self.snapshot.without(name)
            for name, entry in entries.items():
                self._refresh_model(name, entry, only_in_service)

    def _refresh_model(self, name: str, entry: ModelEntry, only_in_service: bool) -> None:
        if self.snapshot.served(name).wanted != entry.in_service:
            self._update(name, wanted=entry.in_service)
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
        """Versions that may serve, best first: the one in service, then, as fallbacks, the one serving now and older
        ones."""
        present = self.snapshot.served(name).in_service
        earlier = entry.pointer.previous if entry.pointer else ()
        order = [entry.in_service, *([present.version] if present else []), *earlier, *reversed(entry.versions)]
        on_disk = set(entry.versions) | set(self.snapshot.served(name).ready)
        return [version for version in dict.fromkeys(order) if version in on_disk]

    def _versions_to_load(self, name: str, entry: ModelEntry) -> list[int]:
        serving = self.snapshot.served(name).in_service
        order = [*(entry.pointer.previous if entry.pointer else ()), *reversed(entry.versions)]
        others = [v for v in dict.fromkeys(order) if v in entry.versions and (not serving or v != serving.version)]
        return others[: self._keep_versions - 1]

    def _ensure_loaded(self, name: str, entry: ModelEntry, version: int) -> bool:
        served = self.snapshot.served(name)
        if version in served.ready:
            return True
        file = entry.model_file(version)
        found = signature(file.parent)
        if version in served.failed and self._failed_files.get((name, version)) == found:
            return False
        self._update(name, loading=frozenset({version}))
        others = {v: why for v, why in served.failed.items() if v != version}
        try:
            model = self._load(file, name, version)
        except InvalidModelError as error:
            _log.error("%s version %d is not served: %s", name, version, error)
            self._failed_files[name, version] = found
            self._update(name, failed={**others, version: str(error)}, loading=frozenset())
            return False
        self._failed_files.pop((name, version), None)
        self._update(name, ready={**served.ready, version: model}, failed=others, loading=frozenset())
        return True

    def _put_in_service(self, name: str, version: int) -> None:
        served = self.snapshot.served(name)
        if served.in_service is None or served.in_service.version != version:
            _log.info("%s version %d is in service", name, version)
            self._update(name, in_service=served.ready[version])

    def _drop_surplus(self, name: str, entry: ModelEntry) -> None:
        served = self.snapshot.served(name)
        keep = {*self._versions_to_load(name, entry), *([served.in_service.version] if served.in_service else [])}
        on_disk = set(entry.versions)
        self._update(
            name,
            ready={v: m for v, m in served.ready.items() if v in keep},
            failed={v: f for v, f in served.failed.items() if v in on_disk},
        )

    def _update(self, name: str, **changes: Any) -> None:
        self.snapshot = self.snapshot.with_model(name, replace(self.snapshot.served(name), **changes))


def signature(directory: Path) -> _Signature:
    """A value that changes when a file of the version is replaced, so that a repaired version is tried again."""
    try:
        stats = [path.stat() for path in sorted(directory.iterdir())]
    except OSError:
        return ()
    return tuple((stat.st_ino, stat.st_size, stat.st_mtime_ns) for stat in stats)
