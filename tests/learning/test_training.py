"""Training: it learns, repeats by seed, resumes to the bit, stops early, and takes tables and streams alike."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import torch

from ghostless.contract.errors import ConfigError
from learning.checkpoint import Checkpoint
from learning.config import ModelConfig, TrainConfig
from learning.data.stream import ParquetStream
from learning.data.synthetic import SyntheticVideos
from learning.data.table import Dataset, Table
from learning.errors import CheckpointError, DataError
from learning.evaluation import Evaluation, evaluate
from learning.metrics import discretised_nll, uniform_edges
from learning.schema import Feature, Schema, Target
from learning.training import RESUME_FILE, Progress, Trainer, finished
from tests.learning.conftest import brief_training, small_model

WORLD = SyntheticVideos(seed=0, users=300, items=100)
EDGES = uniform_edges(0.0, 3.0)
LEARN = brief_training(epochs=6, learning_rate=5e-3)


def trained(dataset: Dataset, model: ModelConfig, config: TrainConfig) -> tuple[Evaluation, Dataset]:
    """Predictions for the held-out part, and that part."""
    trainer = Trainer(dataset, "videos", model, config)
    checkpoint = trainer.run()
    assert trainer.test is not None
    return evaluate(checkpoint, trainer.test), trainer.test


def weights(checkpoint: Checkpoint) -> torch.Tensor:
    return torch.cat([value.flatten().double() for value in checkpoint.model.state_dict().values()])


def cut_off_in(epoch: int) -> Callable[[Progress], None]:
    def report(step: Progress) -> None:
        if step.epoch == epoch and step.batch == 2:
            raise KeyboardInterrupt

    return report


@pytest.fixture(scope="module")
def many_videos() -> Table:
    return WORLD.sample(20_000, seed=0)


@pytest.fixture(scope="module")
def histogram(many_videos: Table) -> tuple[Evaluation, Dataset]:
    return trained(many_videos, small_model(head="cr", bins=20), LEARN)


class TestLearning:
    def test_cr_beats_the_marginal_and_the_truth_beats_cr(self, histogram: tuple[Evaluation, Dataset]) -> None:
        judged, test = histogram
        assert isinstance(test, Table)
        share = np.histogram(judged.y, EDGES)[0] / len(judged.y)
        marginal = discretised_nll(np.tile(share, (len(judged.y), 1)), judged.y, EDGES)
        truth = discretised_nll(np.diff(WORLD.cdf(test, EDGES), axis=1), judged.y, EDGES)
        assert truth < judged.metrics().nll < marginal - 0.03

    def test_qr_learns_quantiles_that_spread_with_the_input(self) -> None:
        """y = x + (1 + x) noise: the 10% to 90% range widens with x."""
        random = np.random.default_rng(0)
        schema = Schema((Feature("x", kind="number", type="float32"),), Target("y", "", -8.0, 10.0))
        x = random.uniform(0.0, 1.0, 20_000).astype(np.float32)
        y = (x + (1 + x) * random.normal(size=len(x))).astype(np.float32)
        config = brief_training(epochs=8, learning_rate=1e-2, test=0.0)
        checkpoint = Trainer(
            Table(schema, {"x": x}, y), "noise", small_model(head="qr", dropout=0.0, bins=40), config
        ).run()
        ends = Table(schema, {"x": np.array([0.1, 0.9], np.float32)}, np.zeros(2, np.float32))
        encoded = {name: torch.from_numpy(values) for name, values in checkpoint.encoding.encode(ends).items()}
        with torch.no_grad():
            low, high = checkpoint.model.predict(encoded).quantiles(torch.tensor([0.1, 0.9])).T
        np.testing.assert_allclose(high - low, 2 * 1.2816 * np.array([1.1, 1.9]), rtol=0.15)

    def test_a_table_and_a_stream_of_the_same_rows_train_alike(
        self, many_videos: Table, histogram: tuple[Evaluation, Dataset], tmp_path: Path
    ) -> None:
        file = tmp_path / "videos.parquet"
        columns = {**many_videos.columns, many_videos.schema.target.name: many_videos.target}
        pyarrow.parquet.write_table(pa.table(columns), file, row_group_size=2000)
        stream = ParquetStream(file, many_videos.schema, buffer_rows=8000)
        streamed, _ = trained(stream, small_model(head="cr", bins=20), LEARN)
        # Other rows are held out and the order is another: the same but for that noise.
        assert streamed.metrics().nll == pytest.approx(histogram[0].metrics().nll, abs=0.05)


class TestRepetition:
    @pytest.mark.parametrize("head", ["qr", "cr"])
    def test_the_same_seed_gives_the_same_weights(self, videos: Table, head: str) -> None:
        runs = [Trainer(videos, "videos", small_model(head=head), brief_training(seed=s)).run() for s in (4, 4, 5)]
        assert torch.equal(weights(runs[0]), weights(runs[1]))
        assert weights(runs[0]).shape != weights(runs[2]).shape or not torch.equal(weights(runs[0]), weights(runs[2]))

    def test_the_seed_chooses_the_held_out_rows(self, videos: Table) -> None:
        parts = [Trainer(videos, "videos", small_model(), brief_training(seed=seed)).test for seed in (4, 4, 5)]
        prints = [part.fingerprint() for part in parts if part is not None]
        assert prints[0] == prints[1] != prints[2]


class TestResuming:
    config = brief_training(epochs=3, validation=0.1)

    def trainer(self, videos: Table, out: Path | None, config: TrainConfig | None = None) -> Trainer:
        return Trainer(videos, "videos", small_model(head="cr"), config or self.config, out)

    @pytest.mark.parametrize("epoch", [2, 3])
    def test_a_cut_off_run_ends_with_the_very_weights_of_an_undisturbed_one(
        self, videos: Table, tmp_path: Path, epoch: int
    ) -> None:
        with pytest.raises(KeyboardInterrupt):
            self.trainer(videos, tmp_path).run(cut_off_in(epoch))
        assert (tmp_path / RESUME_FILE).exists()
        assert not finished(tmp_path)
        seen: list[int] = []
        resumed = self.trainer(videos, tmp_path).run(lambda step: seen.append(step.epoch))
        assert min(seen) == epoch, "what was done before the cut must not be done again"
        assert torch.equal(weights(resumed), weights(self.trainer(videos, None).run()))
        assert finished(tmp_path)
        assert not (tmp_path / RESUME_FILE).exists()

    def test_a_cut_before_the_first_epoch_is_over_starts_anew(self, videos: Table, tmp_path: Path) -> None:
        with pytest.raises(KeyboardInterrupt):
            self.trainer(videos, tmp_path).run(cut_off_in(1))
        assert torch.equal(weights(self.trainer(videos, tmp_path).run()), weights(self.trainer(videos, None).run()))

    def test_other_options_or_data_are_refused(self, videos: Table, tmp_path: Path) -> None:
        with pytest.raises(KeyboardInterrupt):
            self.trainer(videos, tmp_path).run(cut_off_in(2))
        other = brief_training(epochs=3, validation=0.1, beta=0.5)
        with pytest.raises(CheckpointError, match="unfinished run with other data or options"):
            self.trainer(videos, tmp_path, other).run()
        with pytest.raises(CheckpointError, match="other data or options"):
            self.trainer(videos.take(slice(0, 2000)), tmp_path).run()

    def test_a_damaged_file_is_named(self, videos: Table, tmp_path: Path) -> None:
        (tmp_path / RESUME_FILE).write_bytes(b"half a file")
        with pytest.raises(CheckpointError, match=RESUME_FILE):
            self.trainer(videos, tmp_path).run()


class TestEarlyStopping:
    def test_stops_when_validation_does_not_improve_and_keeps_the_best(self, videos: Table) -> None:
        """Without a penalty on the embeddings 150 users are soon learnt by heart."""
        config = brief_training(epochs=30, validation=0.3, patience=2, learning_rate=0.02, embedding_decay=0.0)
        losses: dict[int, float] = {}

        def note(step: Progress) -> None:
            if step.validation_loss is not None:
                losses[step.epoch] = step.validation_loss

        checkpoint = Trainer(videos, "videos", small_model(head="cr"), config).run(note)
        best = min(losses, key=losses.__getitem__)
        assert len(losses) == best + 2 < 30
        assert checkpoint.metrics["epochs"] == best

    def test_patience_needs_a_validation_part(self) -> None:
        with pytest.raises(ConfigError, match="validation"):
            brief_training(patience=1)


def test_divergence_is_said_with_what_to_do(videos: Table) -> None:
    with pytest.raises(ConfigError, match=r"diverged in epoch 1.*smaller learning rate than 50"):
        Trainer(videos, "videos", small_model(head="cr"), brief_training(learning_rate=50.0)).run()


def test_too_few_rows_are_said_to_be_too_few(videos: Table) -> None:
    with pytest.raises(DataError, match=r"no rows|0 rows"):
        Trainer(videos.take(slice(0, 0)), "empty", small_model(), brief_training(test=0.0))


def test_the_step_size_is_constant_then_falls_to_nothing(videos: Table) -> None:
    trainer = Trainer(videos, "videos", small_model(), brief_training(epochs=4))
    rates: list[float] = []
    trainer.run(lambda step: rates.append(trainer.optimizer.param_groups[0]["lr"]))
    half = len(rates) // 2
    assert rates[:half] == [2e-3] * half
    assert all(after < before for before, after in zip(rates[half:], rates[half + 1 :], strict=False))
    assert rates[-1] < 2e-4
