import signal
import subprocess
import sys
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
