"""Everything that the console's process serves, put together."""

from serving.console.backend import Backend
from serving.console.oip_rest import OpenInference
from serving.console.openapi import openapi
from serving.console.pages import Pages
from serving.console.relay import ask_operations
from serving.console.responses import Request, Response, as_json
from serving.console.router import Router
from serving.console.sessions import open_sessions
from serving.console.settings import ConsoleSettings
from serving.console.v1 import Predictions

# Paths that the process that owns the port normally answers; they arrive here on connections that are already relayed.
_OPERATIONS = ("/metrics", "/-/healthy", "/-/ready", "/livez", "/readyz")


def application(settings: ConsoleSettings) -> Router:
    sessions = open_sessions(settings.identities)
    router = Router(sessions, settings.checks_host)
    backend = Backend(settings)
    _add_v1(router, Predictions(backend))
    _add_v2(router, OpenInference(backend))
    Pages(settings, sessions, backend).add_to(router)
    description = as_json(openapi())
    router.add("GET", "/openapi.json", lambda request, authorization: Response(description, is_cached=True))
    for path in _OPERATIONS:
        router.add("GET", path, lambda request, authorization: _operations(settings, request))
    return router


def _add_v1(router: Router, predictions: Predictions) -> None:
    router.add("POST", "/v1/predict", predictions.predict)
    router.add("GET", "/v1/models", predictions.list_models)
    router.add("GET", "/v1/models/{}", predictions.get_model)
    router.add("GET", "/v1/models/{}/versions/{}", predictions.get_model)
    router.add("POST", "/v1/outcomes", predictions.record_outcomes)


def _add_v2(router: Router, inference: OpenInference) -> None:
    router.add("GET", "/v2", inference.metadata)
    router.add("GET", "/v2/health/live", inference.live)
    router.add("GET", "/v2/health/ready", inference.ready)
    router.add("POST", "/v2/repository/index", inference.index)
    for model in ("/v2/models/{}", "/v2/models/{}/versions/{}"):
        router.add("GET", model, inference.model)
        router.add("GET", f"{model}/ready", inference.model_ready)
        router.add("GET", f"{model}/config", inference.config)
        router.add("GET", f"{model}/stats", inference.statistics)
        router.add("POST", f"{model}/infer", inference.infer)


def _operations(settings: ConsoleSettings, request: Request) -> Response:
    status, kind, body = ask_operations(settings.directory, request.path)
    return Response(body, kind, status)
