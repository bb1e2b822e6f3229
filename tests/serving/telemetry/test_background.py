import errno
import threading

import pytest

from serving.telemetry.background import BackgroundWriter


def test_items_are_written_in_order_and_those_that_wait_at_the_end_too() -> None:
    written: list[int] = []
    writer = BackgroundWriter("test", written.append, 100)
    assert all(writer.offer(number) for number in range(100))
    assert writer.close(10.0)
    assert written == list(range(100))


def test_a_slow_disk_costs_items_and_not_time() -> None:
    held, written = threading.Event(), list[int]()
    taken = threading.Event()

    def write(item: int) -> None:
        taken.set()
        held.wait(30)
        written.append(item)

    writer = BackgroundWriter("test", write, 2)
    assert writer.offer(0)
    assert taken.wait(10)
    assert [writer.offer(number) for number in (1, 2, 3, 4)] == [True, True, False, False]
    assert not writer.close(0.1)
    held.set()
    assert writer.close(10.0)
    assert written == [0, 1, 2]


def test_a_failure_is_one_line_and_what_comes_next_is_tried(caplog: pytest.LogCaptureFixture) -> None:
    written: list[int] = []
    failed: list[None] = []

    def write(item: int) -> None:
        if item < 3:
            raise OSError(errno.ENOSPC, "No space left on device")
        written.append(item)

    writer = BackgroundWriter("test log", write, 10, on_failure=lambda: failed.append(None))
    for number in range(5):
        writer.offer(number)
        writer._attempt(writer._idle)  # as it does between items that come slowly
    assert writer.close(10.0)
    assert (written, len(failed)) == ([3, 4], 3)
    assert [record.message for record in caplog.records] == [
        "cannot write the test log: No space left on device (1 failures); the next write will try again",
        "the test log is written again, after 3 failures",
    ]
    assert not any(record.exc_info for record in caplog.records)


def test_a_fault_of_the_program_has_its_traceback_once(caplog: pytest.LogCaptureFixture) -> None:
    def write(item: int) -> None:
        raise ZeroDivisionError("no number")

    writer = BackgroundWriter("test log", write, 10)
    for number in range(5):
        writer.offer(number)
    assert writer.close(10.0)
    (record,) = caplog.records
    assert record.exc_info


def test_idle_is_called_while_nothing_comes() -> None:
    idle = threading.Event()
    writer: BackgroundWriter[object] = BackgroundWriter("test", lambda item: None, 1, idle.set)
    assert idle.wait(10)
    assert writer.close(10.0)
