"""All settings of the server, in one frozen value object.

A value comes from, in this order: a flag, a GHOSTLESS_* environment variable, the TOML file named by --config,
the default. `ghostless serve --help` is generated from the descriptions below, so it is the reference.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Ge, Gt, Le
from pydantic import Field, ValidationError, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from ghostless.contract.cores import available_cores
from ghostless.contract.errors import ConfigError
from serving.config_sources import EnvironmentSource, FileSource
from serving.security.settings import SecuritySettings, check_security
from serving.transport.listening import is_unix
from serving.transport.settings import ConnectionSettings

ENV_PREFIX = "GHOSTLESS_"
METRICS_PORT = 9500

Count = Annotated[int, Gt(0)]
CountOrAuto = Annotated[int, Ge(0)]
Milliseconds = Annotated[float, Ge(0)]


class ServeConfig(ConnectionSettings, SecuritySettings):
    model_config = SettingsConfigDict(env_prefix=ENV_PREFIX, frozen=True, extra="forbid")

    repository: Path = Field(
        Path("model_repository"), description="Folder with the models to serve, as NAME/VERSION/model.onnx."
    )
    host: str = Field(
        "127.0.0.1",
        description="Address to listen on, or unix:PATH for a Unix socket. Any but a loopback address needs TLS or "
        "--insecure.",
    )
    port: Annotated[int, Ge(0), Le(65535)] = Field(
        8500, description="TCP port to listen on; 0 picks a free port. Ignored with a Unix socket."
    )
    default_model: str = Field(
        "", description="Model for requests that do not name one. Needed only if the repository has several models."
    )
    engine: str = Field(
        "embedded",
        pattern="^(embedded|triton)$",
        description="Inference engine: embedded (ONNX Runtime inside the server) or triton (remote Triton servers).",
    )
    triton: str = Field(
        "",
        description="gRPC addresses of the Triton servers for --engine triton, as HOST:PORT,HOST:PORT. A host name "
        "with several DNS addresses stands for all of them.",
    )
    providers: str = Field(
        "auto",
        pattern="^(auto|cpu|cuda|tensorrt)$",
        description="Hardware that the embedded engine runs on: cpu, cuda, tensorrt, or auto. auto uses a GPU if the "
        "installed ONNX Runtime supports one (install the extra serve-gpu).",
    )

    workers: CountOrAuto = Field(
        0,
        description="Server processes that share the port, each with its own copy of the models. 0 means one per "
        "available core, or one per two cores with --engine triton, where fewer workers send larger batches.",
    )
    slots: CountOrAuto = Field(
        0,
        description="Inferences that a worker runs in parallel, each on one thread. 0 divides the available cores "
        "evenly among the workers.",
    )

    worker_timeout_s: Annotated[float, Ge(0)] = Field(
        2.5, description="Seconds without a heartbeat after which a worker is killed and replaced; 0 never does."
    )

    max_batch_rows: Count = Field(
        512,
        description="Maximum rows in a batch of merged requests. A single request with more rows runs on its own.",
    )
    batch_window_ms: Milliseconds = Field(
        0.0,
        description="Time in ms that an idle inference slot waits for more requests to merge into a batch; 0 starts "
        "immediately.",
    )
    queue_rows: Count = Field(
        16384,
        description="Maximum rows queued per worker, including rows sent to Triton and not yet answered. Requests "
        "beyond it fail with RESOURCE_EXHAUSTED and a retry delay.",
    )
    deadline_ms: Milliseconds = Field(
        1000.0,
        description="Upper bound in ms on a request's deadline, also used for requests without one. 0 sets no bound.",
    )

    max_rows: Count = Field(10_000, description="Maximum number of candidates in one request.")
    max_levels: Count = Field(200, description="Maximum number of quantile levels, and of thresholds, in one request.")
    max_message_mb: Annotated[float, Gt(0)] = Field(
        16.0, description="Maximum size of a request message in MB; larger ones fail with RESOURCE_EXHAUSTED."
    )
    unknown_features: str = Field(
        "ignore",
        pattern="^(ignore|refuse)$",
        description="How to handle request columns that are not features of the model: ignore (count them and log one "
        "warning per model version) or refuse (fail with INVALID_ARGUMENT).",
    )
    max_streams: Count = Field(1000, description="Maximum number of concurrent calls on one connection.")

    poll_s: Annotated[float, Gt(0)] = Field(
        1.0, description="Interval in seconds at which the repository and the Triton servers are checked for changes."
    )
    keep_versions: Count = Field(
        2,
        description="Number of versions of each model to keep loaded: the one in service and the most recent others.",
    )
    max_model_mb: Annotated[float, Ge(0)] = Field(
        0.0, description="Maximum memory in MB that a model version may take; 0 means half of the available memory."
    )
    drain_delay_s: Annotated[float, Ge(0)] = Field(
        0.0,
        description="Seconds after SIGTERM during which the server reports not ready but still accepts calls, so that "
        "load balancers can react.",
    )
    drain_s: Annotated[float, Ge(0)] = Field(
        30.0, description="Seconds that calls in progress get to finish after SIGTERM, once new calls are refused."
    )
    metrics_port: Annotated[int, Ge(0), Le(65535)] = Field(
        METRICS_PORT,
        description="Port of the Prometheus endpoint /metrics. 0 turns metrics and RecordOutcomes off. If --port is 0 "
        "and this is not set, a free port is picked.",
    )
    metrics_host: str = Field("", description="Address of --metrics-port; empty means that of --host.")
    console: bool = Field(
        True,
        description="Serve the console (/), HTTP (/v1/predict) and the Open Inference Protocol's REST API (/v2) on "
        "--metrics-port. Their process starts with the first such request.",
    )
    uncertainty_rate: Annotated[float, Ge(0), Le(1)] = Field(
        1.0,
        description="Fraction of responses sampled at random for the uncertainty metrics and the acquisition log; 0 "
        "samples none.",
    )
    uncertainty_rows_per_s: Annotated[float, Gt(0)] = Field(
        4_096.0, description="Maximum rows per second that each worker samples for the uncertainty metrics."
    )

    outcome_store_mb: Annotated[float, Ge(0)] = Field(
        64.0,
        description="Memory in MB, per worker, for predictions that wait for their outcome (RecordOutcomes); 0 stores "
        "none.",
    )
    outcome_rate: Annotated[float, Gt(0), Le(1)] = Field(
        1.0,
        description="Fraction of requests whose predictions are stored to be matched with outcomes, selected by a hash "
        "of request_id. Requests without a request_id are never stored.",
    )
    outcome_age_s: Annotated[float, Gt(0)] = Field(
        86_400.0,
        description="Maximum age in seconds of a prediction when its outcome arrives; older ones count as late. "
        "Predictions may be evicted earlier if --outcome-store-mb is full.",
    )

    acquisition_log: Path | None = Field(
        None,
        description="Folder for Parquet files with the rows most worth labelling: their features and predictions.",
    )
    acquisition_gamma: Annotated[float, Ge(0)] = Field(
        0.1,
        description="Weight gamma in the score that selects rows for --acquisition-log: epistemic variance + gamma * "
        "aleatoric variance.",
    )
    acquisition_rows_per_minute: Count = Field(
        60,
        description="Maximum rows per minute written to --acquisition-log for each model version, split evenly among "
        "the workers.",
    )
    acquisition_file_mb: Annotated[float, Gt(0)] = Field(
        16.0, description="Size in MB at which a file of --acquisition-log is closed and a new one started."
    )
    acquisition_file_s: Annotated[float, Gt(0)] = Field(
        600.0, description="Age in seconds at which a file of --acquisition-log is closed and a new one started."
    )
    acquisition_files: Count = Field(
        100,
        description="Maximum number of closed --acquisition-log files per model version; the oldest are deleted.",
    )

    access_log: str = Field(
        "", description="File to log calls to, one JSON object per line; - writes to standard output."
    )
    access_log_rate: Annotated[float, Ge(0), Le(1)] = Field(
        0.01,
        description="Fraction of successful calls written to --access-log. Failed calls are always logged, up to 100 "
        "per second and worker.",
    )
    access_log_features: bool = Field(False, description="Include the request's feature values in --access-log.")
    otlp_endpoint: str = Field(
        "",
        description="OTLP endpoint to send OpenTelemetry spans to, as http://HOST:4317. OTEL_EXPORTER_OTLP_ENDPOINT "
        "sets it too.",
    )
    trace_rate: Annotated[float, Ge(0), Le(1)] = Field(
        0.01,
        description="Fraction of calls to trace if the client sends no W3C traceparent header; with one, the client "
        "decides.",
    )

    log_level: str = Field(
        "info",
        pattern="(?i)^(debug|info|warning|error)$",
        description="Minimum severity of log messages: debug, info, warning or error.",
    )
    log_format: str = Field(
        "text", pattern="^(text|json)$", description="Format of log messages: text, or json with one object per line."
    )
    config: Path | None = Field(
        None, description="TOML file with settings, named like the flags with underscores: max_rows = 500."
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        path = init_settings().get("config") or env_settings().get("config")
        return (init_settings, EnvironmentSource(settings_cls), FileSource(settings_cls, path))

    @model_validator(mode="after")
    def _check(self) -> "ServeConfig":
        check_security(self, self.host, self.exposition_host if self.metrics else None)
        return self

    @property
    def worker_count(self) -> int:
        cores = available_cores()
        return self.workers or (cores if self.engine == "embedded" else max(1, cores // 2))

    @property
    def slots_per_worker(self) -> int:
        return self.slots or max(1, available_cores() // self.worker_count)

    @property
    def serving_threads(self) -> int:
        """Threads that read requests; with the embedded engine they run inference too."""
        return self.slots_per_worker if self.engine == "embedded" else 1

    @property
    def metrics(self) -> bool:
        return self.metrics_port > 0

    @property
    def has_http(self) -> bool:
        """Whether the operations port also has HTTP calls and the console."""
        return self.metrics and self.console

    @property
    def exposition_host(self) -> str:
        """Where /metrics listens. A server on a Unix socket is for this machine, and so are its metrics."""
        return self.metrics_host or ("127.0.0.1" if is_unix(self.host) else self.host)

    @property
    def exposition_port(self) -> int:
        """Where /metrics listens; 0 takes a free port."""
        return 0 if self.port == 0 and "metrics_port" not in self.model_fields_set else self.metrics_port

    @property
    def triton_addresses(self) -> list[str]:
        return [address.strip() for address in self.triton.split(",") if address.strip()]

    @property
    def max_message_bytes(self) -> int:
        return int(self.max_message_mb * 1024 * 1024)


def load_config(flags: Mapping[str, Any]) -> ServeConfig:
    """`flags` holds only what was set on the command line. GHOSTLESS_* variables that are not settings are ignored."""
    try:
        return ServeConfig(**flags)
    except ValidationError as wrong:
        lines = [_explain(error) for error in wrong.errors()]
        raise ConfigError("; ".join(lines)) from wrong


def _explain(error: Any) -> str:
    name = ".".join(str(part) for part in error["loc"])
    if not name:  # of several settings together
        return str(error["msg"]).removeprefix("Value error, ")
    if error["type"] == "extra_forbidden":
        return f"unknown setting {name!r}; `ghostless serve --help` lists the settings"
    return f"{name} = {error['input']!r}: {error['msg']}"
