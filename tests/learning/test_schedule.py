"""Step budget, learning rate and validations of a run."""

from itertools import pairwise

import pytest

from learning.config import TrainConfig
from learning.schedule import Schedule


@pytest.mark.parametrize(
    ("batches", "steps"), [(1, 800), (40, 800), (85, 1700), (125, 2500), (1000, 2500), (9000, 9000)]
)
def test_the_budget_is_20_passes_within_bounds_and_one_at_least(batches: int, steps: int) -> None:
    assert Schedule.of(TrainConfig(), batches).steps == steps


def test_epochs_and_steps_are_taken_by_their_word() -> None:
    assert Schedule.of(TrainConfig(epochs=3), 7).steps == 21
    assert Schedule.of(TrainConfig(steps=5), 7).steps == 5


def test_the_rate_warms_up_stays_and_falls_to_nothing() -> None:
    schedule = Schedule.of(TrainConfig(), 1)
    rates = [schedule.rate(step) for step in range(800)]
    assert rates[0] == pytest.approx(1 / 51)
    assert all(after > before for before, after in pairwise(rates[:51]))
    assert rates[50:401] == [1.0] * 351
    assert all(after < before for before, after in pairwise(rates[400:]))
    assert rates[-1] == pytest.approx(2 / 800)


def test_a_brief_run_warms_up_briefly() -> None:
    assert Schedule.of(TrainConfig(steps=20), 1).rate(2) == 1.0


@pytest.mark.parametrize("steps", [10, 25, 801, 1700])
def test_validations_are_even_and_the_last_step_has_one(steps: int) -> None:
    schedule = Schedule.of(TrainConfig(steps=steps), 1)
    at = [step for step in range(1, steps + 1) if schedule.validates(step)]
    assert len(at) == min(25, steps)
    assert at[-1] == steps
    gaps = {after - before for before, after in pairwise(at)}
    assert max(gaps) - min(gaps) <= 1
