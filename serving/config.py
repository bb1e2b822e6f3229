"""Every knob of the server, in one frozen value object.

A value comes from, in this order: a flag, a GHOSTLESS_* environment variable, the TOML file named by --config,
the default. `ghostless serve --help` is generated from the descriptions below, so it is the reference.
"""

import logging
import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Ge, Gt, Le
from pydantic import Field, ValidationError
from pydantic_settings import BaseSettings, EnvSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict

from ghostless.contract.cores import available_cores
from ghostless.contract.errors import ConfigError
from serving.transport.listening import is_unix

ENV_PREFIX = "GHOSTLESS_"
METRICS_PORT = 9500

_log = logging.getLogger(__name__)

# Kubernetes sets GHOSTLESS_PORT=tcp://10.0.0.1:8500 in every pod beside a Service called ghostless, and
# GHOSTLESS_METRICS_PORT beside one called ghostless-metrics.
_PORTS = ("port", "metrics_port")
# Set by others for purposes of their own: the folder of real data, and the rest of what Kubernetes sets for a Service.
_FOREIGN = re.compile(r"GHOSTLESS_(DATA|(\w+_)?SERVICE_(HOST|PORT\w*)|(\w+_)?PORT(_\d+_(TCP|UDP|SCTP)\w*)?)")

Count = Annotated[int, Gt(0)]
CountOrAuto = Annotated[int, Ge(0)]
Milliseconds = Annotated[float, Ge(0)]


class ServeConfig(BaseSettings):
    model_config = SettingsConfigDict(env_prefix=ENV_PREFIX, frozen=True, extra="forbid")

    repository: Path = Field(Path("model_repository"), description="Model repository: NAME/VERSION/model.onnx.")
    host: str = Field("0.0.0.0", description="Address to listen on, or unix:PATH for a Unix socket.")
    port: Annotated[int, Ge(0), Le(65535)] = Field(
        8500, description="Port to listen on; 0 takes a free one. Not used with a Unix socket."
    )
    default_model: str = Field(
        "", description="Model that answers requests which name none; empty: the only one there is."
    )

    engine: str = Field(
        "embedded",
        pattern="^(embedded|triton)$",
        description="What runs the models: embedded (ONNX Runtime in this process) or triton (Triton servers).",
    )
    triton: str = Field(
        "", description="The Tritons, as HOST:PORT,HOST:PORT of their gRPC ports; a name stands for all its addresses."
    )

    providers: str = Field(
        "auto",
        pattern="^(auto|cpu|cuda|tensorrt)$",
        description="Where ONNX Runtime runs the models (embedded engine): cpu, cuda, tensorrt, or auto, a GPU if the "
        "installed ONNX Runtime has support for one (extra serve-gpu).",
    )

    workers: CountOrAuto = Field(
        0,
        description="Processes on the one port, each with its own copy of the models; 0: one per core of the cgroup, "
        "before Triton one per two cores, since fewer workers send it fewer and larger calls.",
    )
    slots: CountOrAuto = Field(
        0, description="Inferences at a time per worker, each on one thread; 0: the cgroup's cores over the workers."
    )

    max_batch_rows: Count = Field(
        512, description="Waiting requests are merged up to this many rows; a larger request runs alone."
    )
    batch_window_ms: Milliseconds = Field(
        0.0, description="How long a free slot waits for more rows to merge; 0: it starts at once."
    )
    queue_rows: Count = Field(
        16384,
        description="Rows that may wait or be with Triton, per worker; over it RESOURCE_EXHAUSTED, with a retry hint.",
    )
    deadline_ms: Milliseconds = Field(
        1000.0, description="Deadline of a request that sets none or a longer one; 0: the server sets no limit."
    )

    max_rows: Count = Field(10_000, description="Candidates in one request.")
    max_levels: Count = Field(200, description="Quantile levels, and thresholds, in one request.")
    max_message_mb: Annotated[float, Gt(0)] = Field(
        16.0, description="Size of a request message; over it RESOURCE_EXHAUSTED."
    )
    unknown_features: str = Field(
        "ignore",
        pattern="^(ignore|refuse)$",
        description="What to do with columns of a request that the model does not take: ignore (count them, and log a "
        "warning once per model version) or refuse (INVALID_ARGUMENT).",
    )
    max_streams: Count = Field(1000, description="Concurrent calls on one connection.")

    poll_s: Annotated[float, Gt(0)] = Field(
        1.0, description="Seconds between two checks of the repository, or of each Triton, for changes."
    )
    keep_versions: Count = Field(
        2, description="Versions of each model kept loaded: the one in service and the latest others."
    )
    drain_delay_s: Annotated[float, Ge(0)] = Field(
        0.0, description="After SIGTERM: time between not-ready and refusing calls, for balancers to notice."
    )
    drain_s: Annotated[float, Ge(0)] = Field(30.0, description="After SIGTERM: time that running calls get to finish.")
    metrics_port: Annotated[int, Ge(0), Le(65535)] = Field(
        METRICS_PORT,
        description="Port of /metrics; by default a free one where --port is 0. 0: no metrics and no outcomes.",
    )
    uncertainty_rate: Annotated[float, Ge(0), Le(1)] = Field(
        1.0,
        description="Share of answers, drawn at random, that uncertainty metrics and acquisition log sample; 0: none.",
    )
    uncertainty_rows_per_s: Annotated[float, Gt(0)] = Field(
        4_096.0, description="Upper bound on rows sampled for uncertainty metrics, per second and worker."
    )

    outcome_store_mb: Annotated[float, Ge(0)] = Field(
        64.0, description="Memory for predictions that wait for RecordOutcomes, in MB per worker; 0: store none."
    )
    outcome_rate: Annotated[float, Gt(0), Le(1)] = Field(
        1.0, description="Share of requests with a request_id whose predictions are stored, drawn by the id."
    )
    outcome_age_s: Annotated[float, Gt(0)] = Field(
        86_400.0, description="How long after a prediction its outcome still counts, if it is kept so long."
    )

    acquisition_log: Path | None = Field(
        None, description="Folder for the rows most worth labelling, as Parquet with features and prediction."
    )
    acquisition_gamma: Annotated[float, Ge(0)] = Field(
        0.1, description="Rows are chosen by epistemic + gamma * aleatoric variance."
    )
    acquisition_rows_per_minute: Count = Field(
        60, description="Rows written to --acquisition-log at most, of each model version; workers share them evenly."
    )
    acquisition_file_mb: Annotated[float, Gt(0)] = Field(
        16.0, description="Size at which an acquisition file is closed and another begun."
    )
    acquisition_file_s: Annotated[float, Gt(0)] = Field(
        600.0, description="Age in seconds at which an acquisition file is rotated."
    )
    acquisition_files: Count = Field(
        100, description="Closed acquisition files kept per model version; the oldest are deleted."
    )

    access_log: str = Field("", description="File that calls are logged to, a line of JSON each; -: standard output.")
    access_log_rate: Annotated[float, Ge(0), Le(1)] = Field(
        0.01, description="Share of answered calls that are logged; errors all are, up to 100 a second per worker."
    )
    access_log_features: bool = Field(False, description="Log the requests' feature values too.")
    otlp_endpoint: str = Field(
        "",
        description="Send OpenTelemetry spans there, as http://HOST:4317; also set by OTEL_EXPORTER_OTLP_ENDPOINT.",
    )
    trace_rate: Annotated[float, Ge(0), Le(1)] = Field(
        0.01, description="Share of calls traced of those that bring no trace context (W3C traceparent) of their own."
    )

    log_level: str = Field(
        "info",
        pattern="(?i)^(debug|info|warning|error)$",
        description="Lowest level that is logged: debug, info, warning or error.",
    )
    config: Path | None = Field(None, description="TOML file with any of these settings, by name.")

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
        return (init_settings, _EnvironmentSource(settings_cls), _FileSource(settings_cls, path))

    @property
    def worker_count(self) -> int:
        cores = available_cores()
        return self.workers or (cores if self.engine == "embedded" else max(1, cores // 2))

    @property
    def slots_per_worker(self) -> int:
        return self.slots or max(1, available_cores() // self.worker_count)

    @property
    def serving_threads(self) -> int:
        """That read requests; with the embedded engine they run them too."""
        return self.slots_per_worker if self.engine == "embedded" else 1

    @property
    def metrics(self) -> bool:
        return self.metrics_port > 0

    @property
    def metrics_host(self) -> str:
        """Where /metrics listens. A server on a Unix socket is for this machine, and so are its metrics."""
        return "127.0.0.1" if is_unix(self.host) else self.host

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


class _EnvironmentSource(EnvSettingsSource):
    """GHOSTLESS_* without ports that are no number."""

    def __call__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__call__().items() if not _is_no_port(name, value)}


class _FileSource(PydanticBaseSettingsSource):
    def __init__(self, settings_cls: type[BaseSettings], path: Path | str | None) -> None:
        super().__init__(settings_cls)
        self._path = path

    def get_field_value(self, field: Any, field_name: str) -> tuple[Any, str, bool]:
        raise NotImplementedError("the file is read as a whole")

    def __call__(self) -> dict[str, Any]:
        if self._path is None:
            return {}
        try:
            return tomllib.loads(Path(self._path).read_text())
        except (OSError, tomllib.TOMLDecodeError) as broken:
            raise ConfigError(f"config file {self._path}: {broken}") from broken


def load_config(flags: Mapping[str, Any]) -> ServeConfig:
    """`flags` holds only what was given on the command line. A GHOSTLESS_* variable that is no setting is ignored."""
    try:
        return ServeConfig(**flags)
    except ValidationError as wrong:
        lines = [_explain(error) for error in wrong.errors()]
        raise ConfigError("; ".join(lines)) from wrong


def log_ignored_variables(environment: Mapping[str, str] = os.environ) -> None:
    """Say once which GHOSTLESS_* variables don't count: a warning for what may be a misspelt setting."""
    settings = {ENV_PREFIX + name.upper(): name for name in ServeConfig.model_fields}
    ours = sorted(name for name in environment if name.startswith(ENV_PREFIX))
    for name in ours:
        if name in settings and _is_no_port(settings[name], environment[name]):
            _log.warning("%s=%s is ignored: a port is a number", name, environment[name])
    unknown = [name for name in ours if name not in settings]
    foreign = [name for name in unknown if _FOREIGN.fullmatch(name)]
    if foreign:
        _log.debug("not settings of the server, ignored: %s", ", ".join(foreign))
    misspelt = [name for name in unknown if name not in foreign]
    if misspelt:
        _log.warning("ignored, no such setting: %s; `ghostless serve --help` lists them", ", ".join(misspelt))


def _is_no_port(name: str, value: Any) -> bool:
    return name in _PORTS and re.fullmatch(r"[+-]?\d+", str(value).strip()) is None


def _explain(error: Any) -> str:
    name = ".".join(str(part) for part in error["loc"])
    if error["type"] == "extra_forbidden":
        return f"unknown setting {name!r}; `ghostless serve --help` lists them"
    return f"{name} = {error['input']!r}: {error['msg']}"
