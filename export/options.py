"""What is chosen at export: returned levels, bin edges, density grid, the set of outputs, precision."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from export.errors import OptionError
from ghostless.contract import metadata
from ghostless.contract.metadata import Head
from learning.checkpoint import Checkpoint

Floats = npt.NDArray[np.float64]

LEVELS = (0.05, 0.1, 0.25, 0.4, 0.5, 0.6, 0.75, 0.9, 0.95)
QR_BINS = 10
QR_KNOTS = 20
NARROWEST = 1e-5

ALWAYS = (metadata.MEAN, metadata.QUANTILES, metadata.BINS, metadata.CDF)
UNCERTAINTY = (metadata.ALEATORIC, metadata.EPISTEMIC, metadata.LOGIT_VARIANCE)
CATEGORICAL = (metadata.CATEGORICAL_ALEATORIC, metadata.CATEGORICAL_EPISTEMIC, metadata.CATEGORICAL_EPISTEMIC_DELTA)
ON_REQUEST = (metadata.DENSITY, metadata.EMG_DENSITY)


@dataclass(frozen=True)
class ExportOptions:
    """As the user gave them; empty means the default for the model's head."""

    levels: tuple[float, ...] = LEVELS
    edges: tuple[float, ...] = ()
    grid: tuple[float, ...] = ()
    outputs: tuple[str, ...] = ()
    precision: Literal["fp32", "fp16"] = "fp32"
    # QR: segments of the piecewise-linear CDF that quantiles are read from.
    knots: int = QR_KNOTS


@dataclass(frozen=True)
class Layout:
    """The options resolved for one model: levels [q], edges [b + 1], knots [k + 1] (edges among them), grid [g]."""

    head: str
    levels: Floats
    edges: Floats
    knots: Floats
    grid: Floats
    outputs: tuple[str, ...]


def resolve(options: ExportOptions, checkpoint: Checkpoint, pooled: bool = False) -> Layout:
    """Check the options against the model and fill in its defaults. Of a pool, `checkpoint` is its CR network."""
    head: Head = "pool" if pooled else checkpoint.model_config.head
    target = checkpoint.schema.target
    grid = np.asarray(options.grid, np.float64)
    if grid.size and not _rising(grid):
        raise OptionError(f"grid points must be finite and increase strictly, got {list(options.grid)}")
    levels = np.asarray(options.levels, np.float64)
    if not _rising(levels) or levels[0] <= 0 or levels[-1] >= 1:
        raise OptionError(f"levels must increase strictly inside (0, 1), got {list(options.levels)}")
    if head != "qr":
        knots = np.linspace(target.low, target.high, checkpoint.model_config.bins + 1)
        edges = _edges(options.edges, knots, target.low, target.high)
        strays = [edge for edge in edges.tolist() if np.abs(knots - edge).min() > 1e-6]
        if strays:
            raise OptionError(f"a {head} model's edges must be among its {len(knots)} bin edges; {strays} are not")
    else:
        edges = _edges(options.edges, np.linspace(target.low, target.high, QR_BINS + 1), target.low, target.high)
        knots = choose_knots(edges, checkpoint.encoding.target_sample, options.knots)
    return Layout(head, levels, edges, knots, grid, _outputs(options, checkpoint, head))


def choose_knots(edges: Floats, target_sample: npt.NDArray[np.float32], segments: int) -> Floats:
    """The edges, and between them more knots where training had most of its mass: [segments + 1] or so.

    Splits again and again the segment with the largest mass x width, the area in which a linear CDF can be wrong. A
    target that sits on a few values could be cut for ever: a segment of NARROWEST of the range is cut no more.
    """
    knots, sample = list(edges), np.sort(target_sample)
    narrowest = NARROWEST * (edges[-1] - edges[0])
    while len(knots) < segments + 1:
        mass, widths = np.diff(np.searchsorted(sample, knots)) / len(sample), np.diff(knots)
        areas = np.where(widths > narrowest, mass * widths, 0.0)
        worst = int(np.argmax(areas))
        if not areas[worst]:
            break
        knots.insert(worst + 1, 0.5 * (knots[worst] + knots[worst + 1]))
    return np.asarray(knots, np.float64)


def _rising(values: Floats) -> bool:
    """Whether there are values, all finite, each above the one before."""
    return bool(values.size and np.isfinite(values).all() and (np.diff(values) > 0).all())


def _edges(given: tuple[float, ...], default: Floats, low: float, high: float) -> Floats:
    edges = np.asarray(given, np.float64) if given else default
    if not _rising(edges) or abs(edges[0] - low) > 1e-6 or abs(edges[-1] - high) > 1e-6:
        raise OptionError(
            f"edges must increase strictly from {low} to {high}, the target's range; got {edges.tolist()}"
        )
    return edges


def _outputs(options: ExportOptions, checkpoint: Checkpoint, head: Head) -> tuple[str, ...]:
    available = ALWAYS + UNCERTAINTY + (CATEGORICAL if head == "cr" else ())
    if checkpoint.schema.id_names:
        available += (metadata.UNKNOWN_IDS,)
    if options.grid:
        available += ON_REQUEST[:1] if head != "qr" or checkpoint.model_config.method != "vbll" else ON_REQUEST
    wanted = options.outputs or tuple(name for name in available if name != metadata.EMG_DENSITY)
    unknown = [name for name in wanted if name not in available]
    if unknown:
        hint = "; densities need --grid" if set(unknown) & set(ON_REQUEST) and not options.grid else ""
        raise OptionError(f"this {head} model has no output {', '.join(unknown)}; it has {', '.join(available)}{hint}")
    return tuple(name for name in available if name in wanted)
