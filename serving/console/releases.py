"""Versions on disk, and promoting one or rolling back: for identities with the call `admin`."""

import json
import logging
import time
from pathlib import Path
from typing import Any

from ghostless.contract import repository
from ghostless.contract.errors import InvalidModelError, RepositoryError
from serving.console.responses import HttpError, Request, Response, as_json
from serving.console.sessions import Sessions
from serving.console.settings import ConsoleSettings
from serving.engines.trial import TrialBounds, Trials, memory_bound_bytes
from serving.security.audit import AuditLog

_log = logging.getLogger(__name__)

_REPORT = "report.json"


class Releases:
    def __init__(self, settings: ConsoleSettings, sessions: Sessions) -> None:
        self._root = Path(settings.repository)
        self._engine = settings.engine
        self._sessions = sessions
        self._audit = AuditLog(Path(settings.audit_log) if settings.audit_log else None)
        self._trials = Trials(
            Path(settings.directory),
            TrialBounds(memory_bound_bytes(settings.max_model_mb)),
            (settings.max_batch_rows,),
            settings.providers,
        )

    def describe(self, model: str, version: int) -> dict[str, Any]:
        """Facts about a model from disk: since when its version is wanted, where a rollback leads, and its report."""
        try:
            entry = repository.find(self._root, model)
            since = _since(entry)
        except (RepositoryError, OSError):
            return {}
        return {
            "since": since,
            "wanted": entry.in_service,
            "roll_back_to": next(iter(repository.earlier_versions(entry)), 0),
            "on_disk": list(entry.versions),
            "report": _report(entry.path / str(version) / _REPORT),
        }

    def promote(self, request: Request, authorization: str) -> Response:
        version = request.json_object().get("version")
        if isinstance(version, bool) or not isinstance(version, int):
            raise HttpError("INVALID_ARGUMENT", f"`version` is {str(version)[:40]!r}, expected a version number")
        return self._change(request, "promote", version)

    def roll_back(self, request: Request, authorization: str) -> Response:
        request.json_object()
        return self._change(request, "rollback", 0)

    def _change(self, request: Request, call: str, version: int) -> Response:
        name = request.parts[0]
        who = self._check_admin(request, call, name)
        if self._engine != "embedded":
            raise HttpError(
                "UNIMPLEMENTED",
                f"with Triton, run `ghostless models {call} {name}` with --triton, which switches it, too",
            )
        try:
            entry = repository.find(self._root, name)
            target = version or next(iter(repository.earlier_versions(entry)), 0)
            if target:
                repository.check_version(entry, target)
                self._trials.check(entry.model_file(target), name, target)
            pointer = repository.promote(self._root, name, target) if version else repository.rollback(self._root, name)
        except (RepositoryError, InvalidModelError) as error:
            self._audit.write(who, request.peer, call, "failed", model=name, version=version, why=str(error))
            raise HttpError("FAILED_PRECONDITION", f"nothing was changed: {error}") from error
        self._audit.write(who, request.peer, call, "done", model=name, version=pointer.version)
        return Response(as_json({"model": name, "version": pointer.version, "previous": list(pointer.previous)}))

    def _check_admin(self, request: Request, call: str, name: str) -> str:
        """The identity's name; HttpError if it may not change this model."""
        if not self._sessions.has_identities:
            raise HttpError(
                "PERMISSION_DENIED",
                "versions can be changed here only if the server has identities (--identities); "
                f"`ghostless models {call}` changes them on the machine",
            )
        identity = self._sessions.identity(request)
        if identity is None:
            raise HttpError("UNAUTHENTICATED", "log in with a token of an identity that has the call `admin`")
        if "admin" not in identity.calls or not identity.may_use(name):
            self._audit.write(identity.name, request.peer, call, "refused", model=name)
            raise HttpError(
                "PERMISSION_DENIED", f"identity {identity.name!r} may not make calls of the kind 'admin' on this model"
            )
        return identity.name


def _since(entry: repository.ModelEntry) -> str:
    """Time since which the version is wanted: that of the pointer or, if there is none, that of the version."""
    pointer = entry.path / repository.POINTER_FILE
    file = pointer if entry.pointer else entry.model_file(entry.in_service).parent
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(file.stat().st_mtime))


def _report(file: Path) -> Any:
    """The verification report of the export, if there is one."""
    try:
        return json.loads(file.read_text())
    except (OSError, ValueError):
        return None
