"""The table of methods: tune each on validation rows, train its seeds, evaluate all on the same test rows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from learning.config import TrainConfig
from research.comparison.cache import Judgement, Reconstruction, Training
from research.comparison.methods import BY_NAME, ENSEMBLE_SIZE, ComparedMethod, Setting
from research.comparison.results import MethodResult
from research.comparison.runner import Runner

# Number of networks, in addition to the seeds, from which ensembles take their members.
EXTRA_MEMBERS = 2


@dataclass(frozen=True)
class Tuned:
    """The settings tried and the chosen one: validation NLL per setting, None if it diverged or is missing."""

    setting: Setting
    tried: tuple[tuple[Setting, float | None], ...]


@dataclass(frozen=True)
class Row(MethodResult):
    """One method's."""

    method: ComparedMethod
    tuned: Tuned


@dataclass(frozen=True)
class TablePlan:
    """How much is trained, and how distributions are obtained."""

    seeds: int = 5
    # None: the budget of `ghostless train`.
    epochs: int | None = None
    tune: bool = True
    reconstruction: Reconstruction = "own"

    def training(self, method: ComparedMethod, setting: Setting, seed: int) -> Training:
        # The data is split beforehand; the run itself holds nothing out.
        base = TrainConfig(epochs=self.epochs, seed=seed, test=0.0, calibration=0.0)
        return Training(*method.configured(setting, base))

    def judgement(self, method: ComparedMethod, setting: Setting, seed: int) -> Judgement:
        """Ensembles take `ENSEMBLE_SIZE` neighbours from a ring of networks, so two ensembles share most of their
        members."""
        ring = max(self.seeds, ENSEMBLE_SIZE) + EXTRA_MEMBERS
        seeds = [(seed + i) % ring for i in range(ENSEMBLE_SIZE)] if method.reading == "ensemble" else [seed]
        trainings = tuple(self.training(method, setting, member) for member in seeds)
        return Judgement(method.reading, trainings, reconstruction=self.reconstruction)


def compare(runner: Runner, methods: Sequence[ComparedMethod], plan: TablePlan) -> list[Row]:
    """The rows of the table; a method without results (or whose runs all diverged) has no runs."""
    tuned = tune(runner, methods, plan)
    judgements = {
        method.name: [plan.judgement(method, tuned[method.name].setting, seed) for seed in range(plan.seeds)]
        for method in methods
    }
    wanted = [judgement for group in judgements.values() for judgement in group]
    runner.train((training for judgement in wanted for training in judgement.trainings), "training")
    runner.judge(wanted, "judging")
    rows = []
    for method in methods:
        figures = [runner.figures(judgement) for judgement in judgements[method.name]]
        runs = tuple(run for run in figures if run is not None)
        rows.append(Row(method.label, runs, method, tuned[method.name]))
    return rows


def tune(runner: Runner, methods: Sequence[ComparedMethod], plan: TablePlan) -> dict[str, Tuned]:
    """The best settings of each method by NLL on validation rows, with seed 0: first of the grid that all methods
    share, then of the values of its own hyperparameter combined with the best of the grid."""
    tuned_by = {method.name: BY_NAME[method.as_tuned] if method.as_tuned else method for method in methods}
    own = {method.name: method for method in tuned_by.values()}
    chosen = {name: Tuned({}, ()) for name in own}
    if plan.tune:
        chosen = _tried(runner, own, {name: (Tuned({}, ()), method.grid()) for name, method in own.items()}, plan)
        refined = {name: (chosen[name], method.refined(chosen[name].setting)) for name, method in own.items()}
        chosen = _tried(runner, own, refined, plan)
    return {name: chosen[method.name] for name, method in tuned_by.items()}


def _tried(
    runner: Runner,
    methods: Mapping[str, ComparedMethod],
    asked: Mapping[str, tuple[Tuned, list[Setting]]],
    plan: TablePlan,
) -> dict[str, Tuned]:
    """For each method, the settings tried so far together with those tried now."""
    judgements = {
        name: [(setting, _tuning_judgement(methods[name], setting, plan)) for setting in settings]
        for name, (_, settings) in asked.items()
    }
    wanted = [judgement for group in judgements.values() for _, judgement in group]
    runner.train((training for judgement in wanted for training in judgement.trainings), "tuning")
    runner.judge(wanted, "judging what was tuned")
    chosen = {}
    for name, (before, _) in asked.items():
        figures = ((setting, runner.figures(judged)) for setting, judged in judgements[name])
        now = tuple((setting, None if run is None else float(run["nll"])) for setting, run in figures)
        chosen[name] = _best(before.tried + now)
    return chosen


def _tuning_judgement(method: ComparedMethod, setting: Setting, plan: TablePlan) -> Judgement:
    return replace(plan.judgement(method, setting, 0), part="validation", reconstruction="own")


def _best(tried: tuple[tuple[Setting, float | None], ...]) -> Tuned:
    known = [(nll, index) for index, (_, nll) in enumerate(tried) if nll is not None]
    return Tuned(tried[min(known)[1] if known else 0][0], tried)
