"""The generator's own limit, measured with a server that does no work."""

from ghostless.client import Model
from loadtest.figures import Figures
from loadtest.generator.plan import STATUS_ONLY, LoadPlan, RequestMix
from loadtest.generator.requests import prepare_load
from loadtest.generator.result import LoadResult
from loadtest.generator.run import run_load
from loadtest.noop import noop_server

# Offered rate relative to the fastest variant. Slightly above the bound of 2, which could otherwise only just be
# reached.
_OFFERED = 2.1


def generator_figures(
    figures: Figures, model: Model, answer: bytes, fastest_per_s: float, *, seconds: float = 5.0, processes: int = 1
) -> LoadResult:
    """Check that the generator reaches twice `fastest_per_s`, the rate of the fastest variant, if every request for
    `model` is answered with `answer`, the bytes of a real response."""
    with noop_server(answer) as address:
        plan = LoadPlan(
            address,
            "constant",
            rate_per_s=_OFFERED * fastest_per_s,
            duration_s=seconds,
            processes=processes,
            mix=RequestMix(model=model.name),
            checks=STATUS_ONLY,
        )
        result = run_load(plan, prepared=prepare_load(plan, model))
    figures.console.print(
        f"  generator: {result.goodput_per_s:,.0f} requests/s answered with {len(answer):,} bytes each, "
        f"median delay of sending {1000 * result.lateness.percentile_s(50):.2f} ms, "
        f"{1e6 * result.generator_cpu_per_request_s:.0f} us of CPU per request",
        highlight=False,
    )
    times = result.goodput_per_s / fastest_per_s
    figures.add("generator with a no-op server, rate relative to the fastest variant", times, ">= 2")
    figures.add("generator with a no-op server, failed requests", result.failed, "== 0")
    return result
