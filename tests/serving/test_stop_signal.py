import fcntl
import os
import pty
import signal
import subprocess
import sys
import termios
import time

from tests.support.processes import ROOT

# Waits as a server's main thread does, and says when it is told to stop.
SCRIPT = """
import signal
from serving.stop_signal import StopSignal
stop = StopSignal()
print("waiting", flush=True)
while not stop.wait(0.0):
    pass
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("stopped", stop.wait(0.0))
"""


def test_signals_that_come_at_any_moment_are_heard_and_never_block() -> None:
    """One that came while the one before was being handled, or its state looked at, once hung the process."""
    for _ in range(5):
        process = subprocess.Popen([sys.executable, "-c", SCRIPT], cwd=ROOT, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        assert process.stdout.readline() == "waiting\n"
        for _ in range(50):
            process.send_signal(signal.SIGTERM)
            time.sleep(0.0001)  # so that they come at different moments of the handling
        output, _ = process.communicate(timeout=10)
        assert output == "stopped True\n"
        assert process.returncode == 0


# Says what it hears within 10 s.
HANG_UP = """
import logging, signal, time
from serving.stop_signal import StopSignal
logging.basicConfig()
stop = StopSignal()
print("waiting", flush=True)
began = time.monotonic()
stopped = False
while time.monotonic() < began + 10 and not stopped:
    stopped = stop.wait(0.01)
print("stopped" if stopped else "not stopped", flush=True)
"""


def _start(**options: object) -> "subprocess.Popen[str]":
    process: subprocess.Popen[str] = subprocess.Popen(  # type: ignore[call-overload]  # options of many types
        [sys.executable, "-c", HANG_UP], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "waiting\n"
    return process


def test_without_a_terminal_sighup_is_logged_and_survived() -> None:
    process = _start(start_new_session=True)
    process.send_signal(signal.SIGHUP)
    assert process.stderr is not None
    assert "SIGHUP: nothing to reload" in process.stderr.readline()
    process.send_signal(signal.SIGTERM)
    assert process.communicate(timeout=10)[0] == "stopped\n"


def test_a_terminal_that_closes_stops_the_server() -> None:
    ours, its = pty.openpty()
    process = _start(start_new_session=True, preexec_fn=lambda: fcntl.ioctl(its, termios.TIOCSCTTY, 0))
    os.close(its)
    os.close(ours)
    assert process.communicate(timeout=10)[0] == "stopped\n"
