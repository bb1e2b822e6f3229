"""The options of an export: returned levels, bin edges, density grid, outputs, precision."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from export.errors import OptionError
from ghostless.contract import metadata
from ghostless.contract.metadata import Head
from ghostless.heads.bins import EVALUATION_BUCKETS
from ghostless.heads.calibration import Calibration
from learning.checkpoint import Checkpoint

Floats = npt.NDArray[np.float64]

LEVELS = (0.05, 0.1, 0.25, 0.4, 0.5, 0.6, 0.75, 0.9, 0.95)
# If there would be more bins than this, the paper's ten are returned.
MOST_BINS = 256

ALWAYS = (metadata.MEAN, metadata.QUANTILES, metadata.BINS, metadata.CDF)
UNCERTAINTY = (
    metadata.ALEATORIC,
    metadata.EPISTEMIC,
    metadata.EPISTEMIC_CANDIDATE,
    metadata.EPISTEMIC_LAST_LAYER,
    metadata.LOGIT_VARIANCE,
)
CATEGORICAL = (metadata.CATEGORICAL_ALEATORIC, metadata.CATEGORICAL_EPISTEMIC, metadata.CATEGORICAL_EPISTEMIC_DELTA)
ON_REQUEST = (metadata.DENSITY, metadata.EMG_DENSITY)


@dataclass(frozen=True)
class ExportOptions:
    """The options as given by the user; empty means the default for the model's head."""

    levels: tuple[float, ...] = LEVELS
    edges: tuple[float, ...] = ()
    grid: tuple[float, ...] = ()
    outputs: tuple[str, ...] = ()
    precision: Literal["fp32", "fp16"] = "fp32"


@dataclass(frozen=True)
class Layout:
    """The options resolved for one model: levels [q], edges [b + 1] strictly increasing, grid [g], and the model's own
    knots [k], non-decreasing, with the edges among them; a knot that appears twice is an atom."""

    head: str
    levels: Floats
    edges: Floats
    knots: Floats
    grid: Floats
    outputs: tuple[str, ...]
    # Heights of the calibration map on a uniform grid of probabilities; None for the identity.
    map_heights: tuple[float, ...] | None = None

    @property
    def atoms(self) -> Floats:
        """Values that have a point mass, [a]."""
        values: Floats = self.knots[:-1][np.diff(self.knots) == 0]
        return values

    def bins_of_segments(self) -> Floats:
        """[k - 1, b]: 1 if a segment belongs to the bin [l, u); an atom at the upper end belongs to the last bin."""
        place = np.searchsorted(self.edges, self.knots[:-1], side="right") - 1
        return np.eye(len(self.edges) - 1)[np.minimum(place, len(self.edges) - 2)]


def resolve(
    options: ExportOptions, checkpoint: Checkpoint, pooled: bool = False, calibration: Calibration | None = None
) -> Layout:
    """Check the options against the model and fill in its defaults.

    For a pool, `checkpoint` is its CR network. The default calibration is that of the checkpoint's head.
    """
    head: Head = "pool" if pooled else checkpoint.model_config.head
    grid = np.asarray(options.grid, np.float64)
    if grid.size and not _is_rising(grid):
        raise OptionError(f"grid points must be finite and increase strictly, got {list(options.grid)}")
    levels = np.asarray(options.levels, np.float64)
    if not _is_rising(levels) or levels[0] <= 0 or levels[-1] >= 1:
        raise OptionError(f"levels must increase strictly inside (0, 1), got {list(options.levels)}")
    knots: Floats = checkpoint.model.head.knots.double().numpy()
    fitted = calibration or checkpoint.model.head.calibration
    edges = _edges(options.edges, np.unique(knots))
    outputs = _outputs(options, checkpoint, head, bool((np.diff(knots) == 0).any()))
    return Layout(head, levels, edges, knots, grid, outputs, None if fitted.is_identity else fitted.heights)


def _is_rising(values: Floats) -> bool:
    """Whether there are values, all finite and strictly increasing."""
    return bool(values.size and np.isfinite(values).all() and (np.diff(values) > 0).all())


def _edges(given: tuple[float, ...], values: Floats) -> Floats:
    """The given edges, each replaced by the knot it matches. By default all distinct knots `values`, or the paper's
    evaluation buckets if that would be more than MOST_BINS bins."""
    if not given:
        return values if len(values) <= MOST_BINS + 1 else values[:: (len(values) - 1) // EVALUATION_BUCKETS]
    edges = np.asarray(given, np.float64)
    slack = 1e-6 * (values[-1] - values[0])
    if not _is_rising(edges) or abs(edges[0] - values[0]) > slack or abs(edges[-1] - values[-1]) > slack:
        raise OptionError(
            f"edges must increase strictly from {values[0]:g} to {values[-1]:g}, the target's range; "
            f"got {edges.tolist()}"
        )
    nearest = np.abs(edges[:, None] - values).argmin(1)
    strays = [
        edge for edge, knot in zip(edges.tolist(), values[nearest].tolist(), strict=True) if abs(edge - knot) > slack
    ]
    if strays:
        listed = ", ".join(f"{value:g}" for value in values)
        raise OptionError(f"edges must be among the model's knots, {listed}; {strays} are not")
    snapped: Floats = values[nearest]
    return snapped


def _outputs(options: ExportOptions, checkpoint: Checkpoint, head: Head, atoms: bool) -> tuple[str, ...]:
    available = ALWAYS + UNCERTAINTY + (CATEGORICAL if head == "cr" else ())
    if atoms:
        available += (metadata.ATOMS,)
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
