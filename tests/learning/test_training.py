"""Training: it learns, repeats by seed, resumes to the bit, stops early, and takes tables and streams alike."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import torch

from ghostless.contract.errors import ConfigError
from learning.backbone import SpectralLinear
from learning.checkpoint import Checkpoint
from learning.config import ModelConfig, TrainConfig
from learning.data.encoding import Encoding
from learning.data.stream import ParquetStream
from learning.data.synthetic import SyntheticVideos
from learning.data.table import Dataset, Table
from learning.errors import CheckpointError, DataError
from learning.evaluation import Evaluation, evaluate
from learning.metrics import discretised_nll, uniform_edges
from learning.schema import Feature, Schema, Target
from learning.training import RESUME_FILE, Encoded, Progress, Shard, Trainer, finished, split
from tests.support.training import brief_training, small_model

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


def first_weight(trainer: Trainer) -> torch.Tensor:
    return trainer.model.backbone.layers[0].get_parameter("weight").detach()


def cut_off_at(step: int) -> Callable[[Progress], None]:
    def report(progress: Progress) -> None:
        if progress.step == step:
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
    # With 9 or 10 batches a pass, all validations but the last lie inside a pass, at most 8 steps apart.
    config = brief_training(epochs=3, validations=4)

    def trainer(self, videos: Table, out: Path | None, config: TrainConfig | None = None) -> Trainer:
        return Trainer(videos, "videos", small_model(head="cr"), config or self.config, out)

    @pytest.mark.parametrize("step", [10, 26])
    @pytest.mark.parametrize("calibration", [0.1, 0.0])
    def test_a_cut_off_run_ends_with_the_very_weights_of_an_undisturbed_one(
        self, videos: Table, tmp_path: Path, step: int, calibration: float
    ) -> None:
        config = replace(self.config, calibration=calibration)
        with pytest.raises(KeyboardInterrupt):
            self.trainer(videos, tmp_path, config).run(cut_off_at(step))
        assert (tmp_path / RESUME_FILE).exists()
        assert not finished(tmp_path)
        seen: list[int] = []
        resumed = self.trainer(videos, tmp_path, config).run(lambda progress: seen.append(progress.step))
        assert min(seen) > step - 8, "what was done before the last validation must not be done again"
        assert torch.equal(weights(resumed), weights(self.trainer(videos, None, config).run()))
        assert finished(tmp_path)
        assert not (tmp_path / RESUME_FILE).exists()

    def test_a_stream_resumes_inside_a_pass_too(self, videos: Table, tmp_path: Path) -> None:
        columns = {**videos.columns, videos.schema.target.name: videos.target}
        pyarrow.parquet.write_table(pa.table(columns), tmp_path / "videos.parquet", row_group_size=500)
        stream = ParquetStream(tmp_path / "videos.parquet", videos.schema)
        model, out = small_model(head="cr"), tmp_path / "run"
        with pytest.raises(KeyboardInterrupt):
            Trainer(stream, "videos", model, self.config, out).run(cut_off_at(17))
        resumed = Trainer(stream, "videos", model, self.config, out).run()
        assert torch.equal(weights(resumed), weights(Trainer(stream, "videos", model, self.config).run()))

    def test_a_cut_before_the_first_validation_starts_anew(self, videos: Table, tmp_path: Path) -> None:
        with pytest.raises(KeyboardInterrupt):
            self.trainer(videos, tmp_path).run(cut_off_at(3))
        assert torch.equal(weights(self.trainer(videos, tmp_path).run()), weights(self.trainer(videos, None).run()))

    def test_other_options_or_data_are_refused(self, videos: Table, tmp_path: Path) -> None:
        with pytest.raises(KeyboardInterrupt):
            self.trainer(videos, tmp_path).run(cut_off_at(10))
        other = replace(self.config, beta=0.5)
        with pytest.raises(CheckpointError, match="unfinished run with other data or options"):
            self.trainer(videos, tmp_path, other).run()
        with pytest.raises(CheckpointError, match="other data or options"):
            self.trainer(videos.take(slice(0, 2000)), tmp_path).run()

    def test_a_damaged_file_is_named(self, videos: Table, tmp_path: Path) -> None:
        (tmp_path / RESUME_FILE).write_bytes(b"half a file")
        with pytest.raises(CheckpointError, match=RESUME_FILE):
            self.trainer(videos, tmp_path).run()


class TestEarlyStopping:
    def overfitting(self, **options: object) -> TrainConfig:
        """Without a penalty on the embeddings 150 users are soon learnt by heart."""
        hasty = {"epochs": 30, "validations": 30, "patience": 2, "learning_rate": 0.02, "embedding_decay": 0.0}
        return brief_training(**{**hasty, **options})

    @pytest.mark.parametrize("held_out", [{"calibration": 0.3}, {"calibration": 0.0, "validation": 0.3}])
    def test_stops_when_held_out_rows_get_no_better_and_keeps_the_best(
        self, videos: Table, held_out: dict[str, float]
    ) -> None:
        losses: dict[int, float] = {}

        def note(progress: Progress) -> None:
            if progress.validation_loss is not None:
                losses[progress.step] = progress.validation_loss

        # Of CR the covariance changes once more when training is over.
        model = small_model(head="cr", method="deterministic")
        trainer = Trainer(videos, "videos", model, self.overfitting(**held_out))
        checkpoint = trainer.run(note)
        best = min(losses, key=losses.__getitem__)
        assert list(losses).index(best) == len(losses) - 3, "two validations of patience"
        assert len(losses) < 30
        assert checkpoint.metrics["kept_step"] == best
        assert checkpoint.metrics["steps"] == max(losses)
        assert trainer.held_out is not None
        with torch.no_grad():
            (rows,) = trainer.held_out.batches(10_000)
            assert checkpoint.network(*rows)[0].item() == pytest.approx(losses[best], rel=1e-4)

    def test_without_held_out_rows_or_patience_it_runs_to_the_end(self, videos: Table) -> None:
        for options in ({"calibration": 0.0, "epochs": 3}, {"patience": 0, "epochs": 3}):
            metrics = Trainer(videos, "videos", small_model(head="cr"), self.overfitting(**options)).run().metrics
            assert metrics["epochs"] == 3.0

    def test_calibration_rows_are_never_trained_on_and_few(self, videos: Table) -> None:
        trainer = Trainer(videos, "videos", small_model(), brief_training())
        assert trainer.calibration is not None
        assert (trainer.train_rows, trainer.calibration.rows) == (2160, 240)
        many = SyntheticVideos(seed=0, users=50, items=20).sample(300_000, seed=0)
        calibration = split(many, TrainConfig(test=0.0)).calibration
        assert calibration is not None
        assert calibration.rows == 20_000


class TestAverage:
    def test_is_the_exponential_average_of_the_weights_after_each_step(self, videos: Table) -> None:
        trainer = Trainer(videos, "videos", small_model(), brief_training(steps=12, epochs=None, calibration=0.0))
        states: list[torch.Tensor] = []
        trainer.run(lambda _: states.append(first_weight(trainer).clone()))
        expected = states[0]
        for step, state in enumerate(states[1:], start=1):
            expected = torch.lerp(state, expected, min(0.99, (1 + step) / (10 + step)))
        torch.testing.assert_close(first_weight(trainer), expected)
        assert not torch.allclose(expected, states[-1])

    def test_none_is_the_last_steps_weights(self, videos: Table) -> None:
        options = {"steps": 5, "epochs": None, "calibration": 0.0, "average": 0.0}
        trainer = Trainer(videos, "videos", small_model(), brief_training(**options))
        states: list[torch.Tensor] = []
        trainer.run(lambda _: states.append(first_weight(trainer).clone()))
        assert torch.equal(first_weight(trainer), states[-1])

    def test_spectral_norm_is_folded_anew_after_every_step(self, videos: Table) -> None:
        trainer = Trainer(videos, "videos", small_model(backbone="sn+raw"), brief_training(validations=9))
        seen: list[torch.Tensor] = []

        def note(progress: Progress) -> None:
            if progress.validation_loss is not None:
                layer = trainer.average.network.backbone.layers[0]
                assert isinstance(layer, SpectralLinear)
                norm = torch.linalg.matrix_norm(layer.weight.detach().double(), ord=2).item()
                torch.testing.assert_close(layer.folded(), layer.weight.detach() * min(1.0, 1.0 / norm))
                seen.append(layer.folded())

        trainer.run(note)
        assert not torch.equal(seen[0], seen[-1])


def test_divergence_is_said_with_what_to_do(videos: Table) -> None:
    with pytest.raises(ConfigError, match=r"diverged in epoch 1.*smaller learning rate than 50"):
        Trainer(videos, "videos", small_model(head="cr"), brief_training(learning_rate=50.0)).run()


def test_too_few_rows_are_said_to_be_too_few(videos: Table) -> None:
    with pytest.raises(DataError, match=r"no rows|0 rows"):
        Trainer(videos.take(slice(0, 0)), "empty", small_model(), brief_training(test=0.0))


def test_a_numbers_unit_changes_no_prediction(videos: Table) -> None:
    answers = []
    for factor in (1.0, 1 / 60_000):
        columns = {**videos.columns, "duration_ms": (videos.columns["duration_ms"] * factor).astype(np.float32)}
        data = Table(videos.schema, columns, videos.target)
        checkpoint = Trainer(data, "videos", small_model(head="cr"), brief_training()).run()
        answers.append(evaluate(checkpoint, data).mean)
    np.testing.assert_allclose(answers[0], answers[1], atol=1e-3)


@pytest.mark.parametrize("rows", [1, 3, 511, 512, 513, 514, 1030])
@pytest.mark.parametrize("world", [1, 2, 3])
def test_a_pass_has_as_many_batches_as_are_counted(videos: Table, rows: int, world: int) -> None:
    """A pass that ended before its count would be looked for in vain when a run goes on."""
    table = videos.take(slice(0, rows))
    part = Encoded.of(table, Encoding.fit(videos))
    for rank in range(world):
        shard = Shard(rank, world)
        assert len(list(part.batches(256, 0, 0, shard))) == shard.batches(rows, 256)
        assert len(list(table.batches(256, 0, 0, rank, world))) == shard.batches(rows, 256)


def test_embeddings_have_their_own_rate_and_a_penalty_by_rows(videos: Table) -> None:
    def tables(**options: object) -> dict[str, float]:
        group: dict[str, float] = Trainer(videos, "v", small_model(), brief_training(**options)).optimizer.param_groups[
            1
        ]
        return group

    assert tables()["initial_lr"] == 4 * 2e-3
    assert tables()["weight_decay"] == pytest.approx(250 / 2160)
    assert tables(embedding_decay=1e-4)["weight_decay"] == 1e-4


@pytest.mark.parametrize(("rows", "expected"), [(500, 128), (4_000, 360), (40_000, 1024)])
def test_small_tables_are_trained_in_small_batches(rows: int, expected: int) -> None:
    """A tenth of the rows: with 1,024 a small table would take two or three steps a pass."""
    trainer = Trainer(WORLD.sample(rows, seed=0), "videos", small_model(), TrainConfig(test=0.0, calibration=0.1))
    assert trainer.batch_rows == expected


def test_so_few_rows_that_none_is_left_to_calibrate_with() -> None:
    parts = split(WORLD.sample(3, seed=0), TrainConfig(test=0.0))
    assert parts.calibration is None
    assert parts.train.rows == 3
