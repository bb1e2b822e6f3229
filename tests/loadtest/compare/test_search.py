"""The search for a rate, against servers whose limit is known."""

import numpy as np

from loadtest.compare.search import RateSearch


def test_bisection_closes_in_on_the_limit() -> None:
    limit, search = 137.0, RateSearch(fails=1000.0)
    for _ in range(12):
        rate = search.next_rate()
        search.learn(rate, rate <= limit)
    assert search.holds <= limit < search.fails
    assert search.fails - search.holds < 1.0


def test_what_is_known_already_narrows_it() -> None:
    search = RateSearch(fails=1000.0)
    search.learn(100.0, True)
    search.learn(300.0, False)
    assert search.next_rate() == 200.0


def test_a_rate_above_one_that_failed_does_not_hold() -> None:
    search = RateSearch(fails=1000.0)
    search.learn(500.0, True)
    search.learn(400.0, False)
    assert search.holds == 0.0
    search.learn(300.0, True)
    assert search.holds == 300.0


def test_near_a_noisy_edge_it_stays_on_the_safe_side() -> None:
    random = np.random.default_rng(0)
    found = []
    for _ in range(200):
        search = RateSearch(fails=1000.0)
        for _ in range(10):
            rate = search.next_rate()
            search.learn(rate, rate <= random.normal(400.0, 20.0))
        found.append(search.holds)
    assert 340 < np.mean(found) < 410
