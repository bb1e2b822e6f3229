"""Traffic with known properties: rows as in training or drifted, outcomes drawn from the responses, and the clients'
own totals, to be compared with the server's metrics."""

import time
from collections import Counter, deque
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from ghostless.client import Client, Prediction, RetryPolicy
from ghostless.contract.metadata import FeatureSpec, ModelMetadata
from learning.data.synthetic import DEMO_ROWS, SyntheticVideos
from loadtest.server_process import BenchError
from loadtest.workload import Rows, ServedModel

Log = Mapping[str, npt.NDArray[Any]]

# Larger than any id or number in a training set.
_UNKNOWN_FROM = 1 << 40
_BEYOND = (20.0, 100.0)
_TIMEOUT_S = 10.0
# Delay between a response and its outcomes, and the period for which outcomes are reported together.
_LAG_S = 1.0
_BATCH_S = 0.5


@dataclass(frozen=True)
class TrafficKind:
    """How requests differ from the training data: ids of features with the roles in `unknown` are new, numbers are far
    too large or in another unit (`unit` times the training unit), and users behave differently (`behaviour`)."""

    name: str
    unknown: frozenset[str] = frozenset()
    out_of_range: bool = False
    behaviour: float = 1.0
    unit: float = 1.0


USUAL = TrafficKind("as in training")
NEW_USERS = TrafficKind("new users", unknown=frozenset({"context"}))
NEW_VIDEOS = TrafficKind("new videos", unknown=frozenset({"candidate"}))
IN_SECONDS = TrafficKind("durations in seconds, not milliseconds", unit=1000.0)
DRIFTED = TrafficKind("new users, new videos, long videos", frozenset({"context", "candidate"}), True, behaviour=2.0)


def demo_log(model: ServedModel) -> Log | None:
    """The demo's training data, by feature; None for other models, whose data are unknown."""
    described = ModelMetadata.parse(model.session.get_modelmeta().custom_metadata_map, str(model.path))
    views = SyntheticVideos(seed=0).sample(DEMO_ROWS, seed=0)
    return views.columns if described.data_fingerprint == views.fingerprint() else None


def draw_rows(
    model: ServedModel, kind: TrafficKind, n: int, random: np.random.Generator, log: Log | None = None
) -> Rows:
    """Candidates for one user: rows of the log, so that ids are as frequent as in training. Without a log, ids are
    drawn uniformly from the vocabulary, and numbers from the usual values."""
    if log is None:
        usual = {feature.name: _usual(feature, n, random) for feature in model.features}
    else:
        views = random.integers(0, len(next(iter(log.values()))), n)
        usual = {feature.name: log[feature.name][views] for feature in model.features}
    columns = {feature.name: _changed(feature, kind, usual[feature.name], random) for feature in model.features}
    context = {feature.name for feature in model.features if feature.role == "context"}
    return Rows(
        context={name: values[:1] for name, values in columns.items() if name in context},
        candidates={name: values for name, values in columns.items() if name not in context},
    )


def draw_outcomes(answer: Prediction, kind: TrafficKind, random: np.random.Generator) -> npt.NDArray[np.float32]:
    """Draw one value [n] from each row's predictive distribution, given by its bins.

    With uniform levels the model is right; with levels raised to a power above 1, low values are more frequent than
    predicted.
    """
    if answer.bins is None or answer.edges is None:
        raise BenchError("the model returns no bins, so no outcomes can be drawn from its predictions")
    cumulative = np.cumsum(answer.bins.astype(np.float64), axis=1)
    levels = random.uniform(size=answer.rows) ** kind.behaviour * cumulative[:, -1]
    place = np.minimum((cumulative <= levels[:, None]).sum(axis=1), answer.bins.shape[1] - 1)
    rows = np.arange(answer.rows)
    mass = answer.bins[rows, place].astype(np.float64)
    share = 1.0 - np.clip((cumulative[rows, place] - levels) / np.maximum(mass, 1e-12), 0.0, 1.0)
    values: npt.NDArray[np.float32] = (
        answer.edges[place] + share * (answer.edges[place + 1] - answer.edges[place])
    ).astype(np.float32)
    return values


@dataclass
class TrafficTotals:
    """Totals of the clients' responses and reported outcomes."""

    requests: int = 0
    rows: int = 0
    seconds: list[float] = field(default_factory=list)
    epistemic_share: float = 0.0
    out_of_distribution: int = 0
    inside: Counter[str] = field(default_factory=Counter)
    joined: int = 0

    @property
    def mean_share(self) -> float:
        return self.epistemic_share / self.rows

    def coverage(self) -> dict[str, float]:
        """Coverage of each central interval, by its level as in the metrics' label."""
        return {level: inside / self.rows for level, inside in self.inside.items()}

    def add(self, other: "TrafficTotals") -> None:
        self.requests += other.requests
        self.rows += other.rows
        self.seconds += other.seconds
        self.epistemic_share += other.epistemic_share
        self.out_of_distribution += other.out_of_distribution
        self.inside += other.inside
        self.joined += other.joined


def note(seen: TrafficTotals, answer: Prediction, actuals: npt.NDArray[np.float32], threshold: float) -> None:
    """Add one response and its outcomes to the totals that the metrics should match."""
    parts = (answer.epistemic, answer.aleatoric, answer.logit_variance, answer.levels, answer.quantiles)
    epistemic, aleatoric, variance, levels, quantiles = parts
    if epistemic is None or aleatoric is None or variance is None or levels is None or quantiles is None:
        raise BenchError("the model returns no uncertainty or no quantiles, which the metrics need")
    seen.requests += 1
    seen.rows += answer.rows
    seen.epistemic_share += float(np.sum(epistemic / (epistemic + aleatoric), dtype=np.float64))
    seen.out_of_distribution += int((variance > threshold).sum())
    for low, level in enumerate(levels):
        for high in np.flatnonzero(np.isclose(levels, 1.0 - level, atol=1e-6)):
            if low < high:
                inside = (quantiles[:, low] <= actuals) & (actuals <= quantiles[:, high])
                seen.inside[f"{float(levels[high]) - float(level):g}"] += int(inside.sum())


class Traffic:
    """Clients of a server, each with one request at a time, at a steady rate; the outcome of every row is reported
    later."""

    def __init__(self, address: str, model: ServedModel, threshold: float, clients: int = 2, rows: int = 64) -> None:
        self._address = address
        self._model = model
        self._threshold = threshold
        self._log = demo_log(model)
        self._clients = clients
        self._rows = rows
        self._phases = 0

    def run(self, kind: TrafficKind, seconds: float, pause_s: float = 0.02) -> TrafficTotals:
        """Send requests of this kind for `seconds`; returns the totals."""
        self._phases += 1
        until = time.monotonic() + seconds
        with ThreadPoolExecutor(self._clients) as pool:
            names = [f"{self._phases}-{index}" for index in range(self._clients)]
            parts = list(pool.map(lambda name: self._ask(kind, name, until, pause_s), names))
        total = TrafficTotals()
        for part in parts:
            total.add(part)
        return total

    def _ask(self, kind: TrafficKind, name: str, until: float, pause_s: float) -> TrafficTotals:
        random, seen = np.random.default_rng([ord(letter) for letter in name]), TrafficTotals()
        waiting: deque[_DueOutcomes] = deque()
        # No retries, because they would be counted twice.
        with Client(self._address, timeout_s=_TIMEOUT_S, retry=RetryPolicy(max_attempts=1)) as client:
            while time.monotonic() < until:
                waiting.append(self._predict(client, kind, f"{name}-{seen.requests}", seen, random))
                time.sleep(pause_s)
                if time.monotonic() > waiting[0].due + _BATCH_S:
                    _report_due(client, waiting, seen)
            while waiting:
                time.sleep(max(0.0, waiting[-1].due - time.monotonic()))
                _report_due(client, waiting, seen)
        return seen

    def _predict(
        self, client: Client, kind: TrafficKind, request_id: str, seen: TrafficTotals, random: np.random.Generator
    ) -> "_DueOutcomes":
        arguments = draw_rows(self._model, kind, self._rows, random, self._log).arguments(self._model.name)
        arguments["request_id"] = request_id
        began = time.monotonic()
        answer = client.predict(**arguments)
        seen.seconds.append(time.monotonic() - began)
        actuals = draw_outcomes(answer, kind, random)
        note(seen, answer, actuals, self._threshold)
        return _DueOutcomes(time.monotonic() + _LAG_S, request_id, actuals)


@dataclass(frozen=True)
class _DueOutcomes:
    """Outcomes of one request, to be reported when they are due."""

    due: float
    request_id: str
    actuals: npt.NDArray[np.float32]


def _report_due(client: Client, waiting: "deque[_DueOutcomes]", seen: TrafficTotals) -> None:
    """Report all outcomes that are due, in one call."""
    due = [waiting.popleft() for _ in range(sum(each.due <= time.monotonic() for each in waiting))]
    if due:
        ids = [each.request_id for each in due for _ in each.actuals]
        rows = np.concatenate([np.arange(len(each.actuals)) for each in due])
        seen.joined += client.record_outcomes(ids, rows, np.concatenate([each.actuals for each in due])).joined


def _usual(feature: FeatureSpec, n: int, random: np.random.Generator) -> npt.NDArray[Any]:
    if feature.type == "float32":
        return random.choice([float(example) for example in feature.examples] or [1.0], n).astype(np.float32)
    ids = random.integers(0, max(feature.vocabulary, 1), n)
    return ids.astype(str).astype(object) if feature.type == "string" else ids


def _changed(
    feature: FeatureSpec, kind: TrafficKind, usual: npt.NDArray[Any], random: np.random.Generator
) -> npt.NDArray[Any]:
    """The values [n], changed for this kind of traffic."""
    if feature.type == "float32":
        beyond = usual.max() * random.uniform(*_BEYOND, len(usual)) if kind.out_of_range else usual
        return (beyond / kind.unit).astype(np.float32)
    if feature.role not in kind.unknown:
        return usual
    unknown = _UNKNOWN_FROM + random.integers(0, _UNKNOWN_FROM, len(usual))
    return unknown.astype(str).astype(object) if feature.type == "string" else unknown
