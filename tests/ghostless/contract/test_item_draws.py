import math
from zlib import crc32

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats

from ghostless.contract.item_draws import standard_normal

MASK = (1 << 64) - 1
# Item 11, item 42 and the text "video-11" with seed 7, item 11 with seed 8; docs/client.md has them too.
CHECKED = {(7, 11): -0.511044, (7, 42): 0.896476, (7, "video-11"): 0.596403, (8, 11): 0.318661}


def plain(seed: int, *words: int) -> float:
    """The module's docstring, one item at a time in Python's own integers."""

    def mix(x: int) -> int:
        x = (x + 0x9E3779B97F4A7C15) & MASK
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
        return x ^ (x >> 31)

    h = mix(seed)
    for word in words:
        h = mix(h ^ word)
    a, b = (h >> 32) + 0.5, h & 0xFFFFFFFF
    return math.sqrt(-2 * math.log(a / 2**32)) * math.cos(2 * math.pi * b / 2**32)


@pytest.mark.parametrize("seed", [0, 1, 2**64 - 1])
def test_the_documented_hash(seed: int) -> None:
    ids = np.array([0, 1, -1, 2**63 - 1, -(2**63)], np.int64)
    texts = np.array(["", "a", "b\0", "\u00e9\u4e2d", "x" * 300], object)
    numbers = np.array([0.0, 1.5, -2.0, 1e30, 3.0], np.float32)
    expected = [
        plain(seed, id_ & MASK, crc32(text.encode()), int(np.float32(number).view(np.uint32)))
        for id_, text, number in zip(ids.tolist(), texts, numbers, strict=True)
    ]
    np.testing.assert_allclose(standard_normal(seed, [ids, texts, numbers]), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("seed_and_item", CHECKED)
def test_values_that_other_languages_can_check_themselves_against(seed_and_item: tuple[int, int | str]) -> None:
    seed, item = seed_and_item
    column = np.array([item], object if isinstance(item, str) else np.int64)
    assert float(standard_normal(seed, [column])[0]) == pytest.approx(CHECKED[seed, item], abs=1e-6)


def test_an_items_number_depends_on_nothing_else() -> None:
    random = np.random.default_rng(0)
    items, authors = random.integers(0, 10**9, 500), random.integers(0, 100, 500)
    together = standard_normal(3, [items, authors])
    order = random.permutation(500)
    np.testing.assert_array_equal(standard_normal(3, [items[order], authors[order]]), together[order])
    np.testing.assert_array_equal(standard_normal(3, [items[7:8], authors[7:8]]), together[7:8])
    assert len(np.unique(together)) == 500
    assert (standard_normal(3, [authors, items]) != together).all(), "columns are told apart by their order"


@pytest.mark.parametrize("kind", ["neighbouring ids", "texts", "neighbouring seeds"])
def test_numbers_are_standard_normal(kind: str) -> None:
    drawn = table(kind)
    assert stats.kstest(drawn.ravel(), "norm").pvalue > 0.001
    # The tails, which rank first.
    assert stats.binomtest(int((np.abs(drawn) > 3).sum()), drawn.size, 2 * stats.norm.sf(3)).pvalue > 0.001


@pytest.mark.parametrize("kind", ["neighbouring ids", "texts", "neighbouring seeds"])
def test_numbers_are_independent_between_items_and_seeds(kind: str) -> None:
    drawn = table(kind)
    for rows in (drawn, drawn.T, np.abs(drawn), np.abs(drawn.T)):
        ranks = stats.rankdata(rows, axis=1)
        correlations = np.corrcoef(ranks)[np.triu_indices(len(rows), 1)] * np.sqrt(rows.shape[1])
        assert stats.kstest(correlations, "norm").pvalue > 0.001
        assert np.abs(correlations).max() < 5.5
    # Neighbours in both directions, by quadrant of their signs.
    for left, right in ((drawn[:-1], drawn[1:]), (drawn[:, :-1], drawn[:, 1:])):
        quadrants = np.histogram2d(left.ravel() > 0, right.ravel() > 0, bins=2)[0]
        assert stats.chisquare(quadrants.ravel()).pvalue > 0.001


def table(kind: str) -> npt.NDArray[np.float64]:
    """200 seeds x 200 items."""
    seeds = range(200) if kind == "neighbouring seeds" else np.random.default_rng(1).integers(0, 2**63, 200).tolist()
    items = np.array([f"video-{i}" for i in range(200)], object) if kind == "texts" else np.arange(200)
    return np.stack([standard_normal(seed, [items]) for seed in seeds])
