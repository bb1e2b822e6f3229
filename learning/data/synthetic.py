"""Synthetic views of short videos whose true distribution is known for every row.

A view is a skip, a completion or a rewatch. Given the user and the video, the watch ratio is a mixture of three
normals, each truncated to [0, 3]. So the target's range is [0, 3] by construction, clipping changes nothing, and the
density has no atoms. The weights and locations of the modes depend on the match between the user's taste and the
video's topic, on the video's quality, the user's patience and the duration. Users and videos have Zipf frequencies.
"""

import numpy as np
from scipy.special import ndtr, ndtri, softmax

from learning.data.table import Array, Table
from learning.data.video import VIDEO_SCHEMA
from learning.errors import DataError

DEMO_ROWS = 120_000

_LOW, _HIGH = 0.0, 3.0
_TOPICS = 4
_WIDTHS = np.array([0.10, 0.06, 0.25])  # skip, completion, rewatch


class SyntheticVideos:
    """A population of users and videos; the same seed gives the same population."""

    def __init__(self, seed: int, users: int = 5000, items: int = 2000) -> None:
        random = np.random.default_rng(seed)
        self.users, self.items = users, items
        self._taste = random.normal(size=(users, _TOPICS)) / np.sqrt(_TOPICS)
        self._patience = random.normal(size=users)
        self._topic = random.normal(size=(items, _TOPICS))
        self._quality = random.normal(size=items)
        seconds = np.clip(np.exp(random.normal(np.log(18.0), 0.8, size=items)), 3.0, 180.0)
        self._duration_ms = np.round(seconds * 1000).astype(np.float32)
        self._user_frequency = random.permutation(_zipf(users, 0.8))
        self._item_frequency = random.permutation(_zipf(items, 0.9))

    def sample(self, rows: int, seed: int) -> Table:
        """`rows` views; `seed` determines users, videos and ratios."""
        random = np.random.default_rng(seed)
        user = random.choice(self.users, size=rows, p=self._user_frequency)
        item = random.choice(self.items, size=rows, p=self._item_frequency)
        weights, places = self._modes(user, item)
        mode = (random.random((rows, 1)) > np.cumsum(weights, axis=1)[:, :-1]).sum(axis=1)
        place, width = places[np.arange(rows), mode], _WIDTHS[mode]
        floor, ceiling = ndtr((_LOW - place) / width), ndtr((_HIGH - place) / width)
        ratio = place + width * ndtri(floor + random.random(rows) * (ceiling - floor))
        columns: dict[str, Array] = {
            "user_id": user.astype(np.int64),
            "video_id": item.astype(np.int64),
            "duration_ms": self._duration_ms[item],
        }
        return Table(VIDEO_SCHEMA, columns, np.clip(ratio, _LOW, _HIGH).astype(np.float32))

    def cdf(self, table: Table, points: Array) -> Array:
        """P(ratio <= points | row), [n, g] for points [g]."""
        weights, places = self._modes(*self._pairs(table))
        total = np.zeros((table.rows, len(points)))
        inside = np.clip(points, _LOW, _HIGH)
        for mode, width in enumerate(_WIDTHS):
            place = places[:, mode, None]
            floor, ceiling = ndtr((_LOW - place) / width), ndtr((_HIGH - place) / width)
            share = (ndtr((inside - place) / width) - floor) / (ceiling - floor)
            total += weights[:, mode, None] * share
        return total

    def density(self, table: Table, points: Array) -> Array:
        """Density of the ratio given the row, [n, g] for points [g]; zero outside [0, 3]."""
        weights, places = self._modes(*self._pairs(table))
        total = np.zeros((table.rows, len(points)))
        for mode, width in enumerate(_WIDTHS):
            place = places[:, mode, None]
            mass = ndtr((_HIGH - place) / width) - ndtr((_LOW - place) / width)
            total += weights[:, mode, None] * _normal((points - place) / width) / (width * mass)
        return np.where((points >= _LOW) & (points <= _HIGH), total, 0.0)

    def mean(self, table: Table) -> Array:
        """E[ratio | row], [n]."""
        weights, places = self._modes(*self._pairs(table))
        floor, ceiling = (_LOW - places) / _WIDTHS, (_HIGH - places) / _WIDTHS
        shift = _WIDTHS * (_normal(floor) - _normal(ceiling)) / (ndtr(ceiling) - ndtr(floor))
        means: Array = (weights * (places + shift)).sum(axis=1)
        return means

    def _modes(self, user: Array, item: Array) -> tuple[Array, Array]:
        """Weights and locations of skip, completion and rewatch, each [n, 3]."""
        affinity = (self._taste[user] * self._topic[item]).sum(axis=1)
        length = np.log(self._duration_ms[item] / 18_000.0)
        liking = 1.2 * affinity + 0.7 * self._quality[item]
        patience = 0.6 * self._patience[user]
        logits = np.stack(
            [
                0.4 - liking - patience + 0.6 * length,
                0.2 + patience - 0.4 * length,
                liking - 1.4 - 0.8 * length,
            ],
            axis=1,
        )
        places = np.stack(
            [
                0.06
                + 0.30 / (1.0 + np.exp(length)),  # a skip happens after a few seconds, a larger share of a short video
                1.0 + 0.03 * self._patience[user],
                1.9 + 0.4 * np.tanh(liking),
            ],
            axis=1,
        )
        return softmax(logits, axis=1), places

    def _pairs(self, table: Table) -> tuple[Array, Array]:
        user, item = table.columns["user_id"], table.columns["video_id"]
        for name, ids, known in (("user_id", user, self.users), ("video_id", item, self.items)):
            if len(ids) and not (ids.min() >= 0 and ids.max() < known):
                raise DataError(f"column '{name}': the synthetic data only has ids 0 to {known - 1}")
        return user, item


def _zipf(count: int, exponent: float) -> Array:
    frequency = np.arange(1, count + 1) ** -exponent
    normalised: Array = frequency / frequency.sum()
    return normalised


def _normal(z: Array) -> Array:
    density: Array = np.exp(-0.5 * z * z) / np.sqrt(2.0 * np.pi)
    return density
