"""The training loop: Adam on data term + beta KL / N, resumable after every epoch, data-parallel under torchrun."""

import os
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, distributed

from ghostless.contract.errors import ConfigError
from ghostless.heads.calibration import MOST_ROWS
from learning.calibration import calibrate
from learning.checkpoint import FILE, Build, Checkpoint, build_model, load_file, save_atomically
from learning.config import ModelConfig, TrainConfig
from learning.data.encoding import Encoding
from learning.data.table import Dataset, Table, sample
from learning.errors import CheckpointError, DataError
from learning.model import Network, Predict

RESUME_FILE = "resume.pt"
# Rows whose logit variance tells what is usual in training (the out-of-distribution threshold of serving).
PROFILE_ROWS = 100_000
INFERENCE_ROWS = 8192
# The posterior's log standard deviations travel several units where weights travel fractions of one.
SPREAD_RATE = 20.0

Batch = tuple[dict[str, Tensor], Tensor]


@dataclass(frozen=True)
class Progress:
    """Told after every batch, and after every epoch with its losses."""

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
    """A dataset as the model takes it. A table is encoded once and indexed; a stream is encoded as it flows."""

    dataset: Dataset
    encoding: Encoding
    table: Batch | None

    @classmethod
    def of(cls, dataset: Dataset, encoding: Encoding) -> "Encoded":
        return cls(dataset, encoding, _encode(dataset, encoding) if isinstance(dataset, Table) else None)

    def batches(
        self, rows: int, seed: int | None = None, epoch: int = 0, shard: Shard | None = None
    ) -> Iterator[Batch]:
        shard = shard or Shard()
        if self.table is None:
            for table in self.dataset.batches(rows, seed, epoch, shard.rank, shard.world):
                yield _encode(table, self.encoding)
            return
        columns, target = self.table
        order = (
            np.arange(len(target)) if seed is None else np.random.default_rng((seed, epoch)).permutation(len(target))
        )
        for start in range(0, len(order), rows * shard.world):
            span = order[start : start + rows * shard.world]
            share = len(span) // shard.world
            index = torch.from_numpy(span[shard.rank * share : (shard.rank + 1) * share])
            if share:
                yield {name: values[index] for name, values in columns.items()}, target[index]


def _encode(table: Table, encoding: Encoding) -> Batch:
    columns = {name: torch.from_numpy(values) for name, values in encoding.encode(table).items()}
    return columns, torch.from_numpy(table.target)


class Parts(NamedTuple):
    """Disjoint random parts of a dataset; None where the configuration gives a part no rows."""

    train: Dataset
    validation: Dataset | None
    test: Dataset | None
    calibration: Dataset | None


def split(dataset: Dataset, config: TrainConfig) -> Parts:
    """The same for every process and every later evaluation."""
    test = validation = calibration = None
    if config.test:
        dataset, test = dataset.split(1.0 - config.test, config.seed)
    if config.calibration:
        dataset, calibration = dataset.split(1.0 - config.calibration, config.seed + 2)
    if config.validation:
        dataset, validation = dataset.split(1.0 - config.validation, config.seed + 1)
    return Parts(dataset, validation, test, calibration)


class Trainer:
    """One run. `out` keeps the checkpoint, and until the run is complete what is needed to resume it."""

    def __init__(
        self,
        dataset: Dataset,
        data: str,
        model_config: ModelConfig,
        config: TrainConfig,
        out: Path | None = None,
        build: Build = build_model,
    ) -> None:
        self.config, self.model_config, self.data, self.out = config, model_config, data, out
        self.shard = Shard.join()
        self.fingerprint = dataset.fingerprint()
        train, validation, self.test, calibration = split(dataset, config)
        if train.rows < self.shard.world:
            raise DataError(f"{data}: {train.rows} rows left for training; give more data or hold out less")
        self.encoding = Encoding.fit(train)
        torch.manual_seed(config.seed)
        self.model = build(model_config, self.encoding)
        self.optimizer = _optimizer(self.model, config)
        # Every process starts from the same weights but drops different units and ids.
        torch.manual_seed(config.seed + 1_000_003 * (self.shard.rank + 1))
        self.train_rows = train.rows
        self.train_part = Encoded.of(train, self.encoding)
        self.calibration = None if calibration is None else sample(calibration, MOST_ROWS, config.seed)
        self.validation_part = None if validation is None else Encoded.of(validation, self.encoding)
        self.epoch, self.best, self.best_epoch = 0, float("inf"), 0
        self.best_state: dict[str, Any] | None = None

    def run(self, report: Callable[[Progress], None] = lambda _: None) -> Checkpoint:
        """Train to the end, from where a cut-off run stopped; returns the best (or last) epoch's model."""
        self._resume()
        while self.epoch < self.config.epochs and not self._exhausted():
            self._train_epoch(report)
            self.epoch += 1
            self._validate(report)
            self._save_progress()
        if self.best_state is not None:
            self.model.load_state_dict(self.best_state)
        self.model.eval()
        self.model.settle(columns for columns, _ in self.train_part.batches(INFERENCE_ROWS))
        calibrate(self.model, self.encoding, self.calibration)
        checkpoint = Checkpoint(
            self.model,
            self.encoding,
            self.model_config,
            self.config,
            self.data,
            self.fingerprint,
            self._profile(),
            self.calibration,
        )
        if self.out is not None and self.shard.rank == 0:
            checkpoint.save(self.out)
            (self.out / RESUME_FILE).unlink(missing_ok=True)
        return checkpoint

    def _train_epoch(self, report: Callable[[Progress], None]) -> None:
        self.model.train()
        batch_rows = max(1, self.config.batch_rows // self.shard.world)
        batches = -(-self.train_rows // (batch_rows * self.shard.world))
        parts = self.train_part.batches(batch_rows, self.config.seed, self.epoch, self.shard)
        for index, (columns, target) in enumerate(parts, start=1):
            self._set_learning_rate((self.epoch + (index - 1) / batches) / self.config.epochs)
            loss, kl = self.model(columns, target)
            self.optimizer.zero_grad(set_to_none=True)
            objective = loss + kl * (self.config.beta / self.train_rows)
            objective.backward()
            self.shard.average(self.model)
            self.optimizer.step()
            if not loss.isfinite():
                raise ConfigError(
                    f"training diverged in epoch {self.epoch + 1}: the loss is {loss.item()}; "
                    f"take a smaller learning rate than {self.config.learning_rate:g}"
                )
            report(Progress(self.epoch + 1, index, batches, loss.item()))

    def _set_learning_rate(self, done: float) -> None:
        """Constant for the first half, then linear to 0; `done` is the share of all steps that is behind."""
        for group in self.optimizer.param_groups:
            group["lr"] = group["initial_lr"] * min(1.0, 2.0 * (1.0 - done))

    @torch.no_grad()
    def _validate(self, report: Callable[[Progress], None]) -> None:
        if self.validation_part is None:
            return
        self.model.eval()
        total, rows = 0.0, 0
        for columns, target in self.validation_part.batches(INFERENCE_ROWS):
            total += self.model(columns, target)[0].item() * len(target)
            rows += len(target)
        loss = self.shard.same(total / max(rows, 1))
        if loss < self.best:
            self.best, self.best_epoch = loss, self.epoch
            self.best_state = {name: value.clone() for name, value in self.model.state_dict().items()}
        report(Progress(self.epoch, 0, 0, float("nan"), loss))

    def _exhausted(self) -> bool:
        return bool(self.config.patience) and self.epoch - self.best_epoch >= self.config.patience

    def _profile(self) -> dict[str, Any]:
        return {
            "epochs": self.best_epoch if self.best_state is not None else self.epoch,
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
            "epoch": self.epoch,
            "state": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "random": torch.get_rng_state(),
            "best": (self.best, self.best_epoch, self.best_state),
        }
        save_atomically(content, self.out / RESUME_FILE)

    def _resume(self) -> None:
        if self.out is None or not (self.out / RESUME_FILE).exists() or self.shard.world > 1:
            return
        content = load_file(self.out / RESUME_FILE)
        if content["identity"] != self._identity():
            raise CheckpointError(
                f"{self.out}: holds an unfinished run with other data or options; "
                f"give another --out, or delete {RESUME_FILE} to start anew"
            )
        self.model.load_state_dict(content["state"])
        self.optimizer.load_state_dict(content["optimizer"])
        torch.set_rng_state(content["random"])
        self.epoch = content["epoch"]
        self.best, self.best_epoch, self.best_state = content["best"]


def _optimizer(model: Network, config: TrainConfig) -> torch.optim.Adam:
    """Adam in three groups: embeddings with their penalty, the posterior's spread with longer steps, the rest."""
    spread = [p for p in model.head.spread_parameters() if p.requires_grad]
    tables = [model.towers.table(name) for name in model.towers.tables]
    apart = {id(p) for p in (*spread, *tables)}
    rest = [p for p in model.parameters() if p.requires_grad and id(p) not in apart]
    rate = config.learning_rate
    groups: list[dict[str, Any]] = [
        {"params": rest, "lr": rate, "initial_lr": rate},
        {"params": tables, "lr": rate, "initial_lr": rate, "weight_decay": config.embedding_decay},
        {"params": spread, "lr": rate * SPREAD_RATE, "initial_lr": rate * SPREAD_RATE},
    ]
    # Fused, a step over a table of 100,000 rows takes 2.5 ms of one core; the default walks it ten times, in 32.
    return torch.optim.Adam([group for group in groups if group["params"]], lr=rate, fused=True)


@torch.no_grad()
def usual_logit_variance(predict: Predict, train_part: Encoded, seed: int) -> dict[str, float]:
    """What serving calls usual: percentiles of the logit variance over training rows."""
    variances: list[Tensor] = []
    for columns, _ in train_part.batches(INFERENCE_ROWS, seed):
        variances.append(predict(columns).logit_variance)
        if sum(map(len, variances)) >= PROFILE_ROWS:
            break
    median, high = np.quantile(torch.cat(variances).numpy(), [0.5, 0.999])
    return {"logit_variance_p50": float(median), "logit_variance_p999": float(high)}


def finished(out: Path) -> bool:
    """Whether `out` holds a complete run."""
    return (out / FILE).exists() and not (out / RESUME_FILE).exists()
