"""Which requests count for which server, and how sure the comparison is."""

import numpy as np
import pytest

from benchmarks.observability.paired_load import Round, share_of


def rounds(rates: np.ndarray, seconds: float = 0.25) -> list[Round]:
    return [Round(round(rate * seconds), seconds) for rate in rates]


def test_the_share_is_of_all_requests_over_all_seconds() -> None:
    share = share_of([Round(100, 0.25), Round(300, 0.25)], [Round(90, 0.25), Round(570, 0.5)])
    assert share.first == 800
    assert share.second == 880
    assert share.value == pytest.approx(1.1)


def test_the_margin_holds_the_truth_as_often_as_it_says() -> None:
    random = np.random.default_rng(0)
    held = 0
    for _ in range(400):
        # A machine whose speed wanders, as both see it, and noise of each server's own.
        speed = 2000 * (1 + 0.05 * np.sin(np.arange(200) / 7 + random.uniform(0, 6)))
        first, second = (speed * of * (1 + 0.06 * random.standard_normal(200)) for of in (1.0, 0.96))
        share = share_of(rounds(first), rounds(second))
        held += abs(share.value - 0.96) <= share.margin
        assert share.margin < 0.02
    # Within four standard deviations of 95%.
    assert 362 <= held <= 397
