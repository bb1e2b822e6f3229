"""The `ghostless.*` metadata of an ONNX file, written at export and read here.

This module is the contract between `export`, which writes it, and `serving`, which knows nothing else about a model.
Every value is JSON. The graph's inputs are the features by name, shape [n]; its outputs have the names below.
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

from ghostless.contract.errors import InvalidModelError

# The format that is written. The server also reads earlier ones, so that it can be upgraded before its models.
FORMAT = 3
# The first format in which `cdf` is calibrated, like all outputs. Before, only quantiles at the exported levels were.
CALIBRATED_CDF = 2
PREFIX = "ghostless."

# pool: a weighted linear pool of a QR and a CR network.
Head = Literal["qr", "cr", "pool"]
Method = Literal["vbll", "deterministic", "ensemble", "mc-dropout", "mc-dropout-fixed"]
FeatureType = Literal["int64", "float32", "string"]
Role = Literal["context", "candidate"]

# Output names of the graph, all float32; the first dimension is the rows.
MEAN = "mean"  # [n]
QUANTILES = "quantiles"  # [n, levels]
BINS = "bins"  # [n, edges - 1]
ATOMS = "atoms"  # [n, atoms]: probability of each value in `atoms`, which is also inside its bin
CDF = "cdf"  # [n, knots]: the predictive CDF at `knots`, 0 at the first and 1 at the last
ALEATORIC = "aleatoric"  # [n]
EPISTEMIC = "epistemic"  # [n]
EPISTEMIC_CANDIDATE = "epistemic_candidate"  # [n]: without the part that all rows of a request share by the context
EPISTEMIC_LAST_LAYER = "epistemic_last_layer"  # [n]: the last layer's part, as in the paper
LOGIT_VARIANCE = "logit_variance"  # [n]
CATEGORICAL_ALEATORIC = "categorical_aleatoric"  # [n], CR
CATEGORICAL_EPISTEMIC = "categorical_epistemic"  # [n], CR
CATEGORICAL_EPISTEMIC_DELTA = "categorical_epistemic_delta"  # [n], CR: the paper's d
DENSITY = "density"  # [n, grid]
EMG_DENSITY = "emg_density"  # [n, grid], QR: Proposition 1 averaged over the levels
UNKNOWN_IDS = "unknown_ids"  # [n, unknown_ids]: 1 if the id is not in the training data; for metrics, not for responses

# In `calibration`.
LOGIT_VARIANCE_P999 = "logit_variance_p999"
# How the quantiles at `levels` are calibrated: method, number of rows, and the CDF levels that replace `levels`.
CONFORMAL = "conformal"
# How the whole distribution is calibrated: temperature, the map's values on a uniform grid, number of rows.
MAP = "map"
# Formats that are read, each with the keys that its files may lack; a missing key has the default of ModelMetadata. A
# new format adds a line here, and its new keys to the lines above it.
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
    """The output with the candidates' own epistemic variance, among those that a graph has. Older files, and methods
    that do not separate the two, only have the total."""
    return EPISTEMIC_CANDIDATE if EPISTEMIC_CANDIDATE in offered else EPISTEMIC


@dataclass(frozen=True)
class FeatureSpec:
    """One input of the graph. `vocabulary` is the number of ids in the training data, 0 for a number; `examples` are a
    few typical values, for the example call that a server prints."""

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
    """Everything that a client or server needs to know about one model file."""

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
    # The id features that the columns of the output `unknown_ids` refer to.
    unknown_ids: tuple[str, ...] = ()
    # Values with a point mass; each occurs twice among `knots`.
    atoms: tuple[float, ...] = ()
    # Distribution of the ids' effects: features with prior, role and parent, rank and pair of the factors, noise, level
    # and gamma. Empty for a model without effects.
    effects: Mapping[str, Any] = field(default_factory=dict)
    # Result of the pair test on held-out rows: the verdict and its figures.
    pairs: Mapping[str, Any] = field(default_factory=dict)
    # Minimum and maximum of each number in the training data.
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    format: int = FORMAT

    @property
    def out_of_distribution_over(self) -> float | None:
        """The training set's 99.9th percentile of the logit variance; None if the file does not contain it."""
        threshold = self.calibration.get(LOGIT_VARIANCE_P999)
        return None if threshold is None else float(threshold)

    @property
    def pair_verdict(self) -> str:
        """Verdict of the pair test on the epistemic variance: agrees, disagrees or unverified."""
        return str(self.pairs.get("verdict", "unverified"))

    def id_columns(self, role: Role) -> tuple[str, ...]:
        """The id features with this role, in the file's order."""
        return tuple(feature.name for feature in self.features if feature.role == role and feature.type != "float32")

    def widths(self) -> dict[str, int]:
        """Number of columns of each output that is a matrix."""
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
        """The metadata_props of an ONNX file."""
        return {PREFIX + key: json.dumps(value) for key, value in asdict(self).items()}

    @classmethod
    def parse(cls, props: Mapping[str, str], source: str) -> "ModelMetadata":
        """Parse the metadata_props of an ONNX file; `source` names the file in errors."""
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
    """The file's format, if it is supported. For a file without one, the other missing keys cause the error."""
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
