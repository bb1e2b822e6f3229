"""A real Prometheus for benchmarks and tests: on loopback, in its own folder, scraping twice a second."""

import json
import subprocess
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from loadtest.programs import find_program
from loadtest.server_process import BenchError, free_port

SCRAPE_S = 0.5
READY_TIMEOUT_S = 30.0
_HTTP_TIMEOUT_S = 10.0
_STOP_TIMEOUT_S = 10.0

Labels = Mapping[str, str]


@dataclass(frozen=True)
class Series:
    """One time series of a response: times in seconds since the epoch, and values."""

    labels: Labels
    times: list[float]
    values: list[float]


@dataclass(frozen=True)
class Sample:
    labels: Labels
    value: float


@dataclass(frozen=True)
class Prometheus:
    """The HTTP API of a running Prometheus."""

    url: str
    targets: list[str] = field(default_factory=list)

    def query(self, expression: str, at: float | None = None) -> list[Sample]:
        """The expression's instant vector; a scalar is one sample without labels."""
        answer = self._get("query", query=expression, **({} if at is None else {"time": f"{at:.3f}"}))
        if answer["resultType"] == "scalar":
            return [Sample({}, float(answer["result"][1]))]
        return [Sample(_labels(each), float(each["value"][1])) for each in answer["result"]]

    def value(self, expression: str, at: float | None = None) -> float:
        """The value of an expression that has exactly one sample."""
        samples = self.query(expression, at)
        if len(samples) != 1:
            raise BenchError(f"{expression} has {len(samples)} samples where one was expected: {samples[:3]}")
        return samples[0].value

    def query_range(self, expression: str, start: float, end: float, step_s: float) -> list[Series]:
        answer = self._get("query_range", query=expression, start=f"{start:.3f}", end=f"{end:.3f}", step=f"{step_s:g}")
        return [
            Series(_labels(each), [float(t) for t, _ in each["values"]], [float(v) for _, v in each["values"]])
            for each in answer["result"]
        ]

    def alerts(self) -> dict[str, list[Labels]]:
        """Alerts whose expression is true for the values scraped so far, pending or firing: their labels, by alert
        name."""
        self._evaluate(time.time() + SCRAPE_S)
        held: dict[str, list[Labels]] = {}
        for each in self._get("alerts")["alerts"]:
            held.setdefault(each["labels"]["alertname"], []).append(each["labels"])
        return held

    def healthy_targets(self) -> int:
        """Targets whose last scrape succeeded."""
        return sum(each["health"] == "up" for each in self._get("targets")["activeTargets"])

    def settle(self) -> None:
        """Wait until every target has been scraped again, late enough that the servers have published all values."""
        wanted = time.time() + SCRAPE_S
        until = time.monotonic() + READY_TIMEOUT_S
        while True:
            seen = {each.labels["instance"]: each.value for each in self.query("timestamp(up)")}
            if all(seen.get(target, 0.0) > wanted for target in self.targets):
                return
            if time.monotonic() > until:
                raise BenchError(
                    f"Prometheus has not scraped {self.targets} for {READY_TIMEOUT_S:g} s; last scrapes: {seen}"
                )
            time.sleep(SCRAPE_S / 2)

    def _evaluate(self, after: float) -> None:
        """Wait until every group of rules has been evaluated after that time.

        Prometheus evaluates each group at its own offset within the interval, which depends on a hash of the file's
        path. Alerts may therefore be evaluated before the recording rules that they use, and see values that are one
        interval old.
        """
        until = time.monotonic() + READY_TIMEOUT_S
        while True:
            groups = self._get("rules")["groups"]
            if all(datetime.fromisoformat(group["lastEvaluation"]).timestamp() > after for group in groups):
                return
            if time.monotonic() > until:
                raise BenchError(f"Prometheus has not evaluated its rules for {READY_TIMEOUT_S:g} s")
            time.sleep(SCRAPE_S / 4)

    def _get(self, path: str, **parameters: str) -> Any:
        address = f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(address, timeout=_HTTP_TIMEOUT_S) as response:
                return json.load(response)["data"]
        except urllib.error.HTTPError as error:
            said = json.loads(error.read() or b"{}").get("error", error.reason)
            raise BenchError(f"Prometheus rejects {parameters.get('query', path)}: {said}") from error


@contextmanager
def running_prometheus(targets: Sequence[str], rules: Path, scrape_s: float = SCRAPE_S) -> Iterator[Prometheus]:
    """Scrapes `targets` as job "ghostless" and evaluates the rules in the folder `rules`, until the block ends."""
    program = find_program("prometheus")
    with tempfile.TemporaryDirectory() as name:
        folder, port = Path(name), free_port()
        period = f"{round(1000 * scrape_s)}ms"
        config = {
            "global": {"scrape_interval": period, "scrape_timeout": period, "evaluation_interval": period},
            "rule_files": [str(rules.resolve() / "*.yml")],
            "scrape_configs": [{"job_name": "ghostless", "static_configs": [{"targets": list(targets)}]}],
        }
        # JSON is YAML.
        (folder / "prometheus.yml").write_text(json.dumps(config))
        log = folder / "log"
        options = [f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'data'}"]
        with log.open("wb") as sink:
            process = subprocess.Popen(
                [program, *options, f"--web.listen-address=127.0.0.1:{port}"], stdout=sink, stderr=subprocess.STDOUT
            )
        try:
            running = Prometheus(f"http://127.0.0.1:{port}", list(targets))
            _wait_ready(running, process, log)
            yield running
        finally:
            process.terminate()
            try:
                process.wait(_STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait_ready(prometheus: Prometheus, process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + READY_TIMEOUT_S
    while True:
        try:
            with urllib.request.urlopen(f"{prometheus.url}/-/ready", timeout=1.0):
                pass
            if prometheus.healthy_targets() == len(prometheus.targets):
                return
        except OSError:
            pass
        ended = process.poll()
        if ended is not None or time.monotonic() > until:
            state = "does not reach its targets" if ended is None else f"ended with status {ended}"
            last = " | ".join(log.read_text(errors="replace").splitlines()[-5:])
            raise BenchError(f"Prometheus {state}; its last output: {last or 'none'}")
        time.sleep(0.05)


def _labels(result: Mapping[str, Any]) -> Labels:
    return {name: value for name, value in result["metric"].items() if name != "__name__"}
