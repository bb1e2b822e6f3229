"""The registry: all rows of the paper's main table, each with the same effort."""

import pytest

from ghostless.contract.errors import ConfigError
from learning.config import TrainConfig
from research.comparison.methods import BOOSTED, BY_NAME, METHODS, chosen
from research.comparison.paper import BESIDE


def test_every_method_of_the_papers_table_is_there() -> None:
    for _, figures in BESIDE.values():
        assert set(figures) == set(BY_NAME)


def test_every_method_that_is_tuned_tries_equally_many_settings() -> None:
    tuned = [method for method in METHODS if not method.as_tuned]
    common = tuned[0].grid()
    assert all(method.grid() == common for method in tuned)
    assert {len(method.refined(common[0])) for method in tuned} == {2}
    assert not any(BY_NAME[method.as_tuned].as_tuned or method.refined({}) for method in METHODS if method.as_tuned)


def test_no_method_tries_a_setting_twice() -> None:
    for method in METHODS:
        for best in method.grid():
            default = method.configured(best, TrainConfig())
            tried = [method.configured(setting, TrainConfig()) for setting in method.refined(best)]
            assert default not in tried, "its knob's default is what the grid has tried"
            assert all(tried.count(setting) == 1 for setting in tried)


def test_all_share_backbone_and_budget() -> None:
    configured = [
        method.configured(setting, TrainConfig())
        for method in METHODS
        for setting in (*method.grid(), *method.refined(method.grid()[0]))
    ]
    assert len({(model.backbone, model.hidden, model.id_dropout) for model, _ in configured}) == 1
    assert len({(train.epochs, train.batch_rows) for _, train in configured}) == 1


def test_settings_reach_the_model_and_the_training() -> None:
    model, train = BY_NAME["sngp"].configured({"length_scale": 4.0, "embedding_decay": 5e-4}, TrainConfig(seed=3))
    assert (model.length_scale, train.embedding_decay, train.seed) == (4.0, 5e-4, 3)


def test_methods_are_chosen_by_name_in_the_tables_order() -> None:
    assert [method.name for method in chosen("qr-vbll, gaussian")] == ["gaussian", "qr-vbll"]
    assert chosen("all") == [*METHODS, BOOSTED]
    with pytest.raises(ConfigError, match="no method nonsense; expected all, or some of gaussian"):
        chosen("qr,nonsense")
