"""Load from h2load, a C program, so that the generator is not the bottleneck."""

import re
import statistics
import struct
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from loadtest.programs import find_program
from loadtest.server_process import BenchError

METHOD = "/ghostless.v1.PredictionService/Predict"
WARM_UP_S = 1
# Maximum frame size that the client accepts; the default of 16 kB would split every response.
FRAMES = ("-f", str(1 << 20))


@dataclass(frozen=True)
class H2loadResult:
    """The result of one run of h2load."""

    requests: int
    failed: int
    requests_per_s: float


def find_h2load() -> str:
    return find_program("h2load")


@dataclass(frozen=True)
class Generator:
    """h2load with one gRPC message as its payload; with `is_http1`, one HTTP/1.1 POST of the message as it is.

    h2load only understands HTTP, where a gRPC error is a success with an empty body. So the received bytes are compared
    with `answer_bytes`, the size of a correct response. `headers` as NAME: VALUE. h2load checks no certificate.
    """

    program: str
    message: bytes
    answer_bytes: int
    path: str = METHOD
    is_http1: bool = False
    tls: bool = False
    headers: tuple[str, ...] = ()

    def throughput(self, address: str, concurrency: int, seconds: int) -> H2loadResult:
        """Closed loop with `concurrency` connections, each with one request in flight."""
        options = ["-D", str(seconds), f"--warm-up-time={WARM_UP_S}"]
        return self._run(address, [*options, "-c", str(concurrency), "-m", "1", "-t", "1", *FRAMES])

    def requests(self, address: str, concurrency: int, requests: int) -> H2loadResult:
        """Exactly `requests` requests, from `concurrency` connections with one request in flight each."""
        options = ["-n", str(requests), "-c", str(concurrency), "-m", "1", "-t", "1"]
        return self._run(address, [*options, *FRAMES])

    def median_latency_s(self, address: str, requests: int) -> float:
        """Median latency of `requests` sequential requests on one connection."""
        durations = self.latencies_s(address, requests)
        # The first ones are slower, because the connection is opened.
        return statistics.median(durations[len(durations) // 10 :])

    def latencies_s(self, address: str, requests: int) -> list[float]:
        """Latencies of `requests` sequential requests on one connection."""
        with tempfile.TemporaryDirectory() as folder:
            log = Path(folder) / "log"
            self._run(address, ["-n", str(requests), "-c", "1", "-m", "1", f"--log-file={log}"])
            # Start, status and duration in microseconds.
            return [int(line.split("\t")[2]) / 1e6 for line in log.read_text().splitlines()]

    def start(self, address: str, concurrency: int, seconds: float, log: Path) -> subprocess.Popen[str]:
        """Like `throughput`, but does not wait for the end. `log` gets a line for each request: start (microseconds
        since the epoch), HTTP status and duration. Pass the program's output to `check`."""
        duration = f"{round(1000 * seconds)}ms"
        options = ["-D", duration, "-c", str(concurrency), "-m", "1", "-t", "1", *FRAMES, f"--log-file={log}"]
        payload = log.with_suffix(".payload")
        payload.write_bytes(self._payload())
        command = self._command(address, options, payload)
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def check(self, status: int, text: str, problem: str) -> H2loadResult:
        """Parse h2load's output. Raises BenchError if the received bytes are not those of correct responses."""
        if status != 0:
            raise BenchError(f"h2load ended with status {status}: {problem.strip()[-300:]}")
        load, data_bytes = parse_report(text)
        if load.failed or data_bytes < 0.9 * load.requests * self.answer_bytes:
            raise BenchError(
                f"{load.failed} of {load.requests} requests failed under load, {data_bytes} bytes came back where "
                f"{load.requests * self.answer_bytes} were expected"
            )
        return load

    def _run(self, address: str, options: list[str]) -> H2loadResult:
        with tempfile.NamedTemporaryFile() as payload:
            payload.write(self._payload())
            payload.flush()
            command = self._command(address, options, Path(payload.name))
            ended = subprocess.run(command, capture_output=True, text=True, check=False)
        return self.check(ended.returncode, ended.stdout, ended.stderr)

    def _payload(self) -> bytes:
        return self.message if self.is_http1 else struct.pack(">BI", 0, len(self.message)) + self.message

    def _command(self, address: str, options: list[str], payload: Path) -> list[str]:
        grpc_headers = ("content-type: application/grpc", "te: trailers")
        kind = ("content-type: application/octet-stream",) if self.is_http1 else grpc_headers
        headers = [*(["--h1"] if self.is_http1 else []), *(f"-H{header}" for header in (*kind, *self.headers))]
        scheme = "https" if self.tls else "http"
        return [self.program, *options, *headers, "-d", str(payload), f"{scheme}://{address}{self.path}"]


def parse_report(text: str) -> tuple[H2loadResult, int]:
    """Parse h2load's output: the result, and the number of bytes in the response bodies."""
    rate = re.search(r"finished in .*?, ([\d.]+) req/s", text)
    requests = re.search(r"requests: .* (\d+) done, (\d+) succeeded", text)
    traffic = re.search(r"traffic: .*\((\d+)\) data", text)
    if rate is None or requests is None or traffic is None:
        raise BenchError(f"cannot parse the output of h2load: {text.strip()[-300:]}")
    done, succeeded = int(requests[1]), int(requests[2])
    if not done:
        raise BenchError("h2load completed no requests")
    return H2loadResult(done, done - succeeded, float(rate[1])), int(traffic[1])
