"""One Triton: its connection, its models, its health, and the calls in flight to it."""

import logging
import threading
from collections.abc import Callable, Mapping

import grpc
from tritonclient.grpc import service_pb2_grpc

from serving.engines.triton.breaker import CircuitBreaker
from serving.engines.triton.channels import TritonTls, open_channel
from serving.engines.triton.infer_calls import InferCall, InferChannel, OnEnd
from serving.engines.triton.state import RemoteModel, read_state

_log = logging.getLogger(__name__)

_PROBE_TIMEOUT_S = 1.0
# Interval at which an endpoint that is not ready is polled.
_RETRY_S = 0.25
_OPTIONS = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    # So that a Triton that comes back is found within a second.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    # Each endpoint has its own connection, even if two addresses belong to the same server.
    ("grpc.use_local_subchannel_pool", 1),
)


class Endpoint:
    def __init__(
        self, address: str, poll_s: float, on_change: Callable[[], None], tls: TritonTls | None = None
    ) -> None:
        self.address = address
        self.breaker = CircuitBreaker()
        # Calls in flight and their rows; counted by the balancer.
        self.calls = 0
        self.outstanding_rows = 0
        # Calls that failed here and were retried on another endpoint.
        self.retries = 0
        self.models: Mapping[str, RemoteModel] = {}
        self.ready = False
        self._poll_s = poll_s
        self._on_change = on_change
        self._channel = open_channel(address, tls, _OPTIONS)
        self._calls = InferChannel(open_channel(address, tls, _OPTIONS))
        self._stub = service_pb2_grpc.GRPCInferenceServiceStub(self._channel)
        self._wake = threading.Event()
        self._stopped = False
        self._thread = threading.Thread(target=self._watch, name=f"triton {address}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Close the connection; calls in flight are cancelled."""
        self._stopped = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()
        self._calls.close()
        self._channel.close()

    def has(self, name: str, version: int) -> bool:
        model = self.models.get(name)
        return self.ready and model is not None and version in model.ready

    def infer(self, message: bytes, deadline: float | None, on_end: OnEnd) -> InferCall:
        """ModelInfer; `on_end` is called when it ends."""
        return self._calls.start_call(message, deadline, on_end)

    def mark_lost(self) -> None:
        """A call could not reach it: treat it as not ready until a probe succeeds."""
        self.ready = False
        self._wake.set()

    def probe_soon(self) -> None:
        """Poll its state now instead of at the next interval."""
        self._wake.set()

    def _watch(self) -> None:
        while not self._stopped:
            self._wake.clear()
            self._probe()
            self._on_change()
            self._wake.wait(self._poll_s if self.ready else _RETRY_S)

    def _probe(self) -> None:
        was_ready = self.ready
        try:
            models = read_state(self._stub, _PROBE_TIMEOUT_S)
        except grpc.RpcError as error:
            self.ready = False
            if was_ready:
                _log.warning("cannot reach Triton %s: %s", self.address, error.details())
            return
        except Exception:
            self.ready = False
            _log.exception("Triton %s sent a response that cannot be parsed", self.address)
            return
        if models is not None:
            self.models = models
        self.ready = models is not None
        if self.ready and not was_ready:
            _log.info("Triton %s is ready", self.address)
