"""Heads for any PyTorch backbone: a variational last layer and its closed forms. Needs torch."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ghostless.heads.bins import Bins, adaptive_bins, uniform_bins
    from ghostless.heads.calibration import Calibration
    from ghostless.heads.config import PosteriorConfig, QuantileConfig
    from ghostless.heads.effect_variance import EffectVariance, RowEffects
    from ghostless.heads.effects import EffectRows, Effects, SideColumns
    from ghostless.heads.factors import Factors, fit_factors
    from ghostless.heads.feature_input import FeatureInput
    from ghostless.heads.histogram import HistogramHead
    from ghostless.heads.posterior import Posterior
    from ghostless.heads.predictive import Predictive
    from ghostless.heads.quantile import QuantileHead
    from ghostless.heads.uncertain_ranker import UncertainRanker
    from ghostless.heads.warp import rank_warp

__all__ = [
    "Bins",
    "Calibration",
    "EffectRows",
    "EffectVariance",
    "Effects",
    "Factors",
    "FeatureInput",
    "HistogramHead",
    "Posterior",
    "PosteriorConfig",
    "Predictive",
    "QuantileConfig",
    "QuantileHead",
    "RowEffects",
    "SideColumns",
    "UncertainRanker",
    "adaptive_bins",
    "fit_factors",
    "rank_warp",
    "uniform_bins",
]

_MODULES = {
    "Bins": "bins",
    "Calibration": "calibration",
    "EffectRows": "effects",
    "EffectVariance": "effect_variance",
    "Effects": "effects",
    "Factors": "factors",
    "FeatureInput": "feature_input",
    "HistogramHead": "histogram",
    "Posterior": "posterior",
    "PosteriorConfig": "config",
    "Predictive": "predictive",
    "QuantileConfig": "config",
    "QuantileHead": "quantile",
    "RowEffects": "effect_variance",
    "SideColumns": "effects",
    "UncertainRanker": "uncertain_ranker",
    "adaptive_bins": "bins",
    "fit_factors": "factors",
    "rank_warp": "warp",
    "uniform_bins": "bins",
}


def __getattr__(name: str) -> Any:
    """Import names on first use: the configuration is used before torch is loaded."""
    if name not in _MODULES:
        raise AttributeError(f"module 'ghostless.heads' has no attribute {name!r}")
    return getattr(importlib.import_module(f"ghostless.heads.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
