"""Servers on real sockets as targets of the load generator."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import grpc

from ghostless.v1 import prediction_pb2 as pb
from ghostless.v1.prediction_pb2_grpc import add_PredictionServiceServicer_to_server
from tests.support.scripted_server import ScriptedServicer, answer

Answer = Callable[[pb.PredictRequest], pb.PredictResponse]


class StallingServicer(ScriptedServicer):
    """Answers requests one at a time. Request number `stalled` takes `stall_s` seconds, and all others wait for it."""

    def __init__(self, stalled: int, stall_s: float) -> None:
        super().__init__()
        self._stalled = stalled
        self._stall_s = stall_s

    def Predict(  # noqa: N802 (gRPC's name)
        self, request: pb.PredictRequest, context: grpc.ServicerContext
    ) -> pb.PredictResponse:
        with self.lock:
            self.requests.append(request)
            if len(self.requests) == self._stalled:
                time.sleep(self._stall_s)  # the test asks for a handler that stalls
            return answer(request)


class EditingServicer(ScriptedServicer):
    """Returns the correct response after `edit` has changed it."""

    def __init__(self, edit: Callable[[pb.PredictResponse], None]) -> None:
        super().__init__()
        self._edit = edit

    def Predict(  # noqa: N802
        self, request: pb.PredictRequest, context: grpc.ServicerContext
    ) -> pb.PredictResponse:
        response = answer(request)
        self._edit(response)
        return response


@contextmanager
def serving(servicer: ScriptedServicer, port: int = 0, threads: int = 4) -> Iterator[str]:
    """Start `servicer`; returns its address."""
    server = grpc.server(ThreadPoolExecutor(threads))
    add_PredictionServiceServicer_to_server(servicer, server)  # type: ignore[no-untyped-call]  # generated
    bound = server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    try:
        yield f"127.0.0.1:{bound}"
    finally:
        server.stop(grace=0).wait()
