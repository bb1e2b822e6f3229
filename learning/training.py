"""The training loop: Adam on data term + beta KL / N for a budget of steps (learning.schedule).

The moving average of the weights is validated on held-out rows, and its best state is stored. A run can be resumed
after every validation, and is data-parallel under torchrun.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, distributed

from ghostless.contract.errors import ConfigError
from ghostless.heads.effect_variance import EffectVariance
from learning import effect_inputs, effect_size, id_effects
from learning.averaging import WeightAverage
from learning.calibration import calibrate
from learning.checkpoint import FILE, Build, Checkpoint, build_model, load_file, save_atomically
from learning.config import DECAY_ROWS, MOST_CALIBRATION_ROWS, ModelConfig, TrainConfig
from learning.data.encoding import Encoding
from learning.data.table import Dataset, Table, sample
from learning.errors import CheckpointError, DataError
from learning.model import Model, Network, Predict
from learning.pruning import prune, unit_use
from learning.schedule import Schedule

RESUME_FILE = "resume.pt"
# Number of training rows for the out-of-distribution threshold of serving (a percentile of the logit variance) and for
# finding hidden units without effect.
PROFILE_ROWS = 100_000
INFERENCE_ROWS = 8192
LEAST_BATCH_ROWS, MOST_BATCH_ROWS = 128, 1024
# The log standard deviations of the posterior change by several units, while weights change by fractions of one.
SPREAD_RATE = 20.0

Batch = tuple[dict[str, Tensor], Tensor]


@dataclass(frozen=True)
class Progress:
    """Progress, reported after every step, and again with the held-out loss after every validation.

    step: number of the step, 1 to `steps`; it is batch `batch` of `batches` in pass `epoch`, both counted from 1.
    """

    step: int
    steps: int
    epoch: int
    batch: int
    batches: int
    loss: float
    validation_loss: float | None = None


@dataclass(frozen=True)
class Shard:
    """This process among those that torchrun started."""

    rank: int = 0
    world: int = 1

    @classmethod
    def join(cls) -> "Shard":
        """Join the process group that torchrun's environment describes, if there is one."""
        world = int(os.environ.get("WORLD_SIZE", "1"))
        if world == 1:
            return cls()
        if not distributed.is_initialized():
            distributed.init_process_group("gloo")
        return cls(distributed.get_rank(), world)

    def batches(self, rows: int, batch_rows: int) -> int:
        """Number of batches of `batch_rows` rows that each process gets in one pass over `rows` rows (see
        `Dataset.batches`)."""
        return -(-(rows // self.world) // batch_rows)

    def average(self, model: Network) -> None:
        """Average the gradients over all processes, in one message."""
        if self.world == 1:
            return
        gradients = [p.grad for p in model.parameters() if p.grad is not None]
        flat = torch.cat([gradient.flatten() for gradient in gradients])
        distributed.all_reduce(flat)
        flat /= self.world
        for gradient, mean in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):
            gradient.copy_(mean.view_as(gradient))

    def same(self, value: float) -> float:
        """The mean of `value` over all processes."""
        if self.world == 1:
            return value
        mean = torch.tensor(value, dtype=torch.float64)
        distributed.all_reduce(mean)
        return mean.item() / self.world


@dataclass(frozen=True)
class Encoded:
    """A dataset encoded for the model. A table is encoded once and indexed; a stream is encoded while it is read.
    folded: whether rows are divided into parts (learning.effect_inputs)."""

    dataset: Dataset
    encoding: Encoding
    table: Batch | None
    folded: bool = False

    @classmethod
    def of(cls, dataset: Dataset, encoding: Encoding, folded: bool = False) -> "Encoded":
        table = _encode(dataset, encoding, folded) if isinstance(dataset, Table) else None
        return cls(dataset, encoding, table, folded)

    def batches(
        self, rows: int, seed: int | None = None, epoch: int = 0, shard: Shard | None = None, skip: int = 0
    ) -> Iterator[Batch]:
        """All rows once, like `Dataset.batches`, without the first `skip` batches."""
        shard = shard or Shard()
        if self.table is None:
            for table in islice(self.dataset.batches(rows, seed, epoch, shard.rank, shard.world), skip, None):
                yield _encode(table, self.encoding, self.folded)
            return
        columns, target = self.table
        order = (
            np.arange(len(target)) if seed is None else np.random.default_rng((seed, epoch)).permutation(len(target))
        )
        for start in range(skip * rows * shard.world, len(order), rows * shard.world):
            span = order[start : start + rows * shard.world]
            share = len(span) // shard.world
            index = torch.from_numpy(span[shard.rank * share : (shard.rank + 1) * share])
            if share:
                yield {name: values[index] for name, values in columns.items()}, target[index]


def _encode(table: Table, encoding: Encoding, folded: bool) -> Batch:
    encoded = encoding.encode(table)
    if folded:
        codes = np.stack([encoded[name] for name in encoding.schema.id_names], 1)
        encoded[effect_inputs.FOLD_KEY] = effect_inputs.fold_of(encoding, codes, table.target)
    columns = {name: torch.from_numpy(values) for name, values in encoded.items()}
    return columns, torch.from_numpy(table.target)


class Parts(NamedTuple):
    """Disjoint random parts of a dataset; a part is None if the configuration gives it no rows."""

    train: Dataset
    validation: Dataset | None
    test: Dataset | None
    calibration: Dataset | None


def split(dataset: Dataset, config: TrainConfig) -> Parts:
    """Split a dataset; the result is the same in every process and every later evaluation."""
    test = validation = calibration = None
    if config.test:
        dataset, test = dataset.split(1.0 - config.test, config.seed)
    if config.calibration:
        share = min(config.calibration, MOST_CALIBRATION_ROWS / max(dataset.rows, 1))
        dataset, calibration = dataset.split(1.0 - share, config.seed + 2)
        calibration = calibration if calibration.rows else None
    if config.validation:
        dataset, validation = dataset.split(1.0 - config.validation, config.seed + 1)
    return Parts(dataset, validation, test, calibration)


class Trainer:
    """One run. `out` contains the checkpoint and, until the run is complete, the state for resuming it."""

    def __init__(
        self,
        dataset: Dataset,
        data: str,
        model_config: ModelConfig,
        config: TrainConfig,
        out: Path | None = None,
        build: Build = build_model,
        fit_encoding: Callable[[Dataset], Encoding] = Encoding.fit,
    ) -> None:
        self.config, self.model_config, self.data, self.out = config, model_config, data, out
        self.shard = Shard.join()
        self.fingerprint = dataset.fingerprint()
        train, validation, self.test, calibration = split(dataset, config)
        if train.rows < self.shard.world:
            raise DataError(f"{data}: {train.rows} rows left for training; use more data or hold out less")
        self.encoding = fit_encoding(train)
        self.calibration = None if calibration is None else sample(calibration, MOST_CALIBRATION_ROWS, config.seed)
        self.train_part = Encoded.of(train, self.encoding, folded=self._with_inputs())
        torch.manual_seed(config.seed)
        self.model = build(model_config, self.encoding)
        self.model.observe(columns for columns, _ in self.train_part.batches(INFERENCE_ROWS))
        self.effects = self._fit_effects(train)
        self.average = WeightAverage(self.model, config.average)
        self.optimizer = _optimizer(self.model, config, train.rows)
        # All processes start from the same weights, but drop different units and ids.
        torch.manual_seed(config.seed + 1_000_003 * (self.shard.rank + 1))
        self.train_rows = train.rows
        held_out = self.calibration if validation is None else validation
        self.held_out = None if held_out is None or not held_out.rows else Encoded.of(held_out, self.encoding)
        batch_rows = config.batch_rows or min(MOST_BATCH_ROWS, max(LEAST_BATCH_ROWS, train.rows // 10))
        self.batch_rows = max(1, batch_rows // self.shard.world)
        self.schedule = Schedule.of(config, self.shard.batches(train.rows, self.batch_rows))
        self.step, self.best, self.best_step, self.waited = 0, float("inf"), 0, 0
        self.best_state: dict[str, Any] | None = None

    def run(self, report: Callable[[Progress], None] = lambda _: None) -> Checkpoint:
        """Train to the end, resuming an interrupted run; returns the model with the best validation loss, or the last
        one if there are no held-out rows."""
        self._resume()
        while self.step < self.schedule.steps and not self._exhausted():
            self._train_pass(report)
        self.model.load_state_dict(self.best_state or self.average.network.state_dict())
        self._hold_inputs()
        self.model.eval()
        profiled = islice(self.train_part.batches(INFERENCE_ROWS, self.config.seed), -(-PROFILE_ROWS // INFERENCE_ROWS))
        use = unit_use(self.model, (columns for columns, _ in profiled))
        pruned = prune(self.model, use)
        rows = (columns for columns, _ in self.train_part.batches(INFERENCE_ROWS))
        self.model.settle(rows, self.config.beta)
        calibrate(self.model, self.encoding, self.calibration)
        self._settle_effects()
        checkpoint = Checkpoint(
            self.model,
            self.encoding,
            self.model_config,
            self.config,
            self.data,
            self.fingerprint,
            {**self._profile(), "live_units": use.live, "pruned_units": pruned},
            self.calibration,
        )
        if self.out is not None and self.shard.rank == 0:
            checkpoint.save(self.out)
            (self.out / RESUME_FILE).unlink(missing_ok=True)
        return checkpoint

    def _fit_effects(self, train: Dataset) -> EffectVariance | None:
        """Fit the effects of the ids, if the network has them as inputs or needs them for its epistemic variance."""
        with_inputs = self._with_inputs()
        if not self.encoding.schema.id_names or not (with_inputs or self._splits_by_effects()):
            return None
        rows = id_effects.effect_rows(self.encoding, train)
        fitted = id_effects.fit_effects(self.encoding, rows, self.calibration)
        if with_inputs:
            self.model.towers.inputs = effect_inputs.fit_inputs(self.encoding, rows, fitted)
            self._hold_inputs()
        return fitted

    def _with_inputs(self) -> bool:
        """Whether the network has effects of ids as inputs. Only the built-in backbone has tables for them."""
        config = self.model_config
        return config.effect_inputs and not config.own and bool(self.encoding.schema.id_names)

    def _hold_inputs(self) -> None:
        if self._with_inputs():
            self.model.towers.hold_inputs()

    def _splits_by_effects(self) -> bool:
        return isinstance(self.model, Model) and self.model_config.method == "vbll"

    def _settle_effects(self) -> None:
        """Set the effects from which the network computes its epistemic variance."""
        if isinstance(self.model, Model) and self._splits_by_effects() and self.effects is not None:
            self.model.effects = effect_size.settle(self.effects, self.model.predict, self.encoding, self.calibration)

    def _train_pass(self, report: Callable[[Progress], None]) -> None:
        """Train on the rest of the current pass over the training part, or until the run ends."""
        schedule = self.schedule
        epoch, skip = divmod(self.step, schedule.batches)
        batches = self.train_part.batches(self.batch_rows, self.config.seed, epoch, self.shard, skip)
        for batch, (columns, target) in enumerate(batches, start=skip + 1):
            loss = self._train_step(columns, target)
            self.step += 1
            place = (self.step, schedule.steps, epoch + 1, batch, schedule.batches)
            if not np.isfinite(loss):
                raise ConfigError(
                    f"training diverged in epoch {epoch + 1}: the loss is {loss}; "
                    f"use a smaller learning rate than {self.config.learning_rate:g}"
                )
            report(Progress(*place, loss))
            if schedule.validates(self.step):
                validation_loss = self._validate()
                if validation_loss is not None:
                    report(Progress(*place, loss, validation_loss))
                self._save_progress()
            if self.step == schedule.steps or self._exhausted():
                return

    def _train_step(self, columns: dict[str, Tensor], target: Tensor) -> float:
        self.model.train()
        for group in self.optimizer.param_groups:
            group["lr"] = group["initial_lr"] * self.schedule.rate(self.step)
        loss, kl = self.model(columns, target)
        self.optimizer.zero_grad(set_to_none=True)
        objective = loss + kl * (self.config.beta / self.train_rows)
        objective.backward()
        self.shard.average(self.model)
        self.optimizer.step()
        self._hold_inputs()
        self.average.update(self.model)
        value: float = loss.item()
        return value

    @torch.no_grad()
    def _validate(self) -> float | None:
        """Loss of the averaged weights on held-out rows, None if there are none; stores the best state so far."""
        if self.held_out is None:
            return None
        network = self.average.network
        total, rows = 0.0, 0
        for columns, target in self.held_out.batches(INFERENCE_ROWS):
            total += network(columns, target)[0].item() * len(target)
            rows += len(target)
        loss = self.shard.same(total / rows)
        self.waited += 1
        if loss < self.best:
            self.best, self.best_step, self.waited = loss, self.step, 0
            self.best_state = {name: value.clone() for name, value in network.state_dict().items()}
        return loss

    def _exhausted(self) -> bool:
        return bool(self.config.patience) and self.waited >= self.config.patience

    def _profile(self) -> dict[str, Any]:
        kept = self.best_step if self.best_state is not None else self.step
        return {
            "steps": self.step,
            "epochs": round(self.step / self.schedule.batches, 2),
            "kept_step": kept,
            "train_rows": self.train_rows,
            **usual_logit_variance(self.model.eval().predict, self.train_part, self.config.seed),
        }

    def _identity(self) -> dict[str, Any]:
        return {"fingerprint": self.fingerprint, "model": asdict(self.model_config), "train": asdict(self.config)}

    def _save_progress(self) -> None:
        if self.out is None or self.shard.world > 1:
            return
        self.out.mkdir(parents=True, exist_ok=True)
        content = {
            "identity": self._identity(),
            "step": self.step,
            "state": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "average": self.average.state_dict(),
            "random": torch.get_rng_state(),
            "best": (self.best, self.best_step, self.waited, self.best_state),
        }
        save_atomically(content, self.out / RESUME_FILE)

    def _resume(self) -> None:
        if self.out is None or not (self.out / RESUME_FILE).exists() or self.shard.world > 1:
            return
        content = load_file(self.out / RESUME_FILE)
        if content["identity"] != self._identity():
            raise CheckpointError(
                f"{self.out}: contains an unfinished run with other data or options; "
                f"use another --out, or delete {RESUME_FILE} to start again"
            )
        self.model.load_state_dict(content["state"])
        self.optimizer.load_state_dict(content["optimizer"])
        self.average.load_state_dict(content["average"])
        torch.set_rng_state(content["random"])
        self.step = content["step"]
        self.best, self.best_step, self.waited, self.best_state = content["best"]


def _optimizer(model: Network, config: TrainConfig, train_rows: int) -> torch.optim.Adam:
    """Adam with three groups: embeddings with their own rate and penalty, the posterior's spread with a higher rate,
    and the rest."""
    spread = [p for p in model.head.spread_parameters() if p.requires_grad]
    tables = model.tables()
    apart = {id(p) for p in (*spread, *tables)}
    rest = [p for p in model.parameters() if p.requires_grad and id(p) not in apart]
    rate = config.learning_rate
    groups: list[dict[str, Any]] = [
        {"params": rest, "lr": rate, "initial_lr": rate},
        {
            "params": tables,
            "lr": rate * config.embedding_rate,
            "initial_lr": rate * config.embedding_rate,
            "weight_decay": DECAY_ROWS / train_rows if config.embedding_decay is None else config.embedding_decay,
        },
        {"params": spread, "lr": rate * SPREAD_RATE, "initial_lr": rate * SPREAD_RATE},
    ]
    # With fused=True, a step over a table of 100,000 rows takes 2.5 ms on one core; by default, 32 ms.
    return torch.optim.Adam([group for group in groups if group["params"]], lr=rate, fused=True)


@torch.no_grad()
def usual_logit_variance(predict: Predict, train_part: Encoded, seed: int) -> dict[str, float]:
    """Percentiles of the logit variance over training rows, for the out-of-distribution threshold of serving."""
    variances: list[Tensor] = []
    for columns, _ in train_part.batches(INFERENCE_ROWS, seed):
        variances.append(predict(columns).logit_variance)
        if sum(map(len, variances)) >= PROFILE_ROWS:
            break
    median, high = np.quantile(torch.cat(variances).numpy(), [0.5, 0.999])
    return {"logit_variance_p50": float(median), "logit_variance_p999": float(high)}


def finished(out: Path) -> bool:
    """Whether `out` contains a complete run."""
    return (out / FILE).exists() and not (out / RESUME_FILE).exists()
