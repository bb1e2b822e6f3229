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
    # Of a request's user everything is taken as known: pt' C_v pt is left.
    known = pair.means[0][CODES["user"]].copy()
    known[:, 0] = 1.0
    left = 1.2 * np.einsum("ni,nij,nj->n", known, pair.covariances[1][CODES["video"]], known)
    np.testing.assert_allclose(found.candidate.numpy(), left + above, rtol=1e-5)


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
    shared = [0.1 * 0.5 / 2.1, 0.1 * 2.0 / 2.1, 400.0 / 102.0, 0.0] if gamma else [0.1, 0.1, 3.6, 0.0]
    np.testing.assert_allclose(found.shared(total).numpy(), shared, rtol=1e-6)
    rest = total.numpy() - shared
    expected = shared + last_layer.numpy() * rest / (last_layer.numpy() + rest)
    np.testing.assert_allclose(epistemic.numpy(), expected, rtol=1e-5)
    assert (epistemic <= total).all()
    torch.testing.assert_close(found.epistemic_candidate(total, last_layer)[3], epistemic[3])
    assert split.MOST_SHARE == 0.9


def test_parts_of_the_ignorance_add_up() -> None:
    """What the context leaves to the candidate is a part of the same whole: the noise is the row's, not the part's."""
    total, raw, candidate = torch.tensor([3.0, 0.5]), torch.tensor([1.0, 4.0]), torch.tensor([0.25, 4.0])
    found = RowEffects(raw, candidate, 2.0, 1)
    torch.testing.assert_close(found.shared_by_candidate(total) / found.shared(total), candidate / raw)
    torch.testing.assert_close(found.shared_by_candidate(total)[0], torch.tensor(0.25))


def test_the_level_is_the_mean_noise() -> None:
    noise, raw = torch.tensor([0.5, 1.0, 1.5]).double(), torch.tensor([0.1, 0.0, 3.0]).double()
    level = split.noise_level(noise * (1.0 + raw), raw)
    assert level == pytest.approx(1.0, rel=1e-6)
    # Effects that claim more than there is: a tenth is left.
    assert split.noise_level(noise, 100.0 * noise) == pytest.approx(0.1)


def test_a_row_that_told_more_leaves_less_unknown() -> None:
    effects, pair = chained(), factors()
    prior = np.linalg.inv(pair.covariances[0][0])
    told = np.linalg.inv(pair.covariances[0]) - prior
    served = EffectVariance(effects, frozenset({"user"}), pair)
    more = served.informed("user", (4.0, 9.0)).factors
    assert more is not None
    scale = np.diag([2.0, 3.0, 3.0])
    np.testing.assert_allclose(np.linalg.inv(more.covariances[0]), prior + scale @ told @ scale, rtol=1e-8)
    np.testing.assert_array_equal(more.covariances[1], pair.covariances[1])
    video = served.informed("author", (2.0,)).effects.variance["author"]
    np.testing.assert_allclose(1 / video - 2.0, 2.0 * (1 / effects.variance["author"] - 2.0))
    same = served.informed("user", (1.0, 1.0)).informed("author", (1.0,))
    torch.testing.assert_close(same(BATCH).raw, served(BATCH).raw)
