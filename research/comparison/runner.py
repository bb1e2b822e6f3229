"""Runs trainings and evaluations: takes results from the cache and gives the rest to the workers."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from research.comparison.cache import Cache, Judgement, Training
from research.comparison.results import RunFigures
from research.comparison.source import Source
from research.comparison.work import Work
from research.comparison.workers import Perform, workers

T = TypeVar("T", Training, Judgement)


@dataclass(frozen=True)
class Runner:
    """`perform` is None if nothing may be trained; then only cached results are used."""

    source: Source
    cache: Cache
    console: Console
    perform: Perform | None

    def train(self, trainings: Iterable[Training], title: str) -> None:
        self._do([training for training in _once(trainings) if not self.cache.trained(training)], title)

    def judge(self, judgements: Iterable[Judgement], title: str) -> None:
        """Requires that the networks to evaluate are trained."""
        self._do([judgement for judgement in _once(judgements) if self.cache.judged(judgement) is None], title)

    def figures(self, judgement: Judgement) -> RunFigures | None:
        """None if it has not been evaluated, or if one of its networks diverged."""
        figures = self.cache.judged(judgement)
        return None if figures is None or "diverged" in figures else figures

    def _do(self, missing: Sequence[Training | Judgement], title: str) -> None:
        if not missing or self.perform is None:
            return
        with self._progress(title, len(missing)) as done:
            self.perform([Work(self.source, self.cache.root, what) for what in missing], done)

    @contextmanager
    def _progress(self, title: str, total: int) -> Iterator[Callable[[Work], None]]:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=self.console, disable=not self.console.is_terminal) as bar:
            task = bar.add_task(f"{self.source.name}: {title}", total=total)
            count = 0

            def done(work: Work) -> None:
                nonlocal count
                count += 1
                bar.update(task, advance=1)
                if not self.console.is_terminal:
                    line = f"{self.source.name}: {title} {count}/{total}: {_name(work.what)}"
                    self.console.print(line, highlight=False, soft_wrap=True)

            yield done


@contextmanager
def runner(source: Source, root: Path, console: Console, jobs: int, cached_only: bool) -> Iterator[Runner]:
    """A runner with a folder for this data under `root`."""
    fingerprint = source.parts().fingerprint
    cache = Cache(root / f"{source.name}-{fingerprint[:8]}", fingerprint)
    if cached_only:
        yield Runner(source, cache, console, None)
        return
    with workers(jobs) as perform:
        yield Runner(source, cache, console, perform)


def _once(items: Iterable[T]) -> list[T]:
    unique: list[T] = []
    for item in items:
        if item not in unique:
            unique.append(item)
    return unique


def _name(what: Training | Judgement) -> str:
    """Text for the progress display."""
    training = what if isinstance(what, Training) else what.trainings[0]
    model = training.model
    network = model.baseline or f"{model.head}-{model.method}"
    kind = "" if isinstance(what, Training) else f" ({what.reading}, {what.part})"
    return f"{network} seed {training.train.seed}{kind}"
