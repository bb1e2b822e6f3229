"""What a served ONNX file says of itself: the `ghostless.*` metadata, written at export and read here.

This module is the contract between `export` (which writes it) and `serving` (which knows nothing else of a model).
Every value is a JSON text. The graph's inputs are the features by name, shape [n]; its outputs carry the names below.
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

from ghostless.contract.errors import InvalidModelError

# The format that is written. The server reads earlier ones too, so that it can be upgraded before its models are.
FORMAT = 3
# From this format on `cdf` is calibrated, as all outputs are. Before, only quantiles at the exported levels were.
CALIBRATED_CDF = 2
PREFIX = "ghostless."

# pool: a weighted linear pool of a QR and a CR network.
Head = Literal["qr", "cr", "pool"]
Method = Literal["vbll", "deterministic", "ensemble", "mc-dropout", "mc-dropout-fixed"]
FeatureType = Literal["int64", "float32", "string"]
Role = Literal["context", "candidate"]

# Output names of the graph, all float32 with the rows leading.
MEAN = "mean"  # [n]
QUANTILES = "quantiles"  # [n, levels]
BINS = "bins"  # [n, edges - 1]
ATOMS = "atoms"  # [n, atoms]: probability of each value in `atoms`, which is also inside its bin
CDF = "cdf"  # [n, knots]: the predictive CDF at `knots`, 0 at the first and 1 at the last
ALEATORIC = "aleatoric"  # [n]
EPISTEMIC = "epistemic"  # [n]
EPISTEMIC_CANDIDATE = "epistemic_candidate"  # [n]: without the part that all rows of a request share by its context
EPISTEMIC_LAST_LAYER = "epistemic_last_layer"  # [n]: the last layer's own part, as the paper has it
LOGIT_VARIANCE = "logit_variance"  # [n]
CATEGORICAL_ALEATORIC = "categorical_aleatoric"  # [n], CR
CATEGORICAL_EPISTEMIC = "categorical_epistemic"  # [n], CR
CATEGORICAL_EPISTEMIC_DELTA = "categorical_epistemic_delta"  # [n], CR: the paper's d
DENSITY = "density"  # [n, grid]
EMG_DENSITY = "emg_density"  # [n, grid], QR: Proposition 1 averaged over the levels
UNKNOWN_IDS = "unknown_ids"  # [n, unknown_ids]: 1 where training never saw the id; for metrics, not for answers

# In `calibration`.
LOGIT_VARIANCE_P999 = "logit_variance_p999"
# How the quantiles at `levels` are calibrated: method, rows it was done on, levels asked of the CDF in their place.
CONFORMAL = "conformal"
# How the whole distribution is calibrated: temperature, the map's heights on a uniform grid, rows it was fitted on.
MAP = "map"
# Formats that are read, each with the keys that its files may lack; such a key takes the default of ModelMetadata.
# A new format adds a line, and its new keys to the lines before.
READABLE: Mapping[int, frozenset[str]] = {
    1: frozenset({"unknown_ids", "atoms", "effects", "pairs", "ranges"}),
    2: frozenset({"effects", "pairs", "ranges"}),
    3: frozenset(),
}

SCALAR_OUTPUTS = (
    MEAN,
    ALEATORIC,
    EPISTEMIC,
    EPISTEMIC_CANDIDATE,
    EPISTEMIC_LAST_LAYER,
    LOGIT_VARIANCE,
    CATEGORICAL_ALEATORIC,
    CATEGORICAL_EPISTEMIC,
    CATEGORICAL_EPISTEMIC_DELTA,
)


def candidate_variance(offered: Collection[str]) -> str:
    """The output that holds the candidates' own epistemic variance, of those that a graph offers. Files of the format
    before, and methods that do not tell the two apart, have only the whole."""
    return EPISTEMIC_CANDIDATE if EPISTEMIC_CANDIDATE in offered else EPISTEMIC


@dataclass(frozen=True)
class FeatureSpec:
    """One input of the graph. `vocabulary` is the number of ids seen in training, 0 for a number; `examples` are a few
    usual values, for the example call that a server prints."""

    name: str
    type: FeatureType
    role: Role
    vocabulary: int = 0
    examples: tuple[int | float | str, ...] = ()


@dataclass(frozen=True)
class TargetSpec:
    """What is predicted; predictions are distributions on [low, high]."""

    name: str
    unit: str
    low: float
    high: float


@dataclass(frozen=True)
class ModelMetadata:
    """Everything a client or server needs to know of one model file."""

    name: str
    head: Head
    method: Method
    features: tuple[FeatureSpec, ...]
    target: TargetSpec
    levels: tuple[float, ...]
    edges: tuple[float, ...]
    knots: tuple[float, ...]
    grid: tuple[float, ...] = ()
    calibration: Mapping[str, Any] = field(default_factory=dict)
    data_fingerprint: str = ""
    tools: Mapping[str, str] = field(default_factory=dict)
    created: str = ""
    # The id features that the columns of the output of this name speak of.
    unknown_ids: tuple[str, ...] = ()
    # Values that hold a point mass, each twice among `knots`.
    atoms: tuple[float, ...] = ()
    # How the ids' effects are distributed: features with prior, role and parent, rank and pair of the factors, noise,
    # level and gamma. Empty for a model without.
    effects: Mapping[str, Any] = field(default_factory=dict)
    # What held-out pairs of rows said of the split: the verdict, and the figures that it rests on.
    pairs: Mapping[str, Any] = field(default_factory=dict)
    # The least and greatest value of each number in training.
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    format: int = FORMAT

    @property
    def out_of_distribution_over(self) -> float | None:
        """The training set's 99.9th percentile of the logit variance; None where the file does not tell."""
        threshold = self.calibration.get(LOGIT_VARIANCE_P999)
        return None if threshold is None else float(threshold)

    @property
    def pair_verdict(self) -> str:
        """Whether the split was confirmed on held-out pairs: agrees, disagrees or unverified."""
        return str(self.pairs.get("verdict", "unverified"))

    def id_columns(self, role: Role) -> tuple[str, ...]:
        """The ids among the features of this role, in the file's order."""
        return tuple(feature.name for feature in self.features if feature.role == role and feature.type != "float32")

    def widths(self) -> dict[str, int]:
        """Columns of each output that is a matrix."""
        return {
            QUANTILES: len(self.levels),
            BINS: len(self.edges) - 1,
            ATOMS: len(self.atoms),
            CDF: len(self.knots),
            DENSITY: len(self.grid),
            EMG_DENSITY: len(self.grid),
            UNKNOWN_IDS: len(self.unknown_ids),
        }

    def dump(self) -> dict[str, str]:
        """As the ONNX file's metadata_props."""
        return {PREFIX + key: json.dumps(value) for key, value in asdict(self).items()}

    @classmethod
    def parse(cls, props: Mapping[str, str], source: str) -> "ModelMetadata":
        """From the ONNX file's metadata_props; `source` names the file in errors."""
        may_lack = READABLE[_read_format(props, source)]
        keys = [key for key in cls.__dataclass_fields__ if key not in may_lack or PREFIX + key in props]
        missing = [PREFIX + key for key in keys if PREFIX + key not in props]
        if missing:
            raise InvalidModelError(
                f"{source}: not a Ghostless model, its metadata lacks {', '.join(missing)}; "
                "export it with `ghostless export`"
            )
        try:
            values = {key: json.loads(props[PREFIX + key]) for key in keys}
        except json.JSONDecodeError as error:
            raise InvalidModelError(f"{source}: metadata is not JSON: {error}") from error
        for key, kind in (("head", Head), ("method", Method)):
            if values[key] not in get_args(kind):
                raise InvalidModelError(f"{source}: {key} is {values[key]!r}, expected one of {get_args(kind)}")
        try:
            values["features"] = tuple(
                FeatureSpec(**{**feature, "examples": tuple(feature.get("examples", ()))})
                for feature in values["features"]
            )
            values["target"] = TargetSpec(**values["target"])
            for key in {"levels", "edges", "knots", "grid", "atoms"} & values.keys():
                values[key] = tuple(float(x) for x in values[key])
            if "ranges" in values:
                values["ranges"] = {
                    str(name): (float(low), float(high)) for name, (low, high) in values["ranges"].items()
                }
            if "unknown_ids" in values:
                values["unknown_ids"] = tuple(str(name) for name in values["unknown_ids"])
        except (TypeError, ValueError) as error:
            raise InvalidModelError(f"{source}: malformed metadata: {error}") from error
        return cls(**values)


def _read_format(props: Mapping[str, str], source: str) -> int:
    """The file's format, if it is one that is read. A file without any is judged by the other keys that it lacks."""
    text = props.get(PREFIX + "format", str(FORMAT))
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        raise InvalidModelError(f"{source}: metadata is not JSON: {error}") from error
    if isinstance(found, bool) or not isinstance(found, int) or found not in READABLE:
        newer = isinstance(found, int) and found > FORMAT
        cure = "upgrade the server, or export the model with its version" if newer else "export the model again"
        readable = " and ".join(str(number) for number in READABLE)
        raise InvalidModelError(f"{source}: metadata format {text}, this version reads {readable}; {cure}")
    return found
