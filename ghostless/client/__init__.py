"""The Python client: numpy in, numpy out.

    with Client("localhost:8500") as client:
        prediction = client.predict(
            context={"user_id": 7}, candidates={"video_id": np.array([11, 42])}, scoring=Ucb(1.0), top_k=10
        )

`Client` blocks, `AsyncClient` is for asyncio; they share all code except the calls themselves.
"""

from ghostless.client.aio import AsyncClient
from ghostless.client.blocking import Client
from ghostless.client.channel import Keepalive, Tls
from ghostless.client.errors import (
    BusyError,
    CallError,
    DeadlineError,
    DeniedError,
    MalformedAnswerError,
    RejectedError,
    UnreachableError,
)
from ghostless.client.models import Model, Models, Version
from ghostless.client.outcomes import OutcomeReport
from ghostless.client.prediction import Prediction
from ghostless.client.request import PredictArguments
from ghostless.client.retry import RetryPolicy
from ghostless.client.scoring import Acquisition, Mean, Quantile, RiskAverse, Scoring, Thompson, Ucb

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
