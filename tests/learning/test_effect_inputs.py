"""Effects as inputs: a training row reads columns that its own target has not fitted, every other row those of all."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from ghostless.heads.effects import EffectRows, SideColumns
from learning.config import ModelConfig
from learning.data.encoding import Encoding
from learning.data.synthetic import SyntheticVideos
from learning.data.table import Table
from learning.effect_inputs import (
    EFFECT_SCALE,
    FOLD_KEY,
    FOLDS,
    KNOWN_SCALE,
    EffectInputs,
    fit_inputs,
    fold_of,
    unit_free,
)
from learning.id_effects import effect_rows, fit_effects
from learning.training import Encoded, Trainer
from tests.support.training import brief_training, small_model

WORLD = SyntheticVideos(seed=0, users=200, items=80)


@pytest.fixture(scope="module")
def videos() -> Table:
    return WORLD.sample(12_000, seed=1)


@pytest.fixture(scope="module")
def encoding(videos: Table) -> Encoding:
    return Encoding.fit(videos)


@pytest.fixture(scope="module")
def rows(encoding: Encoding, videos: Table) -> EffectRows:
    return effect_rows(encoding, videos)


def fitted_inputs(encoding: Encoding, rows: EffectRows, rank_rows: Table | None) -> EffectInputs:
    return fit_inputs(encoding, rows, fit_effects(encoding, rows, rank_rows))


def test_parts_are_of_equal_size_and_follow_the_row(encoding: Encoding, rows: EffectRows) -> None:
    folds = fold_of(encoding, rows.codes, rows.y)
    shares = np.bincount(folds, minlength=FOLDS) / len(folds)
    assert shares == pytest.approx(1 / FOLDS, abs=0.02)
    order = np.random.default_rng(0).permutation(len(folds))
    assert np.array_equal(fold_of(encoding, rows.codes[order], rows.y[order]), folds[order])


def test_columns_do_not_depend_on_the_targets_unit(encoding: Encoding, rows: EffectRows) -> None:
    """To the bit: training would make two models of a difference in the last digit."""
    # A power of two, so that float32 rounds nothing.
    unit = np.float32(4096.0)
    scaled = replace(encoding, target_sample=encoding.target_sample * unit)
    in_unit = EffectRows(rows.names, rows.heights, rows.sizes, rows.codes, rows.side, rows.y * unit)
    assert np.array_equal(fold_of(scaled, rows.codes, in_unit.y), fold_of(encoding, rows.codes, rows.y))
    found, expected = (fitted_inputs(*given, None) for given in ((scaled, in_unit), (encoding, rows)))
    for name in rows.names:
        assert torch.equal(found.columns[name], expected.columns[name])
        assert torch.equal(found.without[name], expected.without[name])


def test_targets_without_a_unit_are_the_targets(encoding: Encoding, rows: EffectRows) -> None:
    plain = unit_free(encoding, rows.y)
    assert plain.min() >= 0.0
    assert plain.max() <= 1.0
    span = encoding.target_sample[-1] - encoding.target_sample[0]
    assert np.abs(plain * span - (rows.y - encoding.target_sample[0])).mean() < 0.01 * span


def test_rows_of_one_id_are_in_all_parts(encoding: Encoding, rows: EffectRows) -> None:
    """Else an id would be unknown to the columns that its rows read."""
    same = fold_of(encoding, np.zeros((200, 1), np.int64), rows.y[:200])
    assert set(same) == set(range(FOLDS))


def test_a_part_reads_columns_fitted_to_the_others(encoding: Encoding, rows: EffectRows) -> None:
    inputs = fitted_inputs(encoding, rows, None)
    folds = fold_of(encoding, rows.codes, rows.y)
    y = unit_free(encoding, rows.y)
    for fold in (0, FOLDS - 1):
        kept = folds != fold
        side = SideColumns(rows.side.buckets[kept], rows.side.numbers[kept])
        effects = EffectRows(rows.names, rows.heights, rows.sizes, rows.codes[kept], side, y[kept]).fit()
        for name in rows.names:
            mean = EFFECT_SCALE * effects.mean[name] / np.sqrt(effects.priors[name])
            known = KNOWN_SCALE * np.log(effects.variance[name] / effects.priors[name])
            assert inputs.without[name][fold].numpy() == pytest.approx(np.column_stack([mean, known]), abs=1e-5)
    for name in rows.names:
        # Row 0 is the unknown id: no effect, and nothing is known.
        assert inputs.columns[name][0].tolist() == [0.0, 0.0]
        assert (inputs.columns[name][1:, 1] < 0).all()


def test_factors_of_the_parts_point_the_same_way(encoding: Encoding, rows: EffectRows) -> None:
    inputs = fitted_inputs(encoding, rows, WORLD.sample(4_000, seed=2))
    for name in rows.names:
        every = inputs.columns[name]
        # The intercept, factors, and how well the id is known.
        assert every.shape[1] > 3
        for part in inputs.without[name]:
            agreement = [np.corrcoef(part[1:, at], every[1:, at])[0, 1] for at in range(1, every.shape[1] - 1)]
            assert min(agreement) > 0.6


def test_an_embedding_without_room_is_trained_as_a_whole(encoding: Encoding, rows: EffectRows) -> None:
    features = tuple(replace(feature, embedding=3) for feature in encoding.schema.features)
    narrow = replace(encoding, schema=replace(encoding.schema, features=features))
    inputs = fitted_inputs(narrow, rows, None)
    assert not inputs.columns
    assert inputs.width("user_id") == 0


@pytest.fixture(scope="module")
def trainer(videos: Table) -> Trainer:
    trainer = Trainer(videos, "videos", small_model(head="cr", id_dropout=0.0), brief_training())
    trainer.run()
    return trainer


def test_training_reads_the_parts_and_keeps_the_whole(trainer: Trainer) -> None:
    towers, inputs = trainer.model.towers, trainer.model.towers.inputs
    assert inputs is not None
    columns, _ = next(trainer.train_part.batches(64))
    start = towers.feature_width(towers.features[0]) - inputs.width("user_id")
    stop = start + inputs.width("user_id")
    towers.train()
    read = towers(columns)[:, start:stop]
    assert torch.equal(read, inputs.without["user_id"][columns[FOLD_KEY], columns["user_id"]])
    towers.eval()
    assert torch.equal(towers(columns)[:, start:stop], inputs.columns["user_id"][columns["user_id"]])
    assert torch.equal(towers.table("user_id")[:, start:stop], inputs.columns["user_id"])


def test_the_columns_are_those_of_the_training_part(trainer: Trainer) -> None:
    """Held-out rows have no part in them."""
    inputs, effects = trainer.model.towers.inputs, trainer.effects
    assert inputs is not None
    assert effects is not None
    again = effect_rows(trainer.encoding, trainer.train_part.dataset)
    found = fit_inputs(trainer.encoding, again, effects)
    for name in again.names:
        assert torch.equal(inputs.columns[name], found.columns[name])
        assert torch.equal(inputs.without[name], found.without[name])


def test_without_inputs_nothing_is_fitted_before_training(videos: Table) -> None:
    options = ModelConfig(head="cr", method="deterministic", effect_inputs=False)
    trainer = Trainer(videos, "videos", options, brief_training())
    assert trainer.model.towers.inputs is None
    assert trainer.effects is None
    assert FOLD_KEY not in next(Encoded.of(videos, trainer.encoding).batches(8))[0]
