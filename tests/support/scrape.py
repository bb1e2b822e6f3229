"""Reading /metrics as Prometheus does."""

import urllib.error
import urllib.request

from prometheus_client.parser import text_string_to_metric_families

from tests.support.processes import ServeProcess


def metrics_url(server: ServeProcess) -> str:
    line = next(line for line in server.lines if line.startswith("metrics: "))
    return line.removeprefix("metrics: ")


def get(url: str) -> str:
    try:
        with urllib.request.urlopen(url, timeout=10) as response:
            text: str = response.read().decode()
    except urllib.error.HTTPError as error:
        # Otherwise its socket is closed by the garbage collector, with a warning in whatever test runs then.
        error.close()
        raise
    return text


def scrape(url: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Every sample by name and labels."""
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(get(url))
        for sample in family.samples
    }


def total(url: str, name: str, **labels: str) -> float:
    """Sum of all samples with this name and these labels."""
    wanted = set(labels.items())
    return sum(
        value for (sample, have), value in scrape(url).items() if sample == f"ghostless_{name}" and wanted <= have
    )
