"""A comparison of variants with figures that are easy to check by hand."""

from typing import get_args

from loadtest.compare.findings import Comparison, Measured, Point, Uncertainty
from loadtest.compare.variants import TITLES, HeadName, VariantKind

RATES: dict[VariantKind, float] = {
    "deterministic": 1000.0,
    "vbll": 900.0,
    "ensemble": 225.0,
    "five-call": 180.0,
    "triton-ensemble": 100.0,
    "mc-dropout-fixed": 75.0,
    "mc-dropout": 50.0,
}


def example() -> Comparison:
    """VBLL answers 900 requests/s, the fused ensemble a quarter of it, on two server cores."""
    measured = [_measured(head, kind, rate) for head in get_args(HeadName) for kind, rate in RATES.items()]
    return Comparison(
        engine="embedded",
        candidates=256,
        objective_ms=50.0,
        server_cores=2,
        command="ghostless loadtest compare --price-per-core-hour '<1>'",
        settings={"rounds": 3, "shared_cores": False},
        environment={"processor": "a processor & more", "cores": "4 of 4"},
        measured=measured,
        rates=[10.0, 100.0, 800.0],
        elapsed_s=321.0,
    )


def _measured(head: HeadName, kind: VariantKind, rate: float) -> Measured:
    return Measured(
        name=f"{head}-{kind}",
        title=f"{head.upper()} {TITLES[kind]}",
        head=head,
        kind=kind,
        engine_ms=[900 / rate, 1000 / rate, 1100 / rate],
        saturated_per_s=[0.9 * rate, rate, 1.1 * rate],
        cpu_s_per_million_rows=[4000 / rate] * 3,
        memory_mb=[180.0, 200.0, 190.0],
        batch_rows=[256.0] * 3,
        answer_bytes=24_700.0,
        points=[Point(r, r, 1000 / rate, 4000 / rate, 0.0) for r in (10.0, 100.0, 800.0) if r <= rate],
        rate_at_objective=0.8 * rate if kind != "mc-dropout" else 0.0,
        uncertainty=Uncertainty(0.5, 0.0 if kind == "deterministic" else 0.001, 0.5, 0.004),
    )
