"""The asyncio client."""

import asyncio
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Self, TypeVar, Unpack

import grpc.aio
import numpy.typing as npt

from ghostless.client.calls import Call, get_model_call, list_models_call, predict_call, record_outcomes_call
from ghostless.client.channel import Keepalive, Tls, address_list, channel_options, target
from ghostless.client.errors import call_error
from ghostless.client.models import Model, Models
from ghostless.client.outcomes import OutcomeReport, RequestIds
from ghostless.client.prediction import Prediction
from ghostless.client.request import PredictArguments
from ghostless.client.retry import Attempts, RetryPolicy

Answer = TypeVar("Answer")


class AsyncClient:
    """`Client` for asyncio, with the same parameters; make it where the event loop runs."""

    def __init__(
        self,
        addresses: str | Sequence[str] = "localhost:8500",
        *,
        timeout_s: float = 1.0,
        retry: RetryPolicy = RetryPolicy(),  # noqa: B008 (a frozen value)
        keepalive: Keepalive = Keepalive(),  # noqa: B008
        tls: Tls | None = None,
        metadata: Sequence[tuple[str, str]] = (),
    ) -> None:
        places = address_list(addresses)
        options = channel_options(places, keepalive, tls)
        if tls is None:
            self._channel = grpc.aio.insecure_channel(target(places), options)
        else:
            self._channel = grpc.aio.secure_channel(target(places), tls.credentials(), options)
        self._timeout_s = timeout_s
        self._retry = retry
        self._metadata = tuple(metadata)

    async def predict(self, *, timeout_s: float | None = None, **arguments: Unpack[PredictArguments]) -> Prediction:
        """The predictive distributions of the candidates; see PredictArguments."""
        return await self._run(predict_call(arguments), timeout_s)

    async def list_models(self, *, timeout_s: float | None = None) -> Models:
        """Every model of the server and its versions."""
        return await self._run(list_models_call(), timeout_s)

    async def get_model(self, model: str = "", version: int = 0, *, timeout_s: float | None = None) -> Model:
        """One model in full: features, levels, edges, provenance."""
        return await self._run(get_model_call(model, version), timeout_s)

    async def record_outcomes(
        self, request_ids: RequestIds, rows: npt.ArrayLike, actuals: npt.ArrayLike, *, timeout_s: float | None = None
    ) -> OutcomeReport:
        """Tell what became of candidates `rows` [n] of the requests that were predicted under `request_ids`, in the
        target's unit. Telling it twice does no harm."""
        return await self._run(record_outcomes_call(request_ids, rows, actuals), timeout_s)

    async def close(self) -> None:
        await self._channel.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _run(self, call: Call[Answer], timeout_s: float | None) -> Answer:
        method: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = self._channel.unary_unary(call.method)
        attempts = Attempts(self._retry, self._timeout_s if timeout_s is None else timeout_s, time.monotonic())
        while True:
            try:
                answer = await method(
                    call.request, timeout=attempts.remaining_s(time.monotonic()), metadata=self._metadata
                )
                return call.parse(answer)
            except grpc.aio.AioRpcError as error:
                delay_s = attempts.delay_after(call_error(error, attempts.made), time.monotonic())
            await asyncio.sleep(delay_s)
