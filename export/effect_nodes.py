"""What a row's ids say besides their embeddings: whether they occurred in training, and the variance of their effects.

ghostless.heads.effect_variance as graph nodes. Each id feature gets one more table, read with the same index as its
embeddings. E is the number of variances per row: 1, or 2 if the context has ids (all effects, and those of candidates
alone). The columns of the table:

    base [1 + E]     a flag, 1 if the id is unknown; then v once per variance, with 0 for a context feature in the
                     variance of candidates alone
    own [E]          v of an id that is above another one in a chain; its base has 0 in place of v
    share [E]        for a nested id: the factor on the variance above it, Var(chain) = v + share Var(above)
    product [2 + m]  for the two ids that have factors, in place of base: the flag of one id next to a 1 in the table of
                     the other, and the columns whose products are summed

A product with a constant matrix puts the flags in their columns and adds up the variances: E sums, and with gamma 1 one
more, which is the first of them plus 1. Each further term is added by its own product, which costs less than a Concat
of columns.
"""

from dataclasses import dataclass

import numpy as np

from export import features
from export.builder import Array, GraphBuilder, Value
from ghostless.heads.effect_variance import EffectVariance
from learning.data.encoding import Encoding


@dataclass(frozen=True)
class EffectNodes:
    """value [1, n] or [2, n]: the variance of all effects of a row and, if the context has ids, of the effects that
    differ between the candidates of a request. It is in units of the row's noise if there is a `whole`, else in target
    units squared. whole [1, n]: V in units of the noise, which is 1 + the first row of `value` (gamma 1)."""

    value: Value
    parts: int
    whole: Value | None


@dataclass(frozen=True)
class RowFacts:
    """unknown [n, id features]: 1 if the id did not occur in training."""

    unknown: Value
    effects: EffectNodes | None


def row_facts(g: GraphBuilder, encoding: Encoding, effects: EffectVariance | None) -> RowFacts | None:
    """None without id features. Call this after `features.gather_id`, whose row indexes it uses."""
    names = encoding.schema.id_names
    if not names:
        return None
    tables = _Tables(g, encoding, effects)
    pair = () if effects is None or effects.pair is None else effects.pair
    alone = [name for name in names if name not in pair]
    if effects is None:
        flags = [tables.column(name, "base") for name in alone]
        return RowFacts(flags[0] if len(flags) == 1 else g.node("Concat", flags, "unknown", axis=-1), None)
    terms = [(tables.column(name, "base"), tables.base_places(name)) for name in alone]
    if pair:
        product = g.node("Mul", [tables.column(name, "product") for name in pair], "ids/product")
        terms.append((product, tables.product_places()))
    for name in names:
        if name in effects.parents and name not in effects.parents.values():
            chain = g.node("Mul", [tables.column(name, "share"), tables.above(name)], f"{name}/above")
            terms.append((chain, tables.places(np.eye(tables.parts))))
    total = tables.start()
    for term, places in terms:
        # [F + E, n], so that each part that is split off is contiguous in memory.
        total = g.node("Gemm", [places, term, *([total] if total else [])], "ids/sums", transA=1, transB=1)
    assert total is not None
    heights, labels = [len(names), tables.parts, effects.gamma], ["unknown/by_id", "effects", "effects/whole"]
    unknown, variance, *whole = g.split(total, heights[: 2 + effects.gamma], labels[: 2 + effects.gamma], axis=0)
    return RowFacts(g.transpose(unknown, "unknown"), EffectNodes(variance, tables.parts, whole[0] if whole else None))


class _Tables:
    """The columns of every id feature, gathered once."""

    def __init__(self, g: GraphBuilder, encoding: Encoding, effects: EffectVariance | None) -> None:
        self._g, self._encoding, self._effects = g, encoding, effects
        self._names = encoding.schema.id_names
        every = frozenset(self._names)
        self.chosen = [] if effects is None else [every, every - effects.context] if effects.context else [every]
        self._gathered: dict[str, dict[str, Value]] = {}

    @property
    def parts(self) -> int:
        return len(self.chosen)

    @property
    def _whole(self) -> int:
        """1 if 1 + the first sum is also needed, else 0."""
        return 0 if self._effects is None else self._effects.gamma

    def column(self, name: str, block: str) -> Value:
        """The columns `block` of feature `name` for each row, [n, ..]."""
        if name not in self._gathered:
            blocks = self._blocks(name)
            widths = [columns.shape[1] for columns in blocks.values()]
            rows = features.gather_rows(self._g, self._encoding, name, np.concatenate([*blocks.values()], 1))
            parts = self._g.split(rows, widths, [f"{name}/{kind}" for kind in blocks])
            self._gathered[name] = dict(zip(blocks, parts, strict=True))
        return self._gathered[name][block]

    def above(self, name: str) -> Value:
        """[n, E]: the variance of the chain above a nested id."""
        assert self._effects is not None
        parent = self._effects.parents[name]
        own = self.column(parent, "own")
        if parent not in self._effects.parents:
            return own
        return self._g.node("Add", [own, self._g.node("Mul", [self.column(parent, "share"), self.above(parent)])])

    def places(self, sums: Array, flags: Array | None = None) -> Value:
        """A constant [columns, F + E]: which columns are flags [columns, F], and which are added up [columns, E]."""
        if flags is None:
            flags = np.zeros((len(sums), len(self._names)))
        return self._g.constant("ids/places", np.concatenate([flags, sums, sums[:, : self._whole]], 1))

    def start(self) -> Value | None:
        """Initial values of the sums, [F + E, 1]; None if all of them are 0."""
        if not self._whole:
            return None
        start = np.zeros((len(self._names) + self.parts + 1, 1))
        start[-1] = 1.0
        return self._g.constant("ids/start", start)

    def base_places(self, name: str) -> Value:
        """`places` for a feature's base columns."""
        flags = np.concatenate([self._flag(name), np.zeros((self.parts, len(self._names)))])
        return self.places(np.concatenate([np.zeros((1, self.parts)), np.eye(self.parts)]), flags)

    def product_places(self) -> Value:
        """`places` for the pair's product. Sums that treat the first id as known omit the first half of the factors'
        columns."""
        effects = self._effects
        assert effects is not None
        assert effects.pair is not None
        columns = np.ones((effects.left().shape[1], self.parts))
        for place, chosen in enumerate(self.chosen):
            if effects.pair[0] not in chosen:
                columns[: len(columns) // 2, place] = 0.0
        flags = np.concatenate([*map(self._flag, effects.pair), np.zeros((len(columns), len(self._names)))])
        return self.places(np.concatenate([np.zeros((2, self.parts)), columns]), flags)

    def _flag(self, name: str) -> Array:
        """[1, F]: 1 in the column of feature `name`."""
        return np.array([[float(name == other) for other in self._names]])

    def _blocks(self, name: str) -> dict[str, Array]:
        """Columns [rows, ..] by block name; row 0 is the one for unknown ids."""
        effects = self._effects
        flag = np.zeros((self._encoding.cardinality(name), 1), np.float32)
        flag[0] = 1.0
        if effects is None:
            return {"base": flag}
        unit = np.float32(effects.level if effects.gamma else 1.0)
        v = effects.variance(name).numpy()[:, None] / unit
        own = np.concatenate([v * np.float32(name in chosen) for chosen in self.chosen], 1)
        blocks = {"base": np.concatenate([flag, own], 1)}
        if effects.pair is not None and name in effects.pair:
            ones, is_first = np.ones_like(flag), name == effects.pair[0]
            factors: Array = effects.left().numpy() / unit if is_first else effects.right().numpy()
            blocks = {"product": np.concatenate([flag, ones, factors] if is_first else [ones, flag, factors], 1)}
            if name in effects.parents.values():
                blocks["own"] = own
        elif name in effects.parents.values():
            blocks = {"base": np.concatenate([flag, np.zeros_like(own)], 1), "own": own}
        if name in effects.parents:
            carried = effects.carried(name).numpy()[:, None]
            blocks["share"] = np.concatenate([carried ** np.float32(name in chosen) for chosen in self.chosen], 1)
        return blocks
