"""Receivers of call records besides the metrics: outcome store, acquisition log, access log, traces.

A sink gets every record, including those of errors, in batches on the recorder's thread, so it may be slow without
delaying requests. Sinks are created in assemble.py, from ServeConfig.
"""

from collections.abc import Sequence
from typing import Protocol

from serving.telemetry.record import CallRecord


class Sink(Protocol):
    @property
    def needs_metadata(self) -> bool:
        """Whether records must contain the calls' gRPC metadata (for example a W3C trace context)."""

    def needs_inputs(self, stored: bool, sampled: bool) -> bool:
        """Whether records of OK responses must contain the features, if the prediction is `stored` for outcomes and if
        it is `sampled` for the uncertainty metrics. Called once, at startup."""

    def needed_outputs(self, stored: bool, sampled: bool) -> frozenset[str]:
        """The graph outputs that records of OK responses must contain, even if the client did not request them, as far
        as the model has them. Called once, at startup."""

    def take(self, records: Sequence[CallRecord], wall_offset: float) -> None:
        """Process records in the order in which their calls ended. Called a few times a second; there may be no
        records. A record's time + `wall_offset` is seconds since the epoch.

        An exception is logged, and this batch is lost. The arrays of a record are shared and must not be modified."""

    def close(self) -> None:
        """Write what is left and close files. Called after all calls have ended and all records were passed to
        `take`."""
