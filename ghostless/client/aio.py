"""The asyncio client."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar, Unpack

import grpc.aio
import numpy.typing as npt

from ghostless.client.calls import Call, get_model_call, list_models_call, predict_call, record_outcomes_call
from ghostless.client.channel import Keepalive, Tls, address_list, channel_options, check_token_is_private, target
from ghostless.client.channel_pool import ChannelPool
from ghostless.client.errors import CallError, call_error
from ghostless.client.models import Model, Models
from ghostless.client.outcomes import OutcomeReport, RequestIds
from ghostless.client.prediction import Prediction
from ghostless.client.request import PredictArguments
from ghostless.client.retry import RetryPolicy
from ghostless.client.token import BearerToken

Answer = TypeVar("Answer")


class AsyncClient:
    """`Client` for asyncio, with the same parameters; create it inside the running event loop."""

    def __init__(
        self,
        addresses: str | Sequence[str] = "localhost:8500",
        *,
        timeout_s: float = 1.0,
        connections: int | None = None,
        retry: RetryPolicy = RetryPolicy(),  # noqa: B008 (a frozen value)
        keepalive: Keepalive = Keepalive(),  # noqa: B008
        tls: Tls | None = None,
        token: str | Path | None = None,
        metadata: Sequence[tuple[str, str]] = (),
    ) -> None:
        places = address_list(addresses)
        if token is not None:
            check_token_is_private(places, tls)
        where, options = target(places), channel_options(places, retry, keepalive, tls)

        def open_channel() -> grpc.aio.Channel:
            if tls is None:
                return grpc.aio.insecure_channel(where, options)
            return grpc.aio.secure_channel(where, tls.credentials(), options)

        self._channels = ChannelPool(open_channel, connections)
        self._question: asyncio.Task[None] | None = None
        self._timeout_s = timeout_s
        self._token = BearerToken(token) if token is not None else None
        self._fixed_metadata = tuple(metadata)

    async def predict(self, *, timeout_s: float | None = None, **arguments: Unpack[PredictArguments]) -> Prediction:
        """The predictive distributions of the candidates; see PredictArguments."""
        return await self._run(predict_call(arguments), timeout_s)

    async def list_models(self, *, timeout_s: float | None = None) -> Models:
        """All models of the server with their versions."""
        return await self._run(list_models_call(), timeout_s)

    async def get_model(self, model: str = "", version: int = 0, *, timeout_s: float | None = None) -> Model:
        """The full description of one model: features, levels, edges, provenance."""
        return await self._run(get_model_call(model, version), timeout_s)

    async def record_outcomes(
        self, request_ids: RequestIds, rows: npt.ArrayLike, actuals: npt.ArrayLike, *, timeout_s: float | None = None
    ) -> OutcomeReport:
        """Report the outcomes `actuals` [n], in the target's unit, of candidates `rows` [n] of the requests
        `request_ids`. It is safe to report an outcome twice."""
        return await self._run(record_outcomes_call(request_ids, rows, actuals), timeout_s)

    async def close(self) -> None:
        """Close the connections; calls in flight end with an error."""
        if self._question is not None:
            self._question.cancel()
        await asyncio.gather(*(channel.close() for channel in self._channels.close()))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _run(self, call: Call[Answer], timeout_s: float | None) -> Answer:
        channel = self._channels.take()
        if self._channels.first_to_ask():
            self._question = asyncio.create_task(self._ask_for_workers(channel))
        return await self._call(channel, call, self._timeout_s if timeout_s is None else timeout_s)

    async def _call(
        self, channel: grpc.aio.Channel, call: Call[Answer], timeout_s: float | None, wait_for_ready: bool = False
    ) -> Answer:
        method: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(call.method)
        try:
            answer = await method(
                call.request, timeout=timeout_s, metadata=self._metadata(), wait_for_ready=wait_for_ready
            )
        except grpc.aio.AioRpcError as error:
            raise call_error(error) from error
        return call.parse(answer)

    def _metadata(self) -> tuple[tuple[str, str], ...]:
        return self._fixed_metadata if self._token is None else self._fixed_metadata + self._token.metadata()

    async def _ask_for_workers(self, channel: grpc.aio.Channel) -> None:
        """Ask in the background, once a server can be reached; if there is no response, the client keeps one
        connection."""
        try:
            models = await self._call(channel, list_models_call(), timeout_s=None, wait_for_ready=True)
        except CallError:
            return
        self._channels.grow(models.workers)
