"""OpenTelemetry spans of calls: one for the call, with child spans for the queue and the engine.

They are created from a call's record after the response, so requests do not wait for them. The caller's W3C trace
context decides: a sampled trace is continued, any other is skipped.
"""

import os
import random
import re
import threading
from collections.abc import Mapping, Sequence

import grpc
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_INSTANCE_ID, SERVICE_NAME, OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import SpanKind, Status, StatusCode, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import AttributeValue

from serving.http2.headers import Metadata
from serving.telemetry.record import CallRecord

_SERVICES = {"Predict": "ghostless.v1.PredictionService", "ModelInfer": "inference.GRPCInferenceService"}
_CONTEXT_HEADERS = ("traceparent", "tracestate")
_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-([0-9a-f]{2})(-.*)?")
_SAMPLED = 0x01
_CLOSE_S = 3.0


class SpanSink:
    """Sends spans to an OTLP collector over gRPC. `rate`: fraction of the calls without a trace context that are
    traced.

    Without an `endpoint`, the OTEL_* variables define it; they also define headers, certificates and the service name.
    """

    needs_metadata = True

    def __init__(self, endpoint: str, rate: float) -> None:
        self._rate = rate
        self._random = random.Random()
        self._propagator = TraceContextTextMapPropagator()
        # Always on, because the sampling decision is made before a span is created.
        self._provider = TracerProvider(ALWAYS_ON, _resource(), shutdown_on_exit=False)
        self._exporter = OTLPSpanExporter(endpoint or None)
        self._provider.add_span_processor(BatchSpanProcessor(self._exporter))
        self._tracer = self._provider.get_tracer("ghostless.serving")

    def needs_inputs(self, stored: bool, sampled: bool) -> bool:
        return False

    def needed_outputs(self, stored: bool, sampled: bool) -> frozenset[str]:
        return frozenset()

    def take(self, records: Sequence[CallRecord], wall_offset: float) -> None:
        for record in records:
            parents = [value for key, value in record.metadata if key == "traceparent"]
            context = _TRACEPARENT.fullmatch(str(parents[-1])) if parents else None
            if context is None:
                if self._random.random() < self._rate:
                    self._trace(record, wall_offset, Context())
            elif int(context[1], 16) & _SAMPLED:
                headers = _context_headers(record.metadata)
                self._trace(record, wall_offset, self._propagator.extract(headers, Context()))

    def close(self) -> None:
        """Send the queued spans, but give up sooner than OpenTelemetry would if the collector is down."""
        closing = threading.Thread(target=self._provider.shutdown, name="spans", daemon=True)
        closing.start()
        closing.join(_CLOSE_S)
        if closing.is_alive():
            self._exporter.shutdown()
            closing.join(_CLOSE_S)

    def _trace(self, record: CallRecord, wall_offset: float, parent: Context) -> None:
        service = _SERVICES[record.method]
        attributes = {"rpc.system": "grpc", "rpc.service": service, "rpc.method": record.method, **_attributes(record)}
        span = self._tracer.start_span(
            f"{service}/{record.method}",
            parent,
            SpanKind.SERVER,
            attributes,
            start_time=_ns(record.received, wall_offset),
        )
        if record.code != "OK":
            span.set_status(Status(StatusCode.ERROR, f"{record.code}: {record.details}"))
        times = record.times
        steps = {"queue": (times.queued, times.started), "engine": (times.started, times.computed)}
        for name, (start, end) in steps.items():
            if start and end:
                step = self._tracer.start_span(name, set_span_in_context(span), start_time=_ns(start, wall_offset))
                if name == "engine":
                    step.set_attribute("ghostless.batch_rows", times.batch_rows)
                step.end(_ns(end, wall_offset))
        span.end(_ns(record.answered, wall_offset))


def _resource() -> Resource:
    ours = Resource({SERVICE_NAME: "ghostless", SERVICE_INSTANCE_ID: f"{os.uname().nodename}:{os.getpid()}"})
    # OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES take precedence.
    return Resource.create().merge(ours).merge(OTELResourceDetector().detect())


def _attributes(record: CallRecord) -> Mapping[str, AttributeValue]:
    attributes: dict[str, AttributeValue] = {
        "rpc.grpc.status_code": grpc.StatusCode[record.code].value[0],
        "ghostless.rows": record.rows,
    }
    if record.request_id:
        attributes["ghostless.request_id"] = record.request_id
    if record.model is not None:
        attributes["ghostless.model"] = record.model.name
        attributes["ghostless.version"] = record.model.version
    return attributes


def _context_headers(metadata: Metadata) -> dict[str, str]:
    return {key: value for key, value in metadata if key in _CONTEXT_HEADERS and isinstance(value, str)}


def _ns(seconds: float, wall_offset: float) -> int:
    return round((seconds + wall_offset) * 1e9)
