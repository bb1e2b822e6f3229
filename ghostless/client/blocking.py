"""The blocking client."""

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar, Unpack

import grpc
import numpy.typing as npt

from ghostless.client.calls import Call, get_model_call, list_models_call, predict_call, record_outcomes_call
from ghostless.client.channel import Keepalive, Tls, address_list, channel_options, check_token_is_private, target
from ghostless.client.channel_pool import ChannelPool
from ghostless.client.errors import MalformedAnswerError, call_error
from ghostless.client.models import Model, Models
from ghostless.client.outcomes import OutcomeReport, RequestIds
from ghostless.client.prediction import Prediction
from ghostless.client.request import PredictArguments
from ghostless.client.retry import RetryPolicy
from ghostless.client.token import BearerToken

Answer = TypeVar("Answer")


class Client:
    """Calls one or more Ghostless servers. Safe to share between threads; one per process is enough.

    `addresses`: host:port, or several (a sequence, or separated by commas), which are used in turn; one that is down is
    skipped until it is back. `timeout_s` limits a call including its retries; each call can override it. `metadata` is
    sent with every call. Without `tls`, calls are plain text. `token`: a bearer token, or the path of a file with one,
    which is read again when it changes; without TLS it is sent only to this machine.

    `connections`: number of connections to each address. With None, the client asks the server for the number of its
    workers during the first call, and opens one connection per worker, because a connection is served by one worker.
    """

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

        def open_channel() -> grpc.Channel:
            if tls is None:
                return grpc.insecure_channel(where, options)
            return grpc.secure_channel(where, tls.credentials(), options)

        self._channels = ChannelPool(open_channel, connections)
        self._timeout_s = timeout_s
        self._token = BearerToken(token) if token is not None else None
        self._fixed_metadata = tuple(metadata)

    def predict(self, *, timeout_s: float | None = None, **arguments: Unpack[PredictArguments]) -> Prediction:
        """The predictive distributions of the candidates; see PredictArguments."""
        return self._run(predict_call(arguments), timeout_s)

    def list_models(self, *, timeout_s: float | None = None) -> Models:
        """All models of the server with their versions."""
        return self._run(list_models_call(), timeout_s)

    def get_model(self, model: str = "", version: int = 0, *, timeout_s: float | None = None) -> Model:
        """The full description of one model: features, levels, edges, provenance."""
        return self._run(get_model_call(model, version), timeout_s)

    def record_outcomes(
        self, request_ids: RequestIds, rows: npt.ArrayLike, actuals: npt.ArrayLike, *, timeout_s: float | None = None
    ) -> OutcomeReport:
        """Report the outcomes `actuals` [n], in the target's unit, of candidates `rows` [n] of the requests
        `request_ids`. It is safe to report an outcome twice."""
        return self._run(record_outcomes_call(request_ids, rows, actuals), timeout_s)

    def close(self) -> None:
        """Close the connections; calls in flight end with an error."""
        for channel in self._channels.close():
            channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _run(self, call: Call[Answer], timeout_s: float | None) -> Answer:
        channel = self._channels.take()
        if self._channels.first_to_ask():
            self._ask_for_workers(channel)
        method: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(call.method)
        timeout_s = self._timeout_s if timeout_s is None else timeout_s
        try:
            answer = method(call.request, timeout=timeout_s, metadata=self._metadata())
        except grpc.RpcError as error:
            raise call_error(error) from error
        return call.parse(answer)

    def _metadata(self) -> tuple[tuple[str, str], ...]:
        return self._fixed_metadata if self._token is None else self._fixed_metadata + self._token.metadata()

    def _ask_for_workers(self, channel: grpc.Channel) -> None:
        """Ask in the background, once a server can be reached; if there is no response, the client keeps one
        connection."""
        question = list_models_call()
        method: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(question.method)
        asked = method.future(question.request, metadata=self._metadata(), wait_for_ready=True)

        def on_answer(answered: "grpc.Future[bytes]") -> None:
            try:
                models = question.parse(answered.result())
            except (grpc.RpcError, grpc.FutureCancelledError, MalformedAnswerError):
                return
            self._channels.grow(models.workers)

        asked.add_done_callback(on_answer)
