"""LightGBM quantile models on the same rows, fitted once per data set and split and then read from the store."""

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from benchmarks.truth.judge import CENTRAL, LEVELS, pinball_crps
from benchmarks.truth.parts import Parts
from benchmarks.truth.store import Saved, Store
from research.baselines.boosted_quantiles import BoostedQuantiles, BoostingConfig

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class RivalJudgement:
    """crps_levels: 2 x mean pinball loss over 19 levels. coverage: of closed central intervals (19 quantiles are not a
    CDF, so there is no F(y-) for randomising; with atoms these intervals cover too much rather than too little)."""

    crps_levels: float
    rmse: float
    coverage: dict[float, float]
    seconds: float
    trees: tuple[int, ...]

    def text(self) -> str:
        shares = "/".join(f"{100 * share:.1f}" for share in self.coverage.values())
        return f"CRPS over 19 levels {self.crps_levels:.5f}, RMSE {self.rmse:.5f}, closed coverage {shares}%"


def measure_rival(store: Store, parts: Parts, console: Console, config: BoostingConfig | None = None) -> RivalJudgement:
    """Evaluated on the same rows as the product."""
    config = config or BoostingConfig()
    folder = store.folder(f"{parts.name} lightgbm", parts.fingerprint, config)
    saved = store.load(folder)
    if saved is None:
        saved = _fit(parts, config, console)
        store.save(folder, saved)
    judged = _judge(saved, parts.judged.target.astype(np.float64))
    console.print(f"  {parts.name} LightGBM: {judged.text()}, {judged.seconds:.0f} s", highlight=False)
    return judged


def _fit(parts: Parts, config: BoostingConfig, console: Console) -> Saved:
    started = time.perf_counter()
    with console.status(f"{parts.name} LightGBM") as status:
        model = BoostedQuantiles.fit(
            parts.fitting, config, lambda done, of: status.update(f"{parts.name} LightGBM, model {done} of {of}")
        )
        quantiles, mean = model.predict(parts.judged)
    facts: dict[str, Any] = {"seconds": time.perf_counter() - started, "trees": list(model.trees)}
    return Saved({"quantiles": quantiles.astype(np.float32), "mean": mean.astype(np.float32)}, facts)


def _judge(saved: Saved, y: Floats) -> RivalJudgement:
    quantiles, mean = (saved.arrays[name].astype(np.float64) for name in ("quantiles", "mean"))
    return RivalJudgement(
        crps_levels=pinball_crps(quantiles, y),
        rmse=float(np.sqrt(np.mean((mean - y) ** 2))),
        coverage={level: _closed_coverage(quantiles, y, level) for level in CENTRAL},
        seconds=float(saved.facts["seconds"]),
        trees=tuple(saved.facts["trees"]),
    )


def _closed_coverage(quantiles: Floats, y: Floats, level: float) -> float:
    lower, upper = (int(np.argmin(np.abs(LEVELS - cut))) for cut in (0.5 - level / 2, 0.5 + level / 2))
    return float(np.mean((quantiles[:, lower] <= y) & (y <= quantiles[:, upper])))
