"""What secures one worker process: made from its settings in one place, and kept up to date by one thread."""

import logging
import threading
from pathlib import Path

from serving.config import ServeConfig
from serving.security.audit import AuditLog
from serving.security.certificates import read_certificate
from serving.security.gate import Gate
from serving.security.identities import IdentitiesFile
from serving.security.row_meters import RowMeters
from serving.security.tls_files import TlsFiles
from serving.telemetry.metrics import SecurityMetrics
from serving.transport.router import Transport
from serving.transport.tls import HTTP2, TransportTls

_log = logging.getLogger(__name__)


class Security:
    """`tls` None: plain text. `gate` None: everybody may call everything. `directory` is what the workers of a server
    share; None: there is one only."""

    def __init__(self, config: ServeConfig, metrics: SecurityMetrics, directory: Path | None) -> None:
        self._poll_s = config.poll_s
        self._metrics = metrics
        paths = config.tls_paths
        self._tls_files = TlsFiles(paths, (HTTP2,)) if paths is not None else None
        self.tls: TransportTls | None = None
        if self._tls_files is not None:
            self.tls = TransportTls(
                self._tls_files.context,
                config.tls_handshake_s,
                lambda result: metrics.handshakes.labels(result).inc(),
                read_certificate,
            )
        self._report_expiries()
        self._identities = IdentitiesFile(config.identities) if config.identities is not None else None
        self._meters = RowMeters(directory / "rows" if directory is not None else None)
        self.gate: Gate | None = None
        if self._identities is not None:
            audit = AuditLog(config.audit_log)
            self.gate = Gate(self._identities, metrics, self._meters, audit, config.protect_health)
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, transport: Transport) -> None:
        """Watch the files, and the certificates of the transport's clients."""
        self._thread = threading.Thread(target=self._watch, args=(transport,), name="security", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()

    def _watch(self, transport: Transport) -> None:
        while not self._stopped.wait(self._poll_s):
            try:
                self._refresh(transport)
            except Exception:
                _log.exception("checking the security files failed; what was loaded stays in use")

    def _refresh(self, transport: Transport) -> None:
        if self._identities is not None:
            self._count("identities", self._identities.refresh())
            self._meters.find_peers()
        if self._tls_files is not None:
            self._count("tls", self._tls_files.refresh())
            self._report_expiries()
            closed = transport.close_distrusted(self._tls_files.is_trusted)
            if closed:
                _log.warning("closed %d connections whose client certificate expired or was revoked", closed)

    def _count(self, file: str, loaded: bool | None) -> None:
        if loaded is not None:
            self._metrics.reloads.labels(file, "ok" if loaded else "failed").inc()

    def _report_expiries(self) -> None:
        if self._tls_files is not None:
            for file, expiry in self._tls_files.current.expiries.items():
                self._metrics.expiry_seconds.labels(file).set(expiry)
