"""Settings of connections, a group of serving.config.ServeConfig."""

from typing import Annotated

from annotated_types import Ge, Gt
from pydantic import Field
from pydantic_settings import BaseSettings

from serving.http2.limits import Limits
from serving.transport.admission import ConnectionLimits

_MB = 1 << 20
# Minimum share of --client-memory-mb for a worker, in units of the maximum message size: one message that is being
# read.
_LEAST_MESSAGES = 1.05


class ConnectionSettings(BaseSettings):
    max_connections: Annotated[int, Ge(0)] = Field(
        4096,
        description="Maximum number of open connections, over all workers. Others are closed as soon as they are "
        "accepted. 0 sets no bound.",
    )
    max_connections_per_peer: Annotated[int, Ge(0)] = Field(
        512,
        description="Maximum number of open connections from one IPv4 address or IPv6 /64 network, over all workers. "
        "More are closed as soon as they are accepted; so are those of an address that opens more than 250 per second "
        "or has misbehaved 16 times. Use 0 (no bound) behind a proxy. Does not apply to Unix sockets.",
    )
    connection_idle_s: Annotated[float, Ge(0)] = Field(
        300.0,
        description="Seconds after which a connection without calls is closed (GOAWAY); clients reconnect when needed. "
        "0 keeps idle connections.",
    )
    connection_age_s: Annotated[float, Ge(0)] = Field(
        3600.0,
        description="Seconds after which a connection is closed (GOAWAY) once its calls have finished, up to 10% "
        "earlier at random. 0 sets no bound.",
    )
    client_memory_mb: Annotated[float, Gt(0)] = Field(
        32.0,
        description="Memory in MB, over all workers, for incomplete requests and responses that clients have not read. "
        "When it is full, the connection that uses the most is closed. Each worker gets at least 1.05 times "
        "--max-message-mb.",
    )

    @property
    def connection_limits(self) -> ConnectionLimits:
        return ConnectionLimits(self.max_connections, self.max_connections_per_peer)

    def http2_limits(self, max_message_bytes: int, max_streams: int, workers: int) -> Limits:
        """The limits of each worker."""
        memory_bytes = max(self.client_memory_mb * _MB / workers, _LEAST_MESSAGES * max_message_bytes)
        return Limits(
            max_message_bytes,
            max_streams,
            client_memory_bytes=int(memory_bytes),
            idle_s=self.connection_idle_s,
            age_s=self.connection_age_s,
        )
