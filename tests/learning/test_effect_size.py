"""Effects to size: what held-out pairs say of gamma, of the level, and of what a row told."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import torch

from ghostless.heads.effect_variance import EffectVariance
from ghostless.heads.effects import Effects
from learning.data.encoding import Encoding
from learning.data.table import Table
from learning.effect_size import settle
from learning.schema import Schema
from learning.training import Trainer
from tests.support.training import brief_training, small_model

USERS, ROWS = 4_000, 40_000
SCHEMA = Schema.from_dict(
    {
        "features": [{"name": "user", "kind": "id", "type": "int64", "role": "context"}],
        "target": {"name": "y", "low": -9.0, "high": 9.0, "unit": ""},
    },
    "test",
)
# What the effects say of every user.
PRIOR, VARIANCE = 0.5, 0.25


class Known:
    """Distributions with mean 0 and a variance for every row [n]."""

    def __init__(self, total: np.ndarray) -> None:
        self.total = torch.from_numpy(total)

    def mean(self) -> torch.Tensor:
        return torch.zeros(len(self.total))

    def epistemic(self) -> torch.Tensor:
        return torch.zeros(len(self.total))

    def aleatoric(self) -> torch.Tensor:
        return self.total


def in_order(total: np.ndarray) -> Callable[[Mapping[str, torch.Tensor]], Any]:
    """Predicts all rows, and then all of them again, with `total`."""
    place = 0

    def predict(batch: Mapping[str, torch.Tensor]) -> Known:
        nonlocal place
        rows = slice(place, place + len(batch["user"]))
        place = rows.stop % len(total)
        return Known(total[rows])

    return predict


def effects(prior: float = PRIOR) -> EffectVariance:
    variance = np.full(USERS + 1, VARIANCE)
    variance[0] = prior
    return EffectVariance(
        Effects({"user": np.zeros(USERS + 1)}, {"user": variance}, {"user": prior}, {}, noise=1.0, side=np.zeros(1))
    )


def world(gamma: int, variance: float) -> tuple[Table, np.ndarray]:
    """Rows of which a user's share an error of this variance, and what their distributions have as theirs."""
    random = np.random.default_rng(5)
    user = random.integers(0, USERS, ROWS)
    noise = np.where(np.arange(ROWS) % 2, 0.2, 1.8)
    shared = np.sqrt(variance) * random.normal(size=USERS)[user] * np.sqrt(noise) ** gamma
    y = shared + np.sqrt(noise) * random.normal(size=ROWS)
    return Table(SCHEMA, {"user": user}, y.astype(np.float32)), noise + variance * noise**gamma


@pytest.mark.parametrize("gamma", [0, 1])
def test_held_out_pairs_choose_gamma(gamma: int) -> None:
    """The shared error scales with a row's noise, or does not. No row told anything of its user."""
    table, total = world(gamma, VARIANCE)
    found = settle(effects(VARIANCE), in_order(total), Encoding.fit(table), table)
    assert found.gamma == gamma
    if gamma:
        # The noise alone, not the whole variance.
        assert found.level == pytest.approx(1.0, rel=0.03)


@pytest.mark.parametrize("variance", [0.12, 0.4])
def test_held_out_pairs_tell_how_much_a_row_told(variance: float) -> None:
    """The network's error about a user is smaller, or larger, than that of the effects' fit."""
    table, total = world(1, variance)
    found = settle(effects(), in_order(total), Encoding.fit(table), table).effects.variance["user"]
    assert found[1] == pytest.approx(variance, rel=0.2)
    assert found[0] == PRIOR


def test_few_pairs_change_little() -> None:
    table, total = world(1, 0.12)
    some = Table(SCHEMA, {"user": table.columns["user"][:300]}, table.target[:300])
    found = settle(effects(), in_order(total[:300]), Encoding.fit(table), some).effects.variance["user"]
    assert found[1] == pytest.approx(VARIANCE, rel=0.1)


def test_rows_without_pairs_change_nothing() -> None:
    table, total = world(1, 0.12)
    alone = Table(SCHEMA, {"user": np.arange(USERS)}, table.target[:USERS])
    found = settle(effects(), in_order(total[:USERS]), Encoding.fit(alone), alone).effects.variance["user"]
    np.testing.assert_allclose(found, effects().effects.variance["user"])


def test_without_held_out_rows_effects_keep_their_scale(videos: Table) -> None:
    """rho V is the effects' variance itself, in the target's unit squared, however large V is."""
    trained = Trainer(videos, "videos", small_model(head="cr"), brief_training(calibration=0.0)).run()
    assert trained.model.effects is not None
    encoded = trained.encoding.encode(videos)
    row = trained.model.effects({name: torch.from_numpy(values) for name, values in encoded.items()})
    assert row.raw.min().item() > 0.0
    for total in (2.0, 20.0):
        whole = torch.full_like(row.raw, total)
        torch.testing.assert_close(row.shared(whole), row.raw.clamp(max=0.9 * total))
