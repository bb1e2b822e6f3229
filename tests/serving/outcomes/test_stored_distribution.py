from dataclasses import replace

import numpy as np
import pytest

from ghostless.contract import metadata
from ghostless.contract.scores import cdf_at, crps
from serving.engines.interface import ModelVersion
from serving.outcomes.stored_distribution import KEYS, StoredDistribution, central_intervals, distribution_to_store
from tests.support.onnx_models import CR_OUTPUTS, QR_OUTPUTS, SMALL, metadata_of


def stored(outputs: tuple[str, ...], head: metadata.Head = "cr") -> StoredDistribution:
    found = distribution_to_store(ModelVersion("demo", 3, metadata_of(replace(SMALL, head=head)), outputs, {}))
    assert found is not None
    return found


def rows_of(distribution: StoredDistribution, outputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    assert distribution.is_in(outputs)
    return {name: outputs[name].astype(np.float32) for name in distribution.outputs.keys() - KEYS}


@pytest.fixture
def served() -> dict[str, np.ndarray]:
    """Five rows of SMALL's outputs: bins of ten cells on [0, 3], the CDF at their edges, and five quantiles."""
    bins = np.random.default_rng(0).dirichlet(np.ones(10), 5)
    cdf = np.concatenate([np.zeros((5, 1)), np.cumsum(bins, axis=1)], axis=1)
    knots = np.linspace(0, 3, 11)
    quantiles = np.array([np.interp(SMALL.levels, row, knots) for row in cdf])
    scalars = (metadata.MEAN, metadata.EPISTEMIC, metadata.EPISTEMIC_CANDIDATE)
    return {metadata.BINS: bins, metadata.CDF: cdf, metadata.QUANTILES: quantiles, **dict.fromkeys(scalars, bins[:, 0])}


def test_the_cdf_and_the_bins_are_the_same_distribution(served: dict[str, np.ndarray]) -> None:
    y = np.array([0.0, 0.4, 1.3, 2.2, 3.0])
    by_cdf, by_bins = stored(CR_OUTPUTS), stored((metadata.BINS, metadata.MEAN))
    assert (by_cdf.source, by_bins.source) == (metadata.CDF, metadata.BINS)
    scores = [crps(*d.distribution(rows_of(d, served)), y) for d in (by_cdf, by_bins)]
    assert scores[0] == pytest.approx(scores[1], abs=1e-6)


def test_quantiles_alone_are_a_distribution_between_the_ends_of_the_range(served: dict[str, np.ndarray]) -> None:
    distribution = stored((metadata.QUANTILES,))
    heights, knots = distribution.distribution(rows_of(distribution, served))
    assert knots[:, 0].tolist() == [0.0] * 5
    assert knots[:, -1].tolist() == [3.0] * 5
    for column, level in enumerate(SMALL.levels):
        at = served[metadata.QUANTILES][:, column].astype(np.float32).astype(np.float64)
        assert cdf_at(heights, knots, at) == pytest.approx(np.full(5, level), abs=1e-6)


def test_a_kept_row_is_the_distribution_and_the_served_quantiles(served: dict[str, np.ndarray]) -> None:
    distribution = stored(QR_OUTPUTS, head="qr")
    assert distribution.labels == ("demo", "3", "qr")
    # With mean, the two epistemic variances and two keys for the pair test.
    assert distribution.row_bytes == 4 * (11 + 5 + 3 + 2)
    found = distribution.quantiles(rows_of(distribution, served))
    assert np.array_equal(found, served[metadata.QUANTILES].astype(np.float32))


def test_without_quantiles_there_are_no_levels(served: dict[str, np.ndarray]) -> None:
    distribution = stored((metadata.CDF,))
    assert (distribution.levels, distribution.intervals) == ((), ())
    assert distribution.quantiles(rows_of(distribution, served)).shape == (5, 0)


def test_an_answer_with_too_few_outputs_is_told(served: dict[str, np.ndarray]) -> None:
    assert not stored(CR_OUTPUTS).is_in({metadata.CDF: served[metadata.CDF]})


def test_a_model_without_a_distribution_keeps_nothing() -> None:
    assert distribution_to_store(ModelVersion("demo", 1, metadata_of(SMALL), (metadata.MEAN,), {})) is None


def test_central_intervals_are_the_mirrored_pairs() -> None:
    found = central_intervals((0.05, 0.1, 0.5, 0.75, 0.9, 0.95))
    assert [(interval.level, interval.lower, interval.upper) for interval in found] == [(0.9, 0, 5), (0.8, 1, 4)]
