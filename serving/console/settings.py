"""Settings of the console's process, passed to it as JSON."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from serving.config import ServeConfig
from serving.security.settings import is_local


@dataclass(frozen=True)
class ConsoleSettings:
    """`directory` is that of the server (Runtime). An empty path means that there is no such file. `checks_host`: the
    port is only for this machine, so a request for another host name comes from a web page that must not read it (DNS
    rebinding)."""

    directory: str
    repository: str
    engine: str
    providers: str
    identities: str
    audit_log: str
    requires_tls: bool
    workers: int
    max_body_bytes: int
    max_model_mb: float
    max_batch_rows: int
    checks_host: bool
    log_level: str
    log_format: str

    def as_json(self) -> str:
        return json.dumps(asdict(self))


def console_settings(config: ServeConfig, directory: Path) -> ConsoleSettings:
    return ConsoleSettings(
        directory=str(directory),
        repository=str(config.repository),
        engine=config.engine,
        providers=config.providers,
        identities=str(config.identities or ""),
        audit_log=str(config.audit_log or ""),
        requires_tls=config.tls_paths is not None,
        workers=config.worker_count,
        max_body_bytes=config.max_message_bytes,
        max_model_mb=config.max_model_mb,
        max_batch_rows=config.max_batch_rows,
        checks_host=is_local(config.exposition_host),
        log_level=config.log_level,
        log_format=config.log_format,
    )


def read_settings(text: str) -> ConsoleSettings:
    return ConsoleSettings(**json.loads(text))


def operations_socket(directory: str) -> str:
    """The socket on which the process that owns the port answers the console's process."""
    return f"{directory}/operations.sock"


def console_socket(directory: str) -> str:
    """The socket on which the console's process accepts the connections of the port."""
    return f"{directory}/console.sock"
