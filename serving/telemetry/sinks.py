"""Where records of calls go besides the metrics: outcome store, acquisition log, access log, traces.

A sink is given every record, also those of errors, in batches and on the recorder's own thread, so it may take its
time; what it must never do is make the request wait. It is made in assemble.py, from ServeConfig.
"""

from collections.abc import Sequence
from typing import Protocol

from serving.telemetry.record import CallRecord


class Sink(Protocol):
    @property
    def needs_metadata(self) -> bool:
        """Whether records must carry the calls' gRPC metadata (W3C trace context, say)."""

    def needs_inputs(self, stored: bool, sampled: bool) -> bool:
        """Whether records of OK answers must carry the features; `stored`: of predictions that wait for outcomes;
        `sampled`: of those drawn for the uncertainty metrics. Asked once, at start-up."""

    def needed_outputs(self, stored: bool, sampled: bool) -> frozenset[str]:
        """The graph's outputs that records of OK answers must hold, also where the client did not ask for them, as far
        as the model has them. Asked once, at start-up."""

    def take(self, records: Sequence[CallRecord], wall_offset: float) -> None:
        """Records in the order in which their calls ended, a few times a second; there may be none. A record's
        time + `wall_offset` is seconds since the epoch.

        An exception is logged and costs this batch; a record's arrays are shared and must not be written to."""

    def close(self) -> None:
        """The server has answered its last call and every record was taken: write what is left, let go of files."""
