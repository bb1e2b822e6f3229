"""Graphs with a known fault, to show that verification can detect it.

Each mutant has a fault in the closed forms that would make served numbers wrong but plausible. Most checks compare the
graph with torch, which would have the same fault. So a mutant must be caught by a check that does not: posterior draws,
the calibration rows, or the comparison of outputs with each other.
"""

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import onnxruntime as ort

from export import graph, verification
from export.builder import Array
from export.checks import RunGraph
from export.graph import Networks
from export.options import Layout
from ghostless.contract import distribution, metadata
from ghostless.heads.calibration import Calibration
from learning.checkpoint import Checkpoint

Answers = dict[str, Array]

# Used instead of a mutant's name for the unchanged graph.
HONEST = "none"


@dataclass(frozen=True)
class Mutant:
    """A fault by name, and the graph that has it; None if the model lacks the part that would be wrong."""

    name: str
    run: RunGraph | None


@dataclass(frozen=True)
class Caught:
    """The checks that fail for a mutant: those that use torch, and the others."""

    name: str
    by_torch: tuple[str, ...] = ()
    by_others: tuple[str, ...] = ()
    applies: bool = True

    @property
    def failed(self) -> tuple[str, ...]:
        return (*self.by_others, *self.by_torch)


def survey(networks: Networks, layout: Layout, precision: str = "fp32") -> Iterator[Caught]:
    """Verify the graph without a fault, which must pass, and then every mutant."""
    for mutant in (Mutant(HONEST, graph_run(networks, layout, precision)), *mutants(networks, layout, precision)):
        if mutant.run is None:
            yield Caught(mutant.name, applies=False)
            continue
        report = verification.verify(mutant.run, networks, layout, precision)
        failed = [check.name for check in report.checks if not check.ok]
        by_torch = tuple(name for name in failed if verification.AGAINST_TORCH in name)
        yield Caught(mutant.name, by_torch, tuple(name for name in failed if name not in by_torch))


def graph_run(networks: Networks, layout: Layout, precision: str = "fp32") -> RunGraph:
    """The graph, built and loaded."""
    content = graph.build(networks, layout, precision).model({}).SerializeToString()
    session = ort.InferenceSession(content, providers=["CPUExecutionProvider"])

    def run(columns: Answers) -> Answers:
        return dict(zip(layout.outputs, session.run(layout.outputs, columns), strict=True))

    return run


def mutants(networks: Networks, layout: Layout, precision: str = "fp32") -> list[Mutant]:
    honest = graph_run(networks, layout, precision)

    def changed(change: Callable[[Answers], Answers]) -> RunGraph:
        return lambda columns: change(honest(columns))

    unmapped = None
    if layout.map_heights is not None:
        unmapped = graph_run(networks, replace(layout, map_heights=None), precision)
    no_temperature = networks.first.model.head.calibration.temperature != 1.0
    has_context = networks.effects is not None and networks.effects.context
    return [
        Mutant("epistemic is 0", changed(lambda answers: _rescaled(answers, 0.0))),
        Mutant("epistemic times 3", changed(lambda answers: _rescaled(answers, 3.0))),
        Mutant("epistemic divided by 3", changed(lambda answers: _rescaled(answers, 1.0 / 3.0))),
        Mutant(
            "context and candidate swapped",
            graph_run(_with_first(networks, _swapped), layout, precision) if has_context else None,
        ),
        Mutant("no map", unmapped),
        Mutant("map on quantiles alone", None if unmapped is None else _both(unmapped, honest)),
        Mutant(
            "F(y-) = F(y) at atoms",
            changed(lambda answers: _without_atoms(answers, layout)) if len(layout.atoms) else None,
        ),
        Mutant(
            "no temperature",
            graph_run(_with_first(networks, _untempered), layout, precision) if no_temperature else None,
        ),
    ]


def _rescaled(answers: Answers, factor: float) -> Answers:
    """The graph with the epistemic part rescaled and the total unchanged."""
    total = answers[metadata.ALEATORIC] + answers[metadata.EPISTEMIC]
    parts = {name: np.minimum(factor * answers[name], total) for name in verification.IGNORANCE}
    return {**answers, **parts, metadata.ALEATORIC: total - parts[metadata.EPISTEMIC]}


def _both(others: RunGraph, quantiles: RunGraph) -> RunGraph:
    def run(columns: Answers) -> Answers:
        return {**others(columns), metadata.QUANTILES: quantiles(columns)[metadata.QUANTILES]}

    return run


def _without_atoms(answers: Answers, layout: Layout) -> Answers:
    """The graph with an atom's mass moved to the segment before it, in all outputs computed from the CDF."""
    cdf = answers[metadata.CDF].copy()
    opens = np.flatnonzero(np.diff(layout.knots) == 0)
    inner = opens[opens > 0]
    cdf[:, inner] = cdf[:, inner + 1]
    masses = np.diff(cdf)
    knots = layout.knots.astype(np.float32)
    centres = 0.5 * (knots[1:] + knots[:-1])
    mean = masses @ centres
    variance = (masses * ((centres - mean[:, None]) ** 2 + np.diff(knots) ** 2 / 12.0)).sum(-1)
    grown = variance / np.maximum(answers[metadata.ALEATORIC] + answers[metadata.EPISTEMIC], 1e-30)
    spoilt = {
        metadata.CDF: cdf,
        metadata.ATOMS: masses[:, opens],
        metadata.BINS: masses @ layout.bins_of_segments().astype(np.float32),
        metadata.QUANTILES: distribution.quantiles(cdf, knots, layout.levels.astype(np.float32)),
        metadata.MEAN: mean,
        **{name: answers[name] * grown for name in (metadata.ALEATORIC, metadata.EPISTEMIC)},
    }
    return {**answers, **{name: values.astype(np.float32) for name, values in spoilt.items() if name in answers}}


def _with_first(networks: Networks, change: Callable[[Checkpoint], None]) -> Networks:
    """The graph with a changed copy of the first network."""
    first = replace(networks.first, network=copy.deepcopy(networks.first.network))
    change(first)
    return replace(networks, checkpoints=(first, *networks.checkpoints[1:]))


def _swapped(checkpoint: Checkpoint) -> None:
    effects = checkpoint.model.effects
    assert effects is not None
    checkpoint.model.effects = replace(effects, context=frozenset(effects.names) - effects.context)


def _untempered(checkpoint: Checkpoint) -> None:
    head = checkpoint.model.head
    head.calibration = Calibration(1.0, head.calibration.heights)
