"""The Python client: numpy in, numpy out.

    with Client("localhost:8500") as client:
        prediction = client.predict(
            context={"user_id": 7}, candidates={"video_id": np.array([11, 42])}, scoring=Ucb(1.0), top_k=10
        )

`Client` blocks, `AsyncClient` awaits; both share every line but the call itself.
"""

from serving.client.aio import AsyncClient
from serving.client.blocking import Client
from serving.client.channel import Keepalive, Tls
from serving.client.errors import (
    BusyError,
    CallError,
    DeadlineError,
    DeniedError,
    MalformedAnswerError,
    RejectedError,
    UnreachableError,
)
from serving.client.models import Model, Models, Version
from serving.client.outcomes import OutcomeReport
from serving.client.prediction import Prediction
from serving.client.request import PredictArguments
from serving.client.retry import RetryPolicy
from serving.client.scoring import Acquisition, Mean, Quantile, RiskAverse, Scoring, Thompson, Ucb

__all__ = [
    "Acquisition",
    "AsyncClient",
    "BusyError",
    "CallError",
    "Client",
    "DeadlineError",
    "DeniedError",
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
]
