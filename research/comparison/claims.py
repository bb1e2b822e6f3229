"""The paper's claims about its two methods, checked on the rows of a table."""

from collections.abc import Sequence
from dataclasses import dataclass

from research.comparison.table import Row

# NLL relative to the best single-pass method of the same kind, and to the ensemble of the same kind.
SINGLE_PASS_BOUND, ENSEMBLE_BOUND = 1.002, 1.01
# MC dropout and ensembles evaluate networks many times.
SINGLE_PASS = ("single", "conformal")


@dataclass(frozen=True)
class Claim:
    text: str
    ratio: float
    bound: float

    @property
    def holds(self) -> bool:
        return self.ratio <= self.bound


def claims(rows: Sequence[Row]) -> list[Claim]:
    """The claims whose rows are in the table."""
    known = {row.method.name: row for row in rows if row.runs}
    found = []
    for head in ("qr", "cr"):
        ours = known.get(f"{head}-vbll")
        if ours is None:
            continue
        others = [
            row
            for row in known.values()
            if row.method.family == head and row.method.reading in SINGLE_PASS and row is not ours
        ]
        if others:
            best = min(others, key=lambda row: row.mean("nll"))
            text = f"{ours.label}'s NLL / {best.label}'s, the best other {head.upper()} method of one pass"
            found.append(Claim(text, ours.mean("nll") / best.mean("nll"), SINGLE_PASS_BOUND))
        ensemble = known.get(f"{head}-ensemble")
        if ensemble is not None:
            text = f"{ours.label}'s NLL / {ensemble.label}'s"
            found.append(Claim(text, ours.mean("nll") / ensemble.mean("nll"), ENSEMBLE_BOUND))
    return found
