"""How long a run trains and with which rate: a budget of steps, a warm-up, a plateau and a linear descent."""

from dataclasses import dataclass

from learning.config import TrainConfig

# Where neither epochs nor steps are given: this many passes, between these bounds. Small data needs more passes to
# converge; large data has said what it has to say after the upper bound, but every row is seen once.
DEFAULT_EPOCHS = 20
LEAST_STEPS = 800
MOST_STEPS = 2500


@dataclass(frozen=True)
class Schedule:
    """batches: steps of one pass over the training part."""

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
        # A brief run must not spend its steps on warming up.
        return cls(steps, batches, min(config.warmup_steps, steps // 10), min(config.validations, steps))

    def rate(self, step: int) -> float:
        """The learning rate's factor in the step that follows `step` others: rising over the warm-up, 1 until half of
        the steps are done, then falling linearly to 0."""
        warm = min(1.0, (step + 1) / (self.warmup_steps + 1))
        return min(warm, 2.0 * (1.0 - step / self.steps))

    def validates(self, step: int) -> bool:
        """Whether the held-out loss is computed after `step` steps: evenly, and after the last one."""
        return step * self.validations // self.steps > (step - 1) * self.validations // self.steps
