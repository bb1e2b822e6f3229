"""Reasons are all counted, and logged now and then."""

import logging
from collections import Counter

import pytest

from serving.http2.errors import Closing
from serving.telemetry.metrics import ServerMetrics
from serving.transport.closings import LOG_EVERY_S, Closings, ConnectionObserver


def test_a_line_for_each_reason_in_a_while_says_how_many_there_were(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    counted: Counter[Closing] = Counter()
    now = [0.0]
    observer = ConnectionObserver(lambda reason, number: counted.update({reason: number}))
    closings = Closings(observer, clock=lambda: now[0])
    for _ in range(5):
        closings.add(Closing.FLOOD, "ipv4:10.0.0.1:5000", "too many frames")
    closings.add(Closing.TOO_MANY, "10.0.0.1", number=40)
    closings.add(Closing.CLIENT, "ipv4:10.0.0.2:5000")
    now[0] += LOG_EVERY_S
    closings.add(Closing.FLOOD, "ipv4:10.0.0.3:5000", "too many frames")
    assert counted == {Closing.FLOOD: 6, Closing.TOO_MANY: 40, Closing.CLIENT: 1}
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 3
    assert lines[0] == "connection of ipv4:10.0.0.1:5000 closed, reason flood: too many frames"
    assert "4 more" in lines[2]


def test_every_reason_is_a_series_from_the_start() -> None:
    metrics = ServerMetrics()
    metrics.connections.observer.on_closed(Closing.FLOOD, 3)
    metrics.connections.observer.on_state(7, 4096)
    samples = {
        (sample.name, sample.labels.get("reason", "")): sample.value
        for family in metrics.registry.collect()
        for sample in family.samples
        if sample.name.startswith(("ghostless_connections", "ghostless_client_memory"))
    }
    assert samples["ghostless_connections", ""] == 7
    assert samples["ghostless_client_memory_bytes", ""] == 4096
    closed = {
        reason: value for (name, reason), value in samples.items() if name == "ghostless_connections_closed_total"
    }
    assert closed == {str(reason): 3.0 if reason is Closing.FLOOD else 0.0 for reason in Closing}
