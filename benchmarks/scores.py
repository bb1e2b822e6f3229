"""`ghostless bench scores`: what UCB and Thompson do to the demo's rankings, over the wire."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import numpy.typing as npt
import typer
from scipy import stats

from benchmarks.demo_model import DEFAULT_REPOSITORY, find_or_make_model
from ghostless.client import Client, Scoring, Thompson, Ucb
from learning.data.synthetic import DEMO_ROWS, SyntheticVideos
from learning.data.table import Table
from loadtest.figures import Figures
from loadtest.server_process import BenchError, running_server

Floats = npt.NDArray[np.float64]
Places = npt.NDArray[np.int64]

KNOWN, NEW = 40, 10
TOP = 10
WELL_KNOWN_ROWS = 50
# The part of the log that the demo is trained on: a fifth is for testing, a tenth of the rest for calibration.
TRAINED_SHARE = 0.72
_SCALE = 0.25
_NEW_FROM = 1 << 40
_VIEWS = 1000
_DRAWS = 200_000
# A cell with a smaller expectation is too small for the chi-square test.
_LEAST_EXPECTED = 5.0


@dataclass(frozen=True)
class ScoresPlan:
    """How much to ask; never what to demand."""

    users: int
    seeds_per_user: int
    seeds: int


FULL = ScoresPlan(users=200, seeds_per_user=20, seeds=10_000)
QUICK = ScoresPlan(users=50, seeds_per_user=10, seeds=10_000)


@dataclass(frozen=True)
class Asked:
    """One user's candidates, KNOWN videos and then NEW ones: features, how often training saw each video, and mean and
    root of the candidate's variance as served, [n] each."""

    user: int
    video: Places
    duration: npt.NDArray[np.float32]
    history: Floats
    mean: Floats
    deviation: Floats

    @property
    def is_new(self) -> npt.NDArray[np.bool_]:
        return self.video >= _NEW_FROM


@dataclass(frozen=True)
class Demo:
    """The served demo, and the log that it was trained on."""

    client: Client
    name: str
    log: Table

    def ask(self, seed: int) -> Asked:
        random, columns = np.random.default_rng(seed), self.log.columns
        views = random.integers(0, self.log.rows, _VIEWS)
        _, first = np.unique(columns["video_id"][views], return_index=True)
        shown = views[np.sort(first)[:KNOWN]]
        video = np.concatenate([columns["video_id"][shown], _NEW_FROM + np.arange(NEW)])
        duration = np.concatenate([columns["duration_ms"][shown], random.choice(columns["duration_ms"], NEW)])
        seen = TRAINED_SHARE * np.bincount(columns["video_id"])[columns["video_id"][shown]]
        user = int(columns["user_id"][views[0]])
        answer = self.client.predict(
            context={"user_id": user}, candidates={"video_id": video, "duration_ms": duration}, model=self.name
        )
        if answer.mean is None or answer.epistemic_candidate is None:
            raise BenchError("the model returns no mean or no epistemic variance, which the scores are made of")
        deviation = np.sqrt(answer.epistemic_candidate.astype(np.float64))
        history = np.concatenate([seen, np.zeros(NEW)])
        return Asked(user, video, duration, history, answer.mean.astype(np.float64), deviation)

    def score(self, asked: Asked, rule: Scoring) -> Floats:
        """The server's scores of these candidates, [n]."""
        answer = self.client.predict(
            context={"user_id": asked.user},
            candidates={"video_id": asked.video, "duration_ms": asked.duration},
            model=self.name,
            outputs=("mean",),
            scoring=rule,
        )
        if answer.score is None:
            raise BenchError(f"the server did not score by {rule}")
        return answer.score.astype(np.float64)


def bench(
    json_path: Annotated[Path | None, typer.Option("--json", help="Write the figures to this JSON file.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Use fewer users, with the same bounds.")] = False,
    repository: Annotated[
        Path, typer.Option(help="Model repository with the demo model of `make serve`.")
    ] = DEFAULT_REPOSITORY,
) -> None:
    """Check UCB and Thompson scores of the served demo, and measure how much they explore and what it costs."""
    figures, plan = Figures("ghostless bench scores"), QUICK if quick else FULL
    served = find_or_make_model(repository, "", figures.console)
    log = SyntheticVideos(seed=0).sample(DEMO_ROWS, seed=0)
    with running_server(repository) as server, Client(server.address, timeout_s=10.0) as client:
        demo = Demo(client, served.name, log)
        asked = [demo.ask(seed) for seed in range(plan.users)]
        measure_ucb(demo, figures, asked)
        measure_thompson(demo, figures, asked, plan.seeds_per_user)
        measure_first_places(demo, figures, asked[0], plan.seeds)
    figures.finish(json_path)


def measure_ucb(demo: Demo, figures: Figures, users: Sequence[Asked]) -> None:
    off, ranks, moved = [], [], []
    for asked in users:
        scores = demo.score(asked, Ucb(1.0))
        off.append(np.abs(scores - (asked.mean + asked.deviation)).max())
        known = asked.history >= WELL_KNOWN_ROWS
        ranks.append(stats.spearmanr(scores[known], asked.mean[known]).statistic)
        moved.append((_places(asked.mean) - _places(scores))[asked.is_new].mean())
    figures.add(
        "UCB: largest difference of the score from mean + sqrt(epistemic_candidate)", float(max(off)), "<= 1e-6"
    )
    name = f"UCB: Spearman with the mean, videos of {WELL_KNOWN_ROWS} training rows and more"
    figures.add(name, float(np.mean(ranks)), ">= 0.99")
    figures.add("UCB: places that new videos move up, of 50", float(np.mean(moved)), "> 0")


def measure_thompson(demo: Demo, figures: Figures, users: Sequence[Asked], seeds: int) -> None:
    differ, new, kept = [], [], []
    greedy_new = [bool(asked.is_new[asked.mean.argmax()]) for asked in users]
    for number, asked in enumerate(users):
        best = np.sort(asked.mean)[-TOP:].sum()
        for seed in range(seeds):
            scores = demo.score(asked, Thompson(number * seeds + seed))
            first = int(scores.argmax())
            differ.append(first != int(asked.mean.argmax()))
            new.append(bool(asked.is_new[first]))
            kept.append(asked.mean[np.argsort(-scores)[:TOP]].sum() / best)
    name, gain = f"Thompson, {len(users)} users x {seeds} seeds:", float(np.mean(new) - np.mean(greedy_new))
    figures.add(f"{name} first places that differ from the mean's", float(np.mean(differ)), ">= 0.05")
    figures.add(f"{name} new videos' share of first places minus the mean's", gain, "> 0")
    figures.add(f"{name} expected value of the top {TOP} / the mean's top {TOP}", float(np.mean(kept)), ">= 0.95")


def measure_first_places(demo: Demo, figures: Figures, asked: Asked, seeds: int) -> None:
    """Against the rule sampled in numpy, with a generator that knows nothing of the server's hash."""
    counted = np.bincount(
        [int(demo.score(asked, Thompson(seed)).argmax()) for seed in range(seeds)], minlength=len(asked.mean)
    )
    random = np.random.default_rng(0)
    drawn = asked.mean + _SCALE * asked.deviation * random.standard_normal((_DRAWS, len(asked.mean)))
    expected = np.bincount(drawn.argmax(axis=1), minlength=len(asked.mean)) * seeds / _DRAWS
    often = expected >= _LEAST_EXPECTED
    cells = np.stack([counted[often], np.round(expected[often] * _DRAWS / seeds)])
    rest = np.array([[counted[~often].sum()], [_DRAWS - cells[1].sum()]])
    table = np.hstack([cells, rest]) if rest.sum() else cells
    p = float(stats.chi2_contingency(table).pvalue) if table.shape[1] > 1 else 1.0
    figures.add(f"Thompson: first places over {seeds:,} seeds against numpy, {often.sum()} cells, p", p, "> 0.001")


def _places(scores: Floats) -> Places:
    """Of each candidate, from 0 for the best."""
    return np.argsort(np.argsort(-scores, kind="stable"), kind="stable")
