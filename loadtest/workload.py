"""Rows for a model, both as a request to the server and as inputs of its graph."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime as ort

from ghostless.client import PredictArguments, Prediction
from ghostless.contract import metadata
from ghostless.contract.metadata import FeatureSpec, ModelMetadata
from ghostless.contract.repository import scan
from loadtest.bare_session import Feeds, bare_session
from loadtest.server_process import BenchError

# Outputs that a response can contain; the graph's other outputs (the CDF at its knots) are internal to the server.
ANSWERED = {
    metadata.MEAN: "mean",
    metadata.QUANTILES: "quantiles",
    metadata.BINS: "bins",
    metadata.ALEATORIC: "aleatoric",
    metadata.EPISTEMIC: "epistemic",
    metadata.EPISTEMIC_CANDIDATE: "epistemic_candidate",
    metadata.EPISTEMIC_LAST_LAYER: "epistemic_last_layer",
    metadata.LOGIT_VARIANCE: "logit_variance",
    metadata.CATEGORICAL_ALEATORIC: "categorical_aleatoric",
    metadata.CATEGORICAL_EPISTEMIC: "categorical_epistemic",
    metadata.CATEGORICAL_EPISTEMIC_DELTA: "categorical_epistemic_delta",
    metadata.DENSITY: "density",
}


@dataclass(frozen=True)
class ServedModel:
    """A model file of the repository and an ONNX Runtime session for it."""

    name: str
    path: Path
    session: ort.InferenceSession
    features: tuple[FeatureSpec, ...]
    outputs: list[str]

    def rows(self, n: int, seed: int) -> "Rows":
        """n random candidates for one random user; all ids are in the vocabulary."""
        rng = np.random.default_rng(seed)
        columns = {feature.name: _values(feature, n, rng) for feature in self.features}
        of_role = {role: [f.name for f in self.features if f.role == role] for role in ("context", "candidate")}
        return Rows(
            context={name: columns[name][:1] for name in of_role["context"]},
            candidates={name: columns[name] for name in of_role["candidate"]},
        )

    def infer(self, rows: "Rows") -> dict[str, npt.NDArray[np.float32]]:
        """The graph's outputs."""
        return dict(zip(self.outputs, self.session.run(self.outputs, rows.feeds()), strict=True))


@dataclass(frozen=True)
class Rows:
    context: Feeds
    candidates: Feeds

    def __len__(self) -> int:
        return len(next(iter(self.candidates.values())))

    def arguments(self, model: str) -> PredictArguments:
        return PredictArguments(context=self.context, candidates=self.candidates, model=model)

    def feeds(self) -> Feeds:
        return {name: np.repeat(values, len(self)) for name, values in self.context.items()} | self.candidates


def largest_difference(prediction: Prediction, expected: dict[str, npt.NDArray[np.float32]]) -> float:
    """Largest difference over all outputs; relative for expected values above 1."""
    worst = 0.0
    for output, values in expected.items():
        answered = getattr(prediction, ANSWERED[output])
        if answered is None or answered.shape != values.shape:
            raise BenchError(
                f"the response's {output} does not have the shape of the model's output, {list(values.shape)}"
            )
        worst = max(worst, float(np.max(np.abs(answered - values) / np.maximum(np.abs(values), 1.0))))
    return worst


def find_model(repository: Path, name: str) -> ServedModel:
    """The version in service of `name`, or of the first model by name."""
    entries = scan(repository)
    chosen = name or next(iter(entries), "")
    if chosen not in entries:
        raise BenchError(
            f"{repository} contains {f'no model {name!r}' if name else 'no model'}; `make serve` trains and exports "
            "a demo model, `ghostless export` exports your own"
        )
    entry = entries[chosen]
    return _load(chosen, entry.model_file(entry.in_service))


def _load(name: str, path: Path) -> ServedModel:
    session = bare_session(path)
    described = ModelMetadata.parse(session.get_modelmeta().custom_metadata_map, str(path))
    outputs = [output.name for output in session.get_outputs() if output.name in ANSWERED]
    return ServedModel(name, path, session, described.features, outputs)


def _values(feature: FeatureSpec, n: int, rng: np.random.Generator) -> npt.NDArray[Any]:
    ids = rng.integers(0, max(feature.vocabulary, 1), n)
    if feature.type == "string":
        return ids.astype(str).astype(object)
    if feature.type == "int64":
        return ids
    return rng.uniform(1.0, 100.0, n).astype(np.float32)
