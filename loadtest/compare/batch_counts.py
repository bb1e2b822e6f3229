"""Mean batch size of an engine, from the metrics of the server that merges requests: Ghostless or Triton."""

import urllib.request
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

from serving.engines.triton.local_server import LOOPBACK, Ports, TritonServer

_TIMEOUT_S = 5.0
# Names of the samples with rows and runs; each is summed over all labels.
_FACADE = ("ghostless_batch_rows_sum", "ghostless_batch_rows_count")
_TRITON = ("nv_inference_count", "nv_inference_exec_count")


@dataclass(frozen=True)
class BatchCounter:
    """`options`: the flags that the facade needs so that its batches can be counted."""

    url: str
    samples: tuple[str, str]
    options: tuple[str, ...] = ()

    @classmethod
    def of(cls, triton: TritonServer | None) -> "BatchCounter":
        if triton is not None:
            return cls(f"http://{LOOPBACK}:{triton.ports.metrics}/metrics", _TRITON)
        port = Ports.free().metrics
        return cls(f"http://{LOOPBACK}:{port}/metrics", _FACADE, ("--metrics-port", str(port)))

    def read(self) -> tuple[float, float]:
        """Rows and runs so far; both 0 if there are no metrics."""
        try:
            with urllib.request.urlopen(self.url, timeout=_TIMEOUT_S) as answer:
                return sums(answer.read().decode(), self.samples)
        except OSError:
            return 0.0, 0.0


def sums(exposition: str, names: tuple[str, str]) -> tuple[float, float]:
    """The values of two samples of a Prometheus exposition, each summed over its labels."""
    totals = dict.fromkeys(names, 0.0)
    for family in text_string_to_metric_families(exposition):
        for sample in family.samples:
            # The parser appends _total to every counter's name, even if the server (Triton) did not.
            name = sample.name.removesuffix("_total")
            if name in totals:
                totals[name] += sample.value
    return totals[names[0]], totals[names[1]]
