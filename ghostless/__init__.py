"""Ghostless: predictive distributions for ranking, with their uncertainty.

    from ghostless import Client, Ucb

    with Client("localhost:8500") as client:
        answer = client.predict(context={"user_id": 7}, candidates={"video_id": [11, 42]}, scoring=Ucb(kappa=1.0))

`ghostless.client` is the client, `ghostless.contract` defines what model files, servers and clients share,
`ghostless.heads` (needs torch) has heads for any PyTorch backbone, and `ghostless.v1` is the generated gRPC code.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ghostless.client import (
        Acquisition,
        AsyncClient,
        BusyError,
        CallError,
        Client,
        DeadlineError,
        DeniedError,
        Keepalive,
        MalformedAnswerError,
        Mean,
        Model,
        Models,
        OutcomeReport,
        PredictArguments,
        Prediction,
        Quantile,
        RejectedError,
        RetryPolicy,
        RiskAverse,
        Scoring,
        Thompson,
        Tls,
        Ucb,
        UnreachableError,
        Version,
    )
    from ghostless.contract.errors import GhostlessError

__version__ = "0.2.0"

__all__ = [
    "Acquisition",
    "AsyncClient",
    "BusyError",
    "CallError",
    "Client",
    "DeadlineError",
    "DeniedError",
    "GhostlessError",
    "Keepalive",
    "MalformedAnswerError",
    "Mean",
    "Model",
    "Models",
    "OutcomeReport",
    "PredictArguments",
    "Prediction",
    "Quantile",
    "RejectedError",
    "RetryPolicy",
    "RiskAverse",
    "Scoring",
    "Thompson",
    "Tls",
    "Ucb",
    "UnreachableError",
    "Version",
    "__version__",
]


def __getattr__(name: str) -> Any:
    """Import names on first use: the server's supervisor imports this package and must not load gRPC."""
    if name not in __all__:
        raise AttributeError(f"module 'ghostless' has no attribute {name!r}")
    module = "ghostless.contract.errors" if name == "GhostlessError" else "ghostless.client"
    value = getattr(importlib.import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
