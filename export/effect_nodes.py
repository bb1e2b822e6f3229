"""What a row's ids tell besides their embeddings: whether training saw them, and the variance of their effects.

ghostless.heads.effect_variance as graph nodes. All of it is columns of one more table per id, found by the same index:

    flag [1]      1 where the id is unknown
    own [E]       v, and again for candidates alone where the context has ids: there 0 for a context feature
    share [E]     of a nested id: what it leaves of the variance above it in its chain
    factors [m]   of the two ids that have factors: the columns whose products are summed

One product puts the flags side by side and adds up own; each further product's sum joins it there.
"""

from dataclasses import dataclass

import numpy as np

from export import features
from export.builder import Array, GraphBuilder
from ghostless.heads.effect_variance import EffectVariance
from learning.data.encoding import Encoding


@dataclass(frozen=True)
class EffectNodes:
    """value [1, n] or [2, n]: the variance of all effects of a row, and of those that differ between a request's
    candidates where these are fewer. With gamma 1 it is a share of V, with 0 in target units squared."""

    value: str
    parts: int
    gamma: int


@dataclass(frozen=True)
class RowFacts:
    """unknown [n, id features]: 1 where training never saw the id."""

    unknown: str
    effects: EffectNodes | None


def row_facts(g: GraphBuilder, encoding: Encoding, effects: EffectVariance | None) -> RowFacts | None:
    """None without id features. To be called after `features.gather_id`, whose row indexes it reads again."""
    names = encoding.schema.id_names
    if not names:
        return None
    tables = _Tables(g, encoding, effects)
    bases = [tables.base(name) for name in names]
    total = bases[0] if len(bases) == 1 else g.node("Concat", bases, "ids/base", axis=-1)
    if effects is None:
        return RowFacts(total, None)
    if len(bases) > 1:
        total = g.node("MatMul", [total, tables.gathering()], "ids/sums")
    for name in names:
        if name not in effects.parents.values() and name in effects.parents:
            term = g.node("Mul", [tables.share(name), tables.above(name)], f"{name}/above")
            total = g.node("Gemm", [term, tables.places(np.eye(tables.parts)), total], "ids/chain")
    if effects.pair is not None:
        first, second = effects.pair
        product = g.node("Mul", [tables.factors(first), tables.factors(second)], "ids/products")
        total = g.node("Gemm", [product, tables.places(_summed(effects, tables.chosen)), total], "ids/pair")
    unknown, variance = g.split(total, [len(names), tables.parts], ["unknown", "effects/rows"])
    return RowFacts(unknown, EffectNodes(g.transpose(variance, "effects"), tables.parts, effects.gamma))


class _Tables:
    """The columns of every id feature, gathered once."""

    def __init__(self, g: GraphBuilder, encoding: Encoding, effects: EffectVariance | None) -> None:
        self._g, self._encoding, self._effects = g, encoding, effects
        every = frozenset(encoding.schema.id_names)
        self.chosen = [] if effects is None else [every, every - effects.context] if effects.context else [every]
        self._gathered: dict[str, dict[str, str]] = {}

    @property
    def parts(self) -> int:
        return len(self.chosen)

    def base(self, name: str) -> str:
        """[n, 1 + E]: flag and own; of an id above another one in a chain own is 0 here."""
        return self._columns(name)["base"]

    def share(self, name: str) -> str:
        """[n, E]"""
        return self._columns(name)["share"]

    def factors(self, name: str) -> str:
        """[n, m]"""
        return self._columns(name)["factors"]

    def above(self, name: str) -> str:
        """[n, E]: the variance of the chain above a nested id."""
        assert self._effects is not None
        parent = self._effects.parents[name]
        own = self._columns(parent)["own"]
        if parent not in self._effects.parents:
            return own
        return self._g.node("Add", [own, self._g.node("Mul", [self.share(parent), self.above(parent)])])

    def gathering(self) -> str:
        """A constant [F (1 + E), F + E]: every id's flag to its own place, own to the sum."""
        names = self._encoding.schema.id_names
        matrix = np.zeros((len(names), 1 + self.parts, len(names) + self.parts))
        for place in range(len(names)):
            matrix[place, 0, place] = 1.0
            matrix[place, 1:, len(names) :] = np.eye(self.parts)
        return self._g.constant("ids/gathering", matrix.reshape(-1, len(names) + self.parts))

    def places(self, sums: Array) -> str:
        """[columns, E] -> a constant [columns, F + E] that adds to the effects and leaves the flags alone."""
        flags = np.zeros((len(sums), len(self._encoding.schema.id_names)))
        return self._g.constant("ids/places", np.concatenate([flags, sums], 1))

    def _columns(self, name: str) -> dict[str, str]:
        if name not in self._gathered:
            blocks = self._blocks(name)
            widths = [block.shape[1] for block in blocks.values()]
            rows = features.gather_rows(self._g, self._encoding, name, np.concatenate([*blocks.values()], 1))
            parts = self._g.split(rows, widths, [f"{name}/{block}" for block in blocks])
            self._gathered[name] = dict(zip(blocks, parts, strict=True))
        return self._gathered[name]

    def _blocks(self, name: str) -> dict[str, Array]:
        """Columns [rows, ..] by what they are, the unknown row first."""
        effects = self._effects
        flag = np.zeros((self._encoding.cardinality(name), 1), np.float32)
        flag[0] = 1.0
        if effects is None:
            return {"base": flag}
        unit = np.float32(effects.level if effects.gamma else 1.0)
        v = effects.variance(name).numpy()[:, None] / unit
        own = np.concatenate([v * np.float32(name in chosen) for chosen in self.chosen], 1)
        blocks = {"base": np.concatenate([flag, own], 1)}
        if name in effects.parents.values():
            blocks = {"base": np.concatenate([flag, np.zeros_like(own)], 1), "own": own}
        if name in effects.parents:
            carried = effects.carried(name).numpy()[:, None]
            blocks["share"] = np.concatenate([carried ** np.float32(name in chosen) for chosen in self.chosen], 1)
        if effects.pair is not None and name in effects.pair:
            is_first = name == effects.pair[0]
            blocks["factors"] = effects.left().numpy() / unit if is_first else effects.right().numpy()
        return blocks


def _summed(effects: EffectVariance, parts: list[frozenset[str]]) -> Array:
    """[m, E]: 1 where a column of the pair counts. The first rank + 1 are those of the first id's intercept, which all
    candidates of a request share where it is a context feature."""
    assert effects.pair is not None
    columns = np.ones((effects.left().shape[1], len(parts)))
    for place, chosen in enumerate(parts):
        if effects.pair[0] not in chosen:
            columns[: effects.rank + 1, place] = 0.0
    return columns
