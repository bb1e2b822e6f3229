"""Rows that judge never fit, and are those that the product's own split holds out."""

import numpy as np

from benchmarks.truth.parts import split_off
from learning.config import TrainConfig
from learning.data.synthetic import SyntheticVideos
from learning.training import split


def test_judged_rows_are_the_products_test_part() -> None:
    table = SyntheticVideos(seed=0, users=50, items=20).sample(500, seed=1)
    for seed in (0, 1):
        parts = split_off("x", table, seed)
        test = split(table, TrainConfig(seed=seed)).test
        assert test is not None
        assert parts.judged.fingerprint() == test.fingerprint()
        assert parts.fitting.rows + parts.judged.rows == table.rows


def test_history_counts_fitting_rows_only() -> None:
    parts = split_off("x", SyntheticVideos(seed=0, users=200, items=20).sample(500, seed=1), 0)
    history = parts.history("user_id")
    for row in (0, 17, 63):
        user = parts.judged.columns["user_id"][row]
        assert history[row] == np.sum(parts.fitting.columns["user_id"] == user)
    assert (history == 0).any()
