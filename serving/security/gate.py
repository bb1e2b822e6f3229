"""The gate: whose call it is, and whether that identity may make it.

Credentials are a bearer token or a client certificate. A token that is not valid is never made good by a certificate.
"""

import logging
import time
from collections.abc import Mapping

from serving.errors import ForbiddenError, LimitedError, UnauthenticatedError, UnavailableError
from serving.http2.headers import Metadata
from serving.security.audit import AuditLog
from serving.security.credentials import Credentials
from serving.security.identities import Identities, IdentitiesFile, Identity
from serving.security.peer_certificate import PeerCertificate
from serving.security.row_meters import RowMeter, RowMeters
from serving.telemetry.metrics import SecurityMetrics
from serving.transport.connection import ServedStream

_log = logging.getLogger(__name__)

_AUTHORIZATION = "authorization"
_BEARER = "bearer "
HEALTH = "health"
# Methods that are in neither table are for admins, too, who learn that there are none.
_KINDS: Mapping[str, str] = {
    **dict.fromkeys(("Predict", "ModelInfer", "ModelStreamInfer"), "predict"),
    "RecordOutcomes": "outcomes",
    **dict.fromkeys(("ListModels", "GetModel", "ModelReady", "ServerMetadata", "ModelMetadata", "ModelConfig"), "read"),
    **dict.fromkeys(("ModelStatistics", "RepositoryIndex", "ServerReflectionInfo"), "read"),
    **dict.fromkeys(("Check", "List", "Watch", "ServerLive", "ServerReady"), HEALTH),
}
_AUDITED = frozenset(
    (
        *("RepositoryModelLoad", "RepositoryModelUnload", "TraceSetting", "LogSettings"),
        *("SystemSharedMemoryStatus", "SystemSharedMemoryRegister", "SystemSharedMemoryUnregister"),
        *("CudaSharedMemoryStatus", "CudaSharedMemoryRegister", "CudaSharedMemoryUnregister"),
    )
)
# When a request that found the identity at its limit of concurrent rows may be tried again.
_RETRY_S = 0.01


class Caller:
    """The identity behind one call, and the rows that the call has taken of its limits."""

    __slots__ = ("_gate", "_meter", "_rows", "identity")

    def __init__(self, identity: Identity, gate: "Gate", meter: RowMeter | None) -> None:
        self.identity = identity
        self._gate = gate
        self._meter = meter
        self._rows = 0

    def may_use(self, model: str) -> bool:
        return self.identity.may_use(model)

    def check_model(self, model: str) -> None:
        """ForbiddenError if the identity may not use it."""
        if not self.identity.may_use(model):
            self._gate.count_refusal(self.identity.name, "model")
            raise ForbiddenError(f"identity {self.identity.name!r} may not use model {model!r}")

    def begin(self, rows: int) -> None:
        """Count `rows` as running; LimitedError if the identity would then run more rows at once than it may."""
        meter = self._meter
        if meter is None:
            return
        if not meter.begin_within(self.identity, rows):
            raise self._gate.limit_error(self.identity, "concurrent_rows", _RETRY_S)
        self._rows = rows

    def end(self) -> None:
        """The call has ended, for whatever reason; more than once does no harm."""
        rows, self._rows = self._rows, 0
        if rows and self._meter is not None:
            self._meter.end(rows)


class Gate:
    def __init__(
        self,
        file: IdentitiesFile,
        metrics: SecurityMetrics,
        meters: RowMeters,
        audit: AuditLog,
        protects_health: bool = False,
    ) -> None:
        self._file = file
        self._metrics = metrics
        self._meters = meters
        self._audit = audit
        self._protects_health = protects_health

    def admit(self, stream: ServedStream) -> Caller | None:
        """The caller; None for a health check that is open to everybody. UnauthenticatedError, ForbiddenError or, where
        the identity has used up its rate, LimitedError.

        A client's calls mostly have one head, which is checked once."""
        known = stream.connection.credentials
        if (
            known is None
            or known.head is not stream.head
            or known.identities is not self._file.current
            or known.expires <= time.time()
        ):
            known = self._check(stream)
            if known is None:
                return None
        identity, meter = known.identity, known.meter
        if meter is not None and identity.has_rate:
            wait_s = meter.wait_s(identity)
            if wait_s:
                raise self.limit_error(identity, "row_rate", wait_s)
        return Caller(identity, self, meter)

    def _check(self, stream: ServedStream) -> Credentials | None:
        """Who makes the call, if that identity may make it; None for a health check that is open to everybody."""
        method = stream.head.path.rpartition("/")[2]
        kind = _KINDS.get(method, "admin")
        if kind == HEALTH and not self._protects_health:
            return None
        identities = self._file.current
        identity, expires = self._identify(stream, identities)
        if method in _AUDITED:
            self._audit_call(stream, identity)
        if kind not in identity.calls and kind != HEALTH:
            self.count_refusal(identity.name, "call")
            raise ForbiddenError(f"identity {identity.name!r} may not make calls of the kind {kind!r}")
        meter = self._meters.of(identity) if identity.is_limited and kind == "predict" else None
        known = Credentials(stream.head, identities, identity, expires, meter)
        # Each audited call is checked, so that each is written down.
        stream.connection.credentials = known if method not in _AUDITED else None
        return known

    def count_refusal(self, identity: str, reason: str) -> None:
        self._metrics.refused.labels(identity, reason).inc()

    def limit_error(self, identity: Identity, reason: str, wait_s: float) -> LimitedError:
        self.count_refusal(identity.name, reason)
        if reason == "row_rate":
            return LimitedError(f"identity {identity.name!r} may run {identity.rows_per_s:g} rows/s", wait_s)
        return LimitedError(f"identity {identity.name!r} may run {identity.concurrent_rows:g} rows at once", wait_s)

    def _identify(self, stream: ServedStream, identities: Identities) -> tuple[Identity, float]:
        """The identity of the caller, and until when."""
        authorization = _authorization(stream.head.metadata)
        if authorization is not None:
            return self._by_token(identities, authorization)
        return self._by_certificate(identities, stream.connection.certificate)

    def _by_token(self, identities: Identities, authorization: str) -> tuple[Identity, float]:
        if authorization[: len(_BEARER)].lower() != _BEARER:
            raise self._unknown("token", "the authorization is not a bearer token")
        token = identities.tokens.find(authorization[len(_BEARER) :].strip())
        if token is None:
            raise self._unknown("token", "the token is not valid")
        if token.expires <= time.time():
            self.count_refusal(token.owner.name, "expired")
            raise UnauthenticatedError("the token has expired")
        return token.owner, token.expires

    def _by_certificate(self, identities: Identities, certificate: PeerCertificate | None) -> tuple[Identity, float]:
        if certificate is None:
            raise self._unknown("missing", "the call needs a bearer token or a client certificate")
        for name in certificate.names:
            identity = identities.by_certificate.get(name)
            if identity is not None:
                return identity, certificate.not_after
        raise self._unknown("certificate", "the client certificate belongs to no identity")

    def _unknown(self, reason: str, details: str) -> UnauthenticatedError:
        self.count_refusal("", reason)
        return UnauthenticatedError(details)

    def _audit_call(self, stream: ServedStream, identity: Identity) -> None:
        result = "allowed" if "admin" in identity.calls else "refused"
        try:
            self._audit.write(identity.name, stream.connection.peer, stream.head.path, result)
        except OSError as error:
            _log.error("the audit log can't be written: %s", error)
            raise UnavailableError("the call can't be written to the audit log, so it is not made") from error


def _authorization(metadata: Metadata) -> str | None:
    for name, value in metadata:
        if name == _AUTHORIZATION:
            return value if isinstance(value, str) else ""
    return None
