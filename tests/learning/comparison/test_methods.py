"""The registry: all rows of the paper's main table, each with the same effort."""

import pytest

from learning.comparison.methods import BY_NAME, METHODS, chosen
from learning.comparison.paper import BESIDE
from learning.config import TrainConfig
from learning.errors import ConfigError


def test_every_method_of_the_papers_table_is_there() -> None:
    for _, figures in BESIDE.values():
        assert set(figures) == set(BY_NAME)


def test_every_method_that_is_tuned_tries_equally_many_settings() -> None:
    tuned = [method for method in METHODS if not method.as_tuned]
    assert {len(method.grid()) for method in tuned} == {4}
    assert all(BY_NAME[method.as_tuned].grid() for method in METHODS if method.as_tuned)


def test_all_share_backbone_and_budget() -> None:
    configured = [method.configured(setting, TrainConfig()) for method in METHODS for setting in method.grid()]
    assert len({(model.backbone, model.hidden, model.novelty, model.id_dropout) for model, _ in configured}) == 1
    assert len({(train.epochs, train.batch_rows) for _, train in configured}) == 1


def test_settings_reach_the_model_and_the_training() -> None:
    model, train = BY_NAME["qr-mcd"].configured({"dropout": 0.2, "embedding_decay": 5e-4}, TrainConfig(seed=3))
    assert (model.dropout, train.embedding_decay, train.seed) == (0.2, 5e-4, 3)


def test_methods_are_chosen_by_name_in_the_tables_order() -> None:
    assert [method.name for method in chosen("qr-vbll, gaussian")] == ["gaussian", "qr-vbll"]
    assert chosen("all") == list(METHODS)
    with pytest.raises(ConfigError, match="no method nonsense; expected all, or some of gaussian"):
        chosen("qr,nonsense")
