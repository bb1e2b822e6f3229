"""Verifies at the end of every export that the graph answers as the model does; a failure leaves nothing behind."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from export import agreement, calibration, dropout_statistics, reference, rows, sampling
from export.builder import Array
from export.checks import Check, RunGraph
from export.graph import Networks
from export.options import Layout
from ghostless.contract import metadata

# Largest allowed relative error against torch, and between a row alone and the same row in a batch.
TOLERANCE = {"fp32": 1e-4, "fp16": 2e-2}
BATCH_TOLERANCE = {"fp32": 1e-5, "fp16": 2e-2}
LEVEL_UNIT = 1e-2
GINI = (metadata.CATEGORICAL_ALEATORIC, metadata.CATEGORICAL_EPISTEMIC, metadata.CATEGORICAL_EPISTEMIC_DELTA)
GINI_UNIT = 2e-3
IGNORANCE = (metadata.EPISTEMIC, metadata.EPISTEMIC_CANDIDATE, metadata.EPISTEMIC_LAST_LAYER)
RANDOM_ROWS = 10_000
BATCH_ROWS = 4096
ALONE_ROWS = 32
SAMPLED_ROWS = 48
# Allowed distance of the randomised PIT from uniform on calibration rows, in addition to what chance explains: the map
# has only 20 pieces, and with few rows it is shrunk.
PIT_DISTANCE = 0.01
DRAWS = 4000
# Part of the names of those checks that compare individual values, not averages.
AGAINST_TORCH = ": against torch, "


@dataclass(frozen=True)
class Report:
    """Everything that was checked, and by how much it passed."""

    checks: Sequence[Check]
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        return all(check.ok for check in self.checks)

    @property
    def largest_error(self) -> float | None:
        """Largest relative error against torch. None if the graph draws its own masks: there is then no exact answer to
        compare with."""
        return max((check.value for check in self.checks if AGAINST_TORCH in check.name), default=None)

    def failures(self) -> str:
        return "; ".join(f"{c.name} is {c.value:.3g}, allowed {c.bound:.3g}" for c in self.checks if not c.ok)

    def to_json(self) -> str:
        checks = [{**asdict(check), "ok": check.ok} for check in self.checks]
        return json.dumps({"ok": self.ok, "checks": checks, **self.facts}, indent=2) + "\n"

    def to_markdown(self) -> str:
        lines = ["# Verification", "", "| check | value | bound | ok |", "|---|---|---|---|"]
        lines += [f"| {c.name} | {c.value:.3g} | {c.bound:.3g} | {'yes' if c.ok else 'NO'} |" for c in self.checks]
        lines += ["", "| fact | value |", "|---|---|"]
        lines += [f"| {name} | {value} |" for name, value in self.facts.items()]
        return "\n".join(lines) + "\n"


def relative_error(
    got: Array, expected: Array, floor: float = 1e-2, scale: float = 0.0, least: Array | float = 0.0
) -> float:
    """Largest |got - expected| in units of |expected|, or of `floor` times the output's own scale (its 99.9th
    percentile, or `scale`), or of `least`, whichever is the largest: a probability of 1e-6 is a difference of float32
    numbers near 1, and can't be right to four digits."""
    scale = max(scale, float(np.quantile(np.abs(expected), 0.999)))
    unit = np.maximum(np.maximum(np.abs(expected), max(floor * scale, 1e-9)), least)
    return float(np.max(np.abs(got - expected) / unit, initial=0.0))


def error_against(
    expected: dict[str, Array], got: dict[str, Array], name: str, layout: Layout, tolerance: float = TOLERANCE["fp32"]
) -> float:
    """Relative error of one output, on a scale that is at least that of related outputs. `expected` includes the CDF;
    `tolerance` is the one for the precision."""
    noise = {
        **dict.fromkeys(IGNORANCE, metadata.ALEATORIC),
        metadata.CATEGORICAL_EPISTEMIC: metadata.CATEGORICAL_ALEATORIC,
        metadata.CATEGORICAL_EPISTEMIC_DELTA: metadata.CATEGORICAL_ALEATORIC,
    }.get(name)
    if name == metadata.QUANTILES:
        # A quantile is a location in the target's range, in which 0 has no special role. On a plateau of the CDF, for
        # example six bins between two modes with almost no mass, a rounding error of 1e-7 in the CDF moves the quantile
        # across all of them. There only the level can be compared; its unit is that of a CDF: itself, or a hundredth of
        # its scale if that is larger.
        unit = np.maximum(layout.levels, LEVEL_UNIT)
        moved = unit * reference.steepness(expected[metadata.CDF], layout, unit * tolerance)
        scale = float(layout.knots[-1] - layout.knots[0])
        return relative_error(got[name], expected[name], floor=0.1, scale=scale, least=moved)
    least: Array | float = 0.0
    if name in GINI and metadata.LOGIT_VARIANCE in expected:
        # Masses are exact to 1e-7. The paper's term is s^2 times a difference of sums of their squares, which vanishes
        # when one mass is near 1. Far from the data, where s^2 is large, this much of the term is rounding error.
        least = GINI_UNIT * expected[metadata.LOGIT_VARIANCE]
    # Masses are differences of heights, and moments are such masses times distances of up to the whole range.
    span = float(layout.knots[-1] - layout.knots[0])
    if name in GINI and {metadata.ALEATORIC, metadata.EPISTEMIC} <= set(expected):
        # The Gini index is split in the ratio of V: when V is small, its rounding error changes the ratio.
        least = np.maximum(least, LEVEL_UNIT * span**2 * _share(expected) / _variance(expected))
    if name == metadata.MEAN:
        least = LEVEL_UNIT * span
    is_difference = bool(layout.map_heights) or layout.head != "cr"
    if name == metadata.ALEATORIC and is_difference:
        least = LEVEL_UNIT * span**2
    if name in IGNORANCE and metadata.LOGIT_VARIANCE in expected:
        # The last layer's variance is the square of s times a difference of heights, so its rounding error grows with
        # s^2; at a trained model's s^2 of 0.005 this allows no error that matters. The rounding error of V enters with
        # the share that is epistemic.
        least = expected[metadata.LOGIT_VARIANCE]
        if name != metadata.EPISTEMIC_LAST_LAYER and is_difference:
            least = least + _share(expected)
        least = LEVEL_UNIT * span**2 * least
    if name in (metadata.BINS, metadata.ATOMS):
        # Differences of heights, whose scale is 1.
        return relative_error(got[name], expected[name], scale=1.0)
    if name == metadata.DENSITY:
        # A density is a mass divided by the width of the segment in which the grid point lies.
        least = LEVEL_UNIT / _widths_at(layout)
    # Epistemic outputs are compared on a hundredth of the noise's scale, and in half precision on all of it, because
    # members that almost agree differ by rounding. The Gini index has a scale of its own, like a CDF.
    share = max(1e-2, 50.0 * tolerance) if noise == metadata.ALEATORIC else 1.0
    scale = share * float(np.quantile(expected[noise], 0.999)) if noise in expected else 0.0
    return relative_error(got[name], expected[name], scale=scale, least=least)


def _widths_at(layout: Layout) -> Array:
    """Width of the segment in which each grid point lies, [g]; the whole range for points outside of it."""
    place = np.searchsorted(layout.knots, layout.grid, side="right")
    padded = np.concatenate([[np.inf], np.diff(layout.knots), [np.inf]])
    widths: Array = np.minimum(padded[place], layout.knots[-1] - layout.knots[0])
    return widths


def _share(expected: dict[str, Array]) -> Array:
    """The epistemic share of V, [n]."""
    if metadata.EPISTEMIC not in expected or metadata.ALEATORIC not in expected:
        return np.ones(())
    share: Array = expected[metadata.EPISTEMIC] / _variance(expected)
    return share


def _variance(expected: dict[str, Array]) -> Array:
    """V [n]."""
    both = expected[metadata.EPISTEMIC].astype(np.float64) + expected[metadata.ALEATORIC]
    return np.maximum(both, np.finfo(np.float64).tiny)


def verify(run: RunGraph, networks: Networks, layout: Layout, precision: str, seed: int = 0) -> Report:
    """`run` runs the exported file, loaded by the server's own loader."""
    encoding = networks.first.encoding
    count = RANDOM_ROWS if networks.members == 1 else RANDOM_ROWS // 4
    columns = rows.plausible(encoding, count, seed)
    corners = rows.extreme(encoding, seed)
    checks: list[Check] = []
    if networks.passes:
        for title, part in (("random rows", columns), ("extreme rows", corners)):
            checks += _sound(run(rows.fed(part)), layout, title)
        return Report(checks + dropout_statistics.verify(run, networks, columns, layout, TOLERANCE[precision], seed))
    judged = {metadata.CDF, metadata.LOGIT_VARIANCE, metadata.EPISTEMIC, metadata.ALEATORIC}
    with_cdf = replace(layout, outputs=tuple({*layout.outputs, *judged}))
    for title, part in (("random rows", columns), ("extreme rows", corners)):
        got, expected = run(rows.fed(part)), reference.answer(networks, part, with_cdf)
        for name in layout.outputs:
            error = error_against(expected, got, name, layout, TOLERANCE[precision])
            checks.append(Check(f"{name}{AGAINST_TORCH}{title}", error, TOLERANCE[precision]))
        checks += _sound(got, layout, title) + _agreeing(got, layout, title)
    checks += _batch_invariant(run, columns, layout, BATCH_TOLERANCE[precision])
    checks += _calibrated(run, networks, layout)
    if networks.method == "vbll":
        few = {name: values[:SAMPLED_ROWS] for name, values in columns.items()}
        served = run(rows.fed(few))
        encoded = [reference.encode(checkpoint, few) for checkpoint in networks.checkpoints]
        for figure in sampling.compare(networks, encoded, served, layout, DRAWS, seed):
            checks.append(Check(f"{figure.name}: against {DRAWS} posterior draws", figure.error, figure.allowed))
    return Report(checks)


def _calibrated(run: RunGraph, networks: Networks, layout: Layout) -> list[Check]:
    """Whether the map that was fitted on the calibration rows is the one that is served to them."""
    kept = networks.held_out
    if kept is None or not kept.rows or metadata.CDF not in layout.outputs:
        return []
    distance = calibration.pit_distance(run, kept, layout)
    return [Check("cdf: PIT's distance from uniform, calibration rows", distance, PIT_DISTANCE + 1.7 / kept.rows**0.5)]


def _sound(got: dict[str, Array], layout: Layout, title: str) -> list[Check]:
    """Properties that every answer must have, independent of torch."""
    bad = sum(int((~np.isfinite(values)).sum()) for values in got.values())
    checks = [Check(f"values that are not finite, {title}", bad, 0)]
    if metadata.BINS in got:
        excess = float(np.max(np.abs(got[metadata.BINS].sum(-1) - 1.0)))
        checks.append(Check(f"bins: distance of their sum from 1, {title}", excess, 1e-5))
        checks.append(Check(f"bins: most negative, {title}", float(-got[metadata.BINS].min()), 0.0))
    if metadata.ATOMS in got:
        checks.append(Check(f"atoms: most negative, {title}", float(-got[metadata.ATOMS].min()), 0.0))
    for name in (metadata.QUANTILES, metadata.CDF):
        if name in got and got[name].shape[1] > 1:
            checks.append(Check(f"{name}: largest step down, {title}", float(-np.diff(got[name]).min()), 1e-6))
    for name in (metadata.ALEATORIC, *IGNORANCE, metadata.LOGIT_VARIANCE, metadata.CATEGORICAL_ALEATORIC):
        if name in got:
            checks.append(Check(f"{name}: most negative, {title}", float(-got[name].min()), 0.0))
    return checks


def _agreeing(got: dict[str, Array], layout: Layout, title: str) -> list[Check]:
    """Whether the outputs that are computed from the CDF agree with it: to single precision, whatever the precision of
    the hidden layers."""
    if metadata.CDF not in got:
        return []
    expected, tolerance = agreement.read_from_cdf(got[metadata.CDF], layout), TOLERANCE["fp32"]
    names = (metadata.MEAN, metadata.QUANTILES, metadata.BINS, metadata.ATOMS)
    errors = {name: error_against(expected, got, name, layout) for name in names if name in got and expected[name].size}
    if metadata.EPISTEMIC in got and metadata.ALEATORIC in got:
        total = got[metadata.EPISTEMIC] + got[metadata.ALEATORIC]
        least = LEVEL_UNIT * float(layout.knots[-1] - layout.knots[0]) ** 2
        errors["aleatoric + epistemic"] = relative_error(total, expected[agreement.VARIANCE], least=least)
    return [Check(f"{name}: against the CDF, {title}", error, tolerance) for name, error in errors.items()]


def _batch_invariant(run: RunGraph, columns: dict[str, Array], layout: Layout, bound: float) -> list[Check]:
    """Compares a row alone with the same row in a batch of 4096. Bins and atoms are differences of heights, whose scale
    is 1; the disagreement of members may be tiny compared with the noise from which it is computed."""
    batch = {name: np.resize(values, BATCH_ROWS) for name, values in columns.items()}
    together = run(rows.fed(batch))
    alone = [run(rows.fed({name: values[i : i + 1] for name, values in batch.items()})) for i in range(ALONE_ROWS)]
    scales = {metadata.BINS: 1.0, metadata.ATOMS: 1.0}
    if metadata.ALEATORIC in together:
        scales |= dict.fromkeys(IGNORANCE, float(np.quantile(together[metadata.ALEATORIC], 0.999)))
    return [
        Check(
            f"{name}: a row alone against a batch of {BATCH_ROWS}",
            relative_error(
                np.concatenate([answer[name] for answer in alone]),
                together[name][:ALONE_ROWS],
                floor=0.1,
                scale=scales.get(name, 0.0),
            ),
            bound,
        )
        for name in layout.outputs
    ]
