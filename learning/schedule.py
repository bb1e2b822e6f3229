"""Length and learning rate of a run: a budget of steps, a warm-up, a plateau and a linear descent."""

from dataclasses import dataclass

from learning.config import TrainConfig

# If neither epochs nor steps are given, a run has this many passes, within these bounds on steps. Small data need more
# passes to converge; large data gain nothing beyond the upper bound, but every row is used at least once.
DEFAULT_EPOCHS = 20
LEAST_STEPS = 800
MOST_STEPS = 2500


@dataclass(frozen=True)
class Schedule:
    """batches: number of steps in one pass over the training part."""

    steps: int
    batches: int
    warmup_steps: int
    validations: int

    @classmethod
    def of(cls, config: TrainConfig, batches: int) -> "Schedule":
        if config.steps is not None:
            steps = config.steps
        elif config.epochs is not None:
            steps = config.epochs * batches
        else:
            steps = max(LEAST_STEPS, min(DEFAULT_EPOCHS * batches, MOST_STEPS), batches)
        # A short run must not spend most of its steps on the warm-up.
        return cls(steps, batches, min(config.warmup_steps, steps // 10), min(config.validations, steps))

    def rate(self, step: int) -> float:
        """The factor of the learning rate after `step` steps: rising during the warm-up, 1 until half of the steps are
        done, then falling linearly to 0."""
        warm = min(1.0, (step + 1) / (self.warmup_steps + 1))
        return min(warm, 2.0 * (1.0 - step / self.steps))

    def validates(self, step: int) -> bool:
        """Whether the held-out loss is computed after `step` steps: at equal intervals, and after the last one."""
        return step * self.validations // self.steps > (step - 1) * self.validations // self.steps
