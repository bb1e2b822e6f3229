"""Realistic requests for a model, generated from its schema before the measurement starts."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ghostless.client import Client, Model, PredictArguments, Tls
from ghostless.client.request import predict_request
from ghostless.contract.errors import InvalidModelError
from ghostless.contract.metadata import FeatureSpec, ModelMetadata
from loadtest.generator.plan import LoadPlan, RequestMix

# Number of popular ids to draw from; others would be so rare that drawing them only costs time.
_POPULAR = 100_000
_UNKNOWN_IDS = 1_000_000
_ASK_TIMEOUT_S = 10.0

Values = npt.NDArray[Any]


@dataclass(frozen=True)
class PreparedRequest:
    """A serialised PredictRequest without an id, and the number of rows that its response must have."""

    message: bytes
    rows: int


@dataclass(frozen=True)
class PreparedLoad:
    """The requests that are sent repeatedly, and the outputs that every response must have."""

    requests: list[PreparedRequest]
    outputs: tuple[str, ...]


def prepare_load(plan: LoadPlan, model: Model | None = None) -> PreparedLoad:
    """Prepare requests for the server at the plan's address. `model` describes the model if the server can't."""
    described = model or ask_model(plan)
    return PreparedLoad(prepare_requests(described, plan.mix, plan.seed), plan.mix.outputs or described.outputs)


def ask_model(plan: LoadPlan) -> Model:
    """The model to send requests to, as the server describes it."""
    mix = plan.mix
    tls = Tls.from_files(plan.tls_ca) if plan.tls_ca else None
    metadata = tuple(plan.metadata.items())
    with Client(plan.address, timeout_s=_ASK_TIMEOUT_S, connections=1, tls=tls, metadata=metadata) as client:
        return client.get_model(mix.model, mix.version)


def prepare_requests(model: Model, mix: RequestMix, seed: int) -> list[PreparedRequest]:
    """`mix.distinct` requests, each with one Zipf-distributed user and a few hundred candidates."""
    rng = np.random.default_rng(seed)
    draws = [_Draw(feature, mix, rng) for feature in _features(model)]
    fewest, most = mix.candidates
    counts = np.exp(rng.uniform(np.log(fewest), np.log(most + 1), mix.distinct)).astype(int).clip(fewest, most)
    return [_prepare(model, mix, draws, rows) for rows in counts.tolist()]


def _features(model: Model) -> tuple[FeatureSpec, ...]:
    """The model's features, with example values if the metadata has them."""
    try:
        return ModelMetadata.parse(model.metadata, model.name).features
    except InvalidModelError:
        return model.features


def _prepare(model: Model, mix: RequestMix, draws: list["_Draw"], rows: int) -> PreparedRequest:
    arguments = PredictArguments(
        model=mix.model,
        version=mix.version,
        outputs=mix.outputs,
        context={draw.feature.name: draw.values(1) for draw in draws if draw.feature.role == "context"},
        candidates={draw.feature.name: draw.values(rows) for draw in draws if draw.feature.role == "candidate"},
    )
    return PreparedRequest(predict_request(arguments).SerializeToString(), rows)


class _Draw:
    """Draws values of one feature."""

    def __init__(self, feature: FeatureSpec, mix: RequestMix, rng: np.random.Generator) -> None:
        self.feature = feature
        self._unknown_share = mix.unknown_share
        self._rng = rng
        if feature.type == "float32":
            usual = [float(value) for value in feature.examples] or [1.0, 100.0]
            self._range = min(usual), max(usual)
            return
        known = max(feature.vocabulary, 1)
        # Shuffled, so that the popular ids are not those with the fewest bytes.
        self._ids = rng.permutation(known)[:_POPULAR]
        weights = np.arange(1, len(self._ids) + 1, dtype=np.float64) ** -mix.zipf_exponent
        self._weights = weights / weights.sum()

    def values(self, n: int) -> Values:
        """n values [n]; ids without repetition if there are enough of them."""
        if self.feature.type == "float32":
            return self._rng.uniform(*self._range, n).astype(np.float32)
        ids = self._rng.choice(self._ids, n, replace=n > len(self._ids), p=self._weights)
        unknown = self.feature.vocabulary + self._rng.integers(0, _UNKNOWN_IDS, n)
        ids = np.where(self._rng.random(n) < self._unknown_share, unknown, ids)
        return ids.astype(str).astype(object) if self.feature.type == "string" else ids
