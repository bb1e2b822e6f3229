"""An OpenTelemetry collector on a real socket that stores what exporters send."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as messages
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as services

from tests.support.waiting import eventually


class Collector(services.TraceServiceServicer):
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._spans: list[Any] = []
        self.resource: dict[str, Any] = {}
        self.port = 0

    def Export(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802
        with self._lock:
            for resource in request.resource_spans:
                self.resource = attributes(resource.resource)
                self._spans += [span for scope in resource.scope_spans for span in scope.spans]
        return messages.ExportTraceServiceResponse()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def spans(self) -> list[Any]:
        with self._lock:
            return list(self._spans)

    def wait_for(self, count: int) -> list[Any]:
        eventually(lambda: len(self.spans) >= count, f"{count} spans", timeout_s=30)
        return self.spans


def attributes(holder: Any) -> dict[str, Any]:
    """Attributes of a span or resource, by key."""
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in holder.attributes}


@contextmanager
def collecting() -> Iterator[Collector]:
    collector = Collector()
    server = grpc.server(ThreadPoolExecutor(2))
    services.add_TraceServiceServicer_to_server(collector, server)  # type: ignore[no-untyped-call]  # generated
    collector.port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield collector
    finally:
        server.stop(None).wait()
