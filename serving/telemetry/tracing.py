"""Checks whether calls are traced without importing OpenTelemetry, so that nothing is loaded if they are not."""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ghostless.contract.errors import ConfigError

if TYPE_CHECKING:
    from serving.telemetry.spans import SpanSink

_ENDPOINT_VARIABLES = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")


def is_configured(endpoint: str, environment: Mapping[str, str] = os.environ) -> bool:
    """Whether --otlp-endpoint or OpenTelemetry's own variables configure an endpoint."""
    if environment.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return False
    return bool(endpoint) or any(environment.get(name) for name in _ENDPOINT_VARIABLES)


def open_tracing(endpoint: str, rate: float) -> "SpanSink":
    """Create the sink. Raises ConfigError if OpenTelemetry is not installed."""
    try:
        from serving.telemetry.spans import SpanSink
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"traces need the 'otel' extra, which is not installed ({error.name} is missing): "
            "pip install 'ghostless-server[otel]', or unset --otlp-endpoint and OTEL_EXPORTER_OTLP_ENDPOINT"
        ) from error
    return SpanSink(endpoint, rate)
