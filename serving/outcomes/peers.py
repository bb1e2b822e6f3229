"""Joins outcomes across all workers of a server.

A connection may reach any worker, so an outcome may arrive at one that did not make the prediction. Each worker
therefore also listens on a Unix socket in the server's runtime directory, and every outcome is offered to the workers
in a fixed order, the same for all. The first worker that has, or had, the prediction takes it, so it is joined once,
even if a request was sent twice and two workers have it.
"""

import logging
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import numpy as np

from ghostless.v1 import prediction_pb2 as pb
from serving.outcomes.joining import Actuals, OutcomeJoiner, Results
from serving.outcomes.store import OutcomeResult, Places

_log = logging.getLogger(__name__)

_SERVICE = "ghostless.internal.Outcomes"
_JOIN = "Join"
_PREFIX, _SUFFIX = "outcomes-", ".sock"
_PEER_TIMEOUT_S = 5.0


class LocalOutcomes:
    """For a server with one process. `flush` passes the latest predictions to the joiner."""

    def __init__(self, joiner: OutcomeJoiner, flush: Callable[[], None]) -> None:
        self._joiner = joiner
        self._flush = flush

    def join(self, ids: Sequence[str], rows: Places, actuals: Actuals) -> Results:
        self._flush()
        return self._joiner.join(ids, rows, actuals)

    def close(self) -> None:
        """Nothing to close."""


class SharedOutcomes:
    """For one of several workers. `directory` belongs to them, and only their user can access it."""

    def __init__(self, joiner: OutcomeJoiner, directory: Path, flush: Callable[[], None]) -> None:
        self._local = LocalOutcomes(joiner, flush)
        self._directory = directory
        self._own = directory / f"{_PREFIX}{os.getpid()}{_SUFFIX}"
        self._channels: dict[Path, grpc.Channel] = {}
        self._server = grpc.server(
            ThreadPoolExecutor(1, thread_name_prefix="outcomes"),
            options=[("grpc.max_receive_message_length", -1)],
        )
        handler: grpc.RpcMethodHandler[bytes, bytes] = grpc.unary_unary_rpc_method_handler(self._serve_join)
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(_SERVICE, {_JOIN: handler}),))
        self._server.add_insecure_port(f"unix:{self._own}")
        self._server.start()

    def join(self, ids: Sequence[str], rows: Places, actuals: Actuals) -> Results:
        """Like OutcomeJoiner.join, over all workers."""
        results = np.full(len(ids), OutcomeResult.UNKNOWN, np.uint8)
        for socket in sorted(self._directory.glob(f"{_PREFIX}*{_SUFFIX}")):
            places = np.flatnonzero(results == OutcomeResult.UNKNOWN)
            if not len(places):
                break
            asked = ([ids[place] for place in places.tolist()], rows[places], actuals[places])
            results[places] = self._local.join(*asked) if socket == self._own else self._ask_peer(socket, *asked)
        return results

    def close(self) -> None:
        self._server.stop(_PEER_TIMEOUT_S).wait()
        for channel in self._channels.values():
            channel.close()
        self._own.unlink(missing_ok=True)

    def _serve_join(self, message: bytes, context: grpc.ServicerContext) -> bytes:
        return self._local.join(*read_outcomes(pb.RecordOutcomesRequest.FromString(message))).tobytes()

    def _ask_peer(self, socket: Path, ids: list[str], rows: Places, actuals: Actuals) -> Results:
        if socket not in self._channels:
            self._channels[socket] = grpc.insecure_channel(f"unix:{socket}")
        ask: grpc.UnaryUnaryMultiCallable[bytes, bytes] = self._channels[socket].unary_unary(f"/{_SERVICE}/{_JOIN}")
        request = pb.RecordOutcomesRequest(request_ids=ids, rows=rows.tolist(), actuals=actuals.tolist())
        try:
            return np.frombuffer(ask(request.SerializeToString(), timeout=_PEER_TIMEOUT_S), np.uint8)
        except grpc.RpcError as error:
            if _is_alive(socket):
                _log.warning("cannot reach a worker, so its outcomes are counted as unknown: %s", error)
            else:
                # It died, and its predictions are lost; its replacement has a new socket.
                self._channels.pop(socket).close()
                socket.unlink(missing_ok=True)
            return np.full(len(ids), OutcomeResult.UNKNOWN, np.uint8)


def read_outcomes(request: pb.RecordOutcomesRequest) -> tuple[list[str], Places, Actuals]:
    """The request's columns."""
    return list(request.request_ids), np.array(request.rows[:], np.int64), np.array(request.actuals[:], np.float32)


def _is_alive(socket: Path) -> bool:
    try:
        os.kill(int(socket.name.removeprefix(_PREFIX).removesuffix(_SUFFIX)), 0)
    except ProcessLookupError:
        return False
    return True
