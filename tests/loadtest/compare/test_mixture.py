"""The mixture of members against samples drawn from it, and against scipy."""

import numpy as np
from scipy import stats

from ghostless.contract import metadata
from loadtest.compare.mixture import member_outputs, merge_members, merged_outputs

KNOTS = np.linspace(0, 3, 61).astype(np.float32)
LEVELS = np.array([0.1, 0.5, 0.9], np.float32)
MEANS, DEVIATIONS = (0.8, 1.4, 2.0), (0.2, 0.3, 0.25)


def member(mean: float, deviation: float) -> dict[str, np.ndarray]:
    cdf = stats.norm(mean, deviation).cdf(KNOTS)
    cdf[0], cdf[-1] = 0.0, 1.0
    impurity = 1 - np.sum(np.diff(cdf) ** 2)
    rows = {
        metadata.MEAN: [mean],
        metadata.ALEATORIC: [deviation**2],
        metadata.CDF: [cdf],
        metadata.CATEGORICAL_ALEATORIC: [impurity],
    }
    return {name: np.asarray(values, np.float32) for name, values in rows.items()}


def test_moments_and_quantiles_are_those_of_samples_from_all_members() -> None:
    members = [member(mean, deviation) for mean, deviation in zip(MEANS, DEVIATIONS, strict=True)]
    wanted = (metadata.MEAN, metadata.ALEATORIC, metadata.EPISTEMIC, metadata.QUANTILES)
    merged = merge_members(members, wanted, KNOTS, LEVELS)
    random = np.random.default_rng(0)
    draws = np.concatenate([random.normal(m, s, 400_000) for m, s in zip(MEANS, DEVIATIONS, strict=True)])
    np.testing.assert_allclose(merged[metadata.MEAN][0], draws.mean(), atol=0.003)
    total = merged[metadata.ALEATORIC][0] + merged[metadata.EPISTEMIC][0]
    np.testing.assert_allclose(total, draws.var(), rtol=0.01)
    np.testing.assert_allclose(merged[metadata.EPISTEMIC][0], np.var(MEANS), rtol=1e-5)
    np.testing.assert_allclose(merged[metadata.QUANTILES][0], np.quantile(draws, LEVELS), atol=0.01)


def test_the_gini_split_adds_up_to_the_mixture_s_impurity() -> None:
    members = [member(mean, deviation) for mean, deviation in zip(MEANS, DEVIATIONS, strict=True)]
    wanted = (metadata.CATEGORICAL_ALEATORIC, metadata.CATEGORICAL_EPISTEMIC, metadata.CDF)
    merged = merge_members(members, wanted, KNOTS, LEVELS)
    mass = np.diff(merged[metadata.CDF][0])
    split = merged[metadata.CATEGORICAL_ALEATORIC][0] + merged[metadata.CATEGORICAL_EPISTEMIC][0]
    np.testing.assert_allclose(split, 1 - np.sum(mass**2), rtol=1e-5)
    apart = [np.diff(each[metadata.CDF][0]) - mass for each in members]
    expected = np.mean([np.sum(shift**2) for shift in apart])
    np.testing.assert_allclose(merged[metadata.CATEGORICAL_EPISTEMIC][0], expected, rtol=1e-3)


def test_members_are_asked_for_what_the_mixture_is_made_of_and_no_more() -> None:
    assert member_outputs((metadata.QUANTILES, metadata.CDF, metadata.EPISTEMIC)) == (metadata.CDF, metadata.MEAN)
    have = (metadata.MEAN, metadata.QUANTILES, metadata.LOGIT_VARIANCE, metadata.EPISTEMIC)
    # Without a CDF there are no quantiles of the mixture, and the raw outputs' spread stays with the members.
    assert merged_outputs(have) == (metadata.MEAN, metadata.EPISTEMIC)
