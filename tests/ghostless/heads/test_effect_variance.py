"""What a served model keeps of effects: tables, chains, factors, and the split of a variance by them."""

import numpy as np
import pytest
import torch

from ghostless.heads.closed_forms import split
from ghostless.heads.effect_variance import EffectVariance, RowEffects
from ghostless.heads.effects import Effects
from ghostless.heads.factors import Factors

NAMES = ("user", "video", "author")


def chained() -> Effects:
    """A user, and videos that belong to authors."""
    random = np.random.default_rng(0)
    return Effects(
        mean={name: random.normal(size=4) for name in NAMES},
        variance={name: random.uniform(0.1, 0.5, 4) for name in NAMES},
        priors=dict.fromkeys(NAMES, 0.5),
        parents={"video": "author"},
        noise=1.0,
        side=np.zeros(1),
    )


def factors(rank: int = 2) -> Factors:
    random = np.random.default_rng(1)
    roots = [random.normal(size=(4, rank + 1, rank + 1)) for _ in range(2)]
    first, second = (root @ root.transpose(0, 2, 1) for root in roots)
    means = random.normal(size=(4, rank + 1)), random.normal(size=(4, rank + 1))
    return Factors(("user", "video"), means, (first, second), 1.0, 1.2)


BATCH = {name: torch.tensor(rows) for name, rows in zip(NAMES, ([0, 1, 2], [3, 0, 1], [1, 2, 0]), strict=True)}
CODES = {name: rows.numpy() for name, rows in BATCH.items()}


def test_rows_have_the_variance_of_their_effects() -> None:
    effects = chained()
    found = EffectVariance(effects, frozenset({"user"}))(BATCH)
    np.testing.assert_allclose(found.raw.numpy(), effects.variance_of(CODES), rtol=1e-6)
    np.testing.assert_allclose(found.candidate.numpy(), effects.variance_of(CODES, ("video", "author")), rtol=1e-6)


def test_factors_take_the_place_of_two_effects() -> None:
    effects, pair = chained(), factors()
    found = EffectVariance(effects, frozenset({"user"}), pair)(BATCH)
    above = effects.carried("video")[CODES["video"]] * effects.variance["author"][CODES["author"]]
    np.testing.assert_allclose(found.raw.numpy(), pair.variance_of(CODES) + above, rtol=1e-5)
    # A request's candidates share the user's intercept, not how his taste meets each of them.
    intercept = (pair.left()[CODES["user"]] * pair.right()[CODES["video"]])[:, :3].sum(1)
    np.testing.assert_allclose((found.raw - found.candidate).numpy(), intercept, rtol=1e-4)
    assert (found.candidate > 0).all()


def test_state_is_read_back() -> None:
    for original in (EffectVariance(chained()), EffectVariance(chained(), frozenset({"user"}), factors(), 0.3, 0)):
        read = EffectVariance.from_state(original.state())
        assert (read.context, read.level, read.gamma, read.rank) == (
            original.context,
            original.level,
            original.gamma,
            original.rank,
        )
        torch.testing.assert_close(read(BATCH).raw, original(BATCH).raw)
        torch.testing.assert_close(read(BATCH).candidate, original(BATCH).candidate)


@pytest.mark.parametrize("gamma", [0, 1])
def test_epistemic_and_aleatoric_are_the_whole_variance(gamma: int) -> None:
    total = torch.tensor([0.5, 2.0, 4.0, 1.0])
    raw = torch.tensor([0.1, 0.1, 100.0, 0.0])
    last_layer = torch.tensor([0.0, 0.01, 1e6, 0.2])
    found = RowEffects(raw, torch.zeros(4), 2.0, gamma)
    epistemic = found.epistemic(total, last_layer)
    shared = [0.1 * 0.5 / 2.0, 0.1, 3.6, 0.0] if gamma else [0.1, 0.1, 3.6, 0.0]
    np.testing.assert_allclose(found.shared(total).numpy(), shared, rtol=1e-6)
    rest = total.numpy() - shared
    expected = shared + last_layer.numpy() * rest / (last_layer.numpy() + rest)
    np.testing.assert_allclose(epistemic.numpy(), expected, rtol=1e-5)
    assert (epistemic <= total).all()
    torch.testing.assert_close(found.epistemic_candidate(total, last_layer)[3], epistemic[3])
    assert split.MOST_SHARE == 0.9
