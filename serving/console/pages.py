"""The console's files and its own calls (/console/api): session, models, live figures, truth, alarms."""

import json
import socket
from collections.abc import Mapping
from importlib.metadata import version as package_version
from importlib.resources import files
from typing import Any

from ghostless.v1 import prediction_pb2 as pb
from serving.console.alarms import alarms
from serving.console.backend import Backend
from serving.console.figures import History
from serving.console.live import live, summarise, truth
from serving.console.proto_json import message_json
from serving.console.relay import ask_operations
from serving.console.releases import Releases
from serving.console.responses import HttpError, Request, Response, as_json
from serving.console.router import Router
from serving.console.sessions import Sessions, cookie_header
from serving.console.settings import ConsoleSettings
from serving.console.v1 import version_number

_KINDS = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
    "json": "application/json",
}
# Served by name from this table, so no path can lead out of the folder.
_ASSETS = (
    *("index.html", "console.css", "icon.svg", "app.js", "dom.js", "charts.js", "densities.js", "snippets.js"),
    *("page_models.js", "page_try.js", "page_live.js", "page_truth.js", "page_alarms.js", "page_api.js"),
)


def assets() -> dict[str, Response]:
    folder = files("serving.console") / "assets"
    return {
        name: Response((folder / name).read_bytes(), _KINDS[name.rpartition(".")[2]], is_cached=True)
        for name in _ASSETS
    }


class Pages:
    def __init__(self, settings: ConsoleSettings, sessions: Sessions, backend: Backend) -> None:
        self._settings = settings
        self._sessions = sessions
        self._backend = backend
        self._assets = assets()
        self._releases = Releases(settings, sessions)
        self._history = History(lambda: ask_operations(settings.directory, "values")[2], summarise)
        self._runbook: dict[str, str] = json.loads((files("serving.console") / "assets" / "runbook.json").read_text())

    def add_to(self, router: Router) -> None:
        router.add("GET", "/", lambda request, authorization: self._assets["index.html"])
        router.add("GET", "/console/{}", self._asset)
        api = "/console/api"
        router.add("GET", f"{api}/session", self._session)
        router.add("POST", f"{api}/login", self._log_in)
        router.add("POST", f"{api}/logout", self._log_out)
        router.add("GET", f"{api}/models", self._models)
        router.add("GET", f"{api}/models/{{}}/versions/{{}}", self._model)
        router.add("POST", f"{api}/models/{{}}/promote", self._releases.promote)
        router.add("POST", f"{api}/models/{{}}/rollback", self._releases.roll_back)
        router.add(
            "GET", f"{api}/live", lambda request, _: Response(as_json(live(self._history.view(), _labels(request))))
        )
        router.add(
            "GET", f"{api}/truth", lambda request, _: Response(as_json(truth(self._history.view(), _labels(request))))
        )
        router.add(
            "GET", f"{api}/alarms", lambda request, _: Response(as_json(alarms(self._history.view(), self._runbook)))
        )

    def _asset(self, request: Request, authorization: str) -> Response:
        found = self._assets.get(request.parts[0])
        if found is None:
            raise HttpError("NOT_FOUND", f"the console has no file {request.parts[0][:100]!r}")
        return found

    def _session(self, request: Request, authorization: str) -> Response:
        return Response(as_json(self._state(request)))

    def _state(self, request: Request) -> dict[str, Any]:
        session, identity = self._sessions.find(request), self._sessions.identity(request)
        return {
            "has_identities": self._sessions.has_identities,
            "identity": identity.name if identity else "",
            "calls": sorted(identity.calls) if identity else [],
            "csrf": session.csrf if session and identity else "",
            "expires": session.expires if session and identity else 0,
            "version": package_version("ghostless"),
            "engine": self._settings.engine,
            "server": socket.gethostname(),
            "address": ask_operations(self._settings.directory, "address")[2].decode(),
            "uses_tls": self._settings.requires_tls,
        }

    def _log_in(self, request: Request, authorization: str) -> Response:
        token = request.json_object().get("token")
        if not isinstance(token, str) or not token.strip():
            raise HttpError("INVALID_ARGUMENT", "`token` must be a text; `ghostless identities token` makes tokens")
        key, session, identity = self._sessions.log_in(token.strip())
        content = {"identity": identity.name, "csrf": session.csrf, "expires": session.expires}
        return Response(as_json(content), headers=(cookie_header(key, request.is_tls),))

    def _log_out(self, request: Request, authorization: str) -> Response:
        self._sessions.log_out(request)
        return Response(b"{}", headers=(cookie_header("", request.is_tls),))

    def _models(self, request: Request, authorization: str) -> Response:
        """All models with wanted and served versions from the metrics, which need no permission, and everything else if
        the caller may read it."""
        now = self._history.now()
        wanted, served = now.by("model_wanted_version", "model"), now.by("model_served_version", "model")
        models: dict[str, dict[str, Any]] = {
            name: {"name": name, "wanted": int(version), "served": int(served.get(name, 0)), "versions": []}
            for name, version in wanted.items()
            if version
        }
        denied = ""
        try:
            found = self._backend.list_models(request, authorization)
        except HttpError as error:
            if error.code not in ("UNAUTHENTICATED", "PERMISSION_DENIED"):
                raise
            denied = str(error)
        else:
            default = found.default_model
            models = {
                each.name: {
                    "wanted": each.version,
                    "served": each.version,
                    **models.get(each.name, {}),
                    **_listed(each, default),
                }
                for each in found.models
            }
        return Response(as_json({"models": list(models.values()), "denied": denied}))

    def _model(self, request: Request, authorization: str) -> Response:
        name, version = request.parts[0], version_number(request.parts[1])
        found = self._backend.get_model(request, name, version, authorization)
        disk = as_json(self._releases.describe(found.name, found.version)).decode()
        return Response(f'{{"model":{message_json(found).decode()},"disk":{disk}}}'.encode())


def _listed(model: pb.Model, default: str) -> dict[str, Any]:
    return {
        "name": model.name,
        "is_default": model.name == default,
        "head": model.head,
        "method": model.method,
        "target": {"name": model.target.name, "unit": model.target.unit},
        "versions": [
            {
                "version": each.version,
                "state": pb.Model.State.Name(each.state),
                "in_service": each.in_service,
                "message": each.message,
            }
            for each in model.versions
        ],
    }


def _labels(request: Request) -> Mapping[str, str]:
    return {name: request.query[name] for name in ("model", "version") if request.query.get(name)}
