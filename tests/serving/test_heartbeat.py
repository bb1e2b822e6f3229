"""Who shows signs of life, and when nobody does any more."""

import math
import os
import threading
from types import SimpleNamespace

import pytest

from serving import heartbeat
from serving.engines.batcher import BatchLimits
from serving.heartbeat import LIVENESS_S, Heartbeats, Liveness
from tests.support.running import FakeEngine, serving
from tests.support.waiting import eventually


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(heartbeat, "time", SimpleNamespace(monotonic=lambda: self.now))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def test_signs_given_in_another_process_are_seen() -> None:
    heartbeats = Heartbeats(2)
    child = os.fork()
    if not child:
        heartbeats.give(1, has_answered=True)
        os._exit(0)
    os.waitpid(child, 0)
    assert heartbeats.ages_s()[0] == math.inf
    assert 0 <= heartbeats.ages_s()[1] < 20
    assert [heartbeats.has_answered(worker) for worker in (0, 1)] == [False, True]
    heartbeats.forget(1)
    assert (heartbeats.last(1), heartbeats.has_answered(1)) == (0.0, False)


def test_a_server_lives_while_it_starts_and_as_long_as_one_worker_does(clock: Clock) -> None:
    heartbeats = Heartbeats(2)
    liveness = Liveness(heartbeats, 2)
    clock.now += 10 * LIVENESS_S
    assert liveness.is_alive(), "models may take long to load"
    heartbeats.give(0)
    heartbeats.give(1)
    clock.now += LIVENESS_S
    heartbeats.give(1)
    clock.now += 1
    assert liveness.is_alive()
    assert liveness.report() == f"worker 0: sign of life {LIVENESS_S + 1:.1f} s ago\nworker 1: sign of life 1.0 s ago\n"
    heartbeats.forget(1)
    assert liveness.is_alive(), "it is just being replaced"
    clock.now += LIVENESS_S
    assert not liveness.is_alive()
    assert "worker 1: no sign of life yet" in liveness.report()


def test_a_supervisor_that_hangs_is_not_alive(clock: Clock) -> None:
    heartbeats = Heartbeats(1)
    liveness = Liveness(heartbeats, 1)
    heartbeats.give_supervisors()
    clock.now += LIVENESS_S + 1
    heartbeats.give(0)
    assert not liveness.is_alive()
    heartbeats.give_supervisors()
    assert liveness.is_alive()


def test_a_server_whose_polling_hangs_shows_no_life() -> None:
    """Its threads and its main thread are all right."""
    signs: list[bool] = []
    with serving(FakeEngine(BatchLimits(2, 64, 1000))) as running:
        running.server.show_life(signs.append)
        eventually(lambda: signs != [], "a sign of life")
        asked = threading.Event()
        held = threading.Event()
        descriptor = os.eventfd(1)

        def hang(events: int) -> None:
            os.eventfd_read(descriptor)
            asked.set()
            held.wait(20)

        running.server._transport.watch(descriptor, hang)
        assert asked.wait(10)
        signs.clear()
        assert not held.wait(4 * heartbeat.INTERVAL_S)
        assert signs == []
        held.set()
        eventually(lambda: signs != [], "signs of life again")
        os.close(descriptor)
