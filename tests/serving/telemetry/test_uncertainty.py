"""Uncertainty metrics against the same figures worked out plainly from the answers, and by scipy."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from ghostless.contract import metadata
from ghostless.contract.arrays import Array
from serving.engines.interface import ModelVersion
from serving.telemetry.metrics import ServerMetrics
from serving.telemetry.recorder import sample_wide_outputs
from serving.telemetry.uncertainty import STRIDE, UncertaintyObserver, crossings, entropy
from tests.support.onnx_models import CR_OUTPUTS, SMALL, metadata_of

LABELS = {"model": "demo", "version": "3", "head": "cr"}
THRESHOLD = 0.7


def model() -> ModelVersion:
    described = replace(
        metadata_of(SMALL),
        unknown_ids=("user_id", "item_id"),
        calibration={"logit_variance_p999": THRESHOLD},
    )
    return ModelVersion("demo", 3, described, (*CR_OUTPUTS, metadata.UNKNOWN_IDS), {})


def answer(rows: int, seed: int) -> dict[str, Array]:
    random = np.random.default_rng(seed)
    outputs = {
        metadata.EPISTEMIC: random.gamma(1.0, 0.1, rows),
        metadata.ALEATORIC: random.gamma(2.0, 0.2, rows),
        metadata.LOGIT_VARIANCE: random.gamma(1.0, 0.3, rows),
        metadata.BINS: random.dirichlet(np.ones(10), rows),
        metadata.QUANTILES: np.sort(random.uniform(0, 3, (rows, 5)), axis=1),
        metadata.UNKNOWN_IDS: random.random((rows, 2)) < [0.2, 0.5],
    }
    return {name: values.astype(np.float32) for name, values in outputs.items()}


@pytest.fixture
def metrics() -> ServerMetrics:
    return ServerMetrics()


def observe(metrics: ServerMetrics, answers: list[dict[str, Array]], of: ModelVersion | None = None) -> None:
    observer = UncertaintyObserver(metrics.uncertainty)
    observer.observe(of or model(), answers, [sample_wide_outputs(each) for each in answers])


def value(metrics: ServerMetrics, name: str, **labels: str) -> float:
    found = metrics.registry.get_sample_value(f"ghostless_{name}", {**LABELS, **labels})
    assert found is not None, name
    return found


def test_every_row_of_every_answer_is_counted(metrics: ServerMetrics) -> None:
    answers = [answer(rows, seed) for seed, rows in enumerate((1, 256, 7, 64))]
    observe(metrics, answers)
    rows = {name: np.concatenate([each[name] for each in answers]).astype(np.float64) for name in answers[0]}
    epistemic, aleatoric = rows[metadata.EPISTEMIC], rows[metadata.ALEATORIC]
    expected = {
        "epistemic_share": epistemic / (epistemic + aleatoric),
        "epistemic_std": np.sqrt(epistemic),
        "aleatoric_std": np.sqrt(aleatoric),
        "logit_variance": rows[metadata.LOGIT_VARIANCE],
    }
    for name, values in expected.items():
        assert value(metrics, f"{name}_count") == 328, name
        assert value(metrics, f"{name}_sum") == pytest.approx(values.sum(), rel=1e-5), name
        for bound in (0.0625, 0.25, 0.75):
            assert value(metrics, f"{name}_bucket", le=str(bound)) == (values <= bound).sum(), name
    assert value(metrics, "out_of_distribution_rows_total") == (rows[metadata.LOGIT_VARIANCE] > THRESHOLD).sum() > 0
    assert value(metrics, "unknown_ids_total", feature="user_id") == rows[metadata.UNKNOWN_IDS][:, 0].sum() > 0
    assert value(metrics, "unknown_ids_total", feature="item_id") == rows[metadata.UNKNOWN_IDS][:, 1].sum() > 0
    assert value(metrics, "quantile_crossings_total") == 0
    sampled = np.concatenate([each[metadata.BINS][::STRIDE] for each in answers])
    assert value(metrics, "bin_entropy_nats_count") == len(sampled)
    assert value(metrics, "bin_entropy_nats_sum") == pytest.approx(stats.entropy(sampled, axis=1).sum(), rel=1e-5)


def test_intervals_are_those_between_mirrored_levels(metrics: ServerMetrics) -> None:
    """SMALL's levels are 0.1, 0.25, 0.5, 0.75, 0.9."""
    answers = [answer(100, seed) for seed in range(2)]
    observe(metrics, answers)
    quantiles = np.concatenate([each[metadata.QUANTILES][::STRIDE] for each in answers])
    for level, lower, upper in (("0.8", 0, 4), ("0.5", 1, 3)):
        widths = quantiles[:, upper] - quantiles[:, lower]
        assert value(metrics, "interval_width_count", level=level) == len(widths) == 14
        assert value(metrics, "interval_width_sum", level=level) == pytest.approx(widths.sum(), rel=1e-5)
        assert value(metrics, "interval_width_bucket", level=level, le="1.5") == (widths <= 1.5).sum()


def test_answers_without_some_outputs_count_towards_the_others(metrics: ServerMetrics) -> None:
    whole, narrow = answer(10, 0), answer(20, 1)
    for name in (metadata.QUANTILES, metadata.BINS):
        del narrow[name]
    observe(metrics, [whole, narrow])
    assert value(metrics, "epistemic_share_count") == 30
    assert value(metrics, "interval_width_count", level="0.8") == 1


def test_a_model_that_knows_everything_has_a_share_of_zero(metrics: ServerMetrics) -> None:
    certain = answer(8, 0)
    certain[metadata.EPISTEMIC] *= 0
    certain[metadata.ALEATORIC][:4] = 0
    observe(metrics, [certain])
    assert value(metrics, "epistemic_share_count") == 8
    assert value(metrics, "epistemic_share_sum") == 0


def test_a_model_without_a_threshold_has_no_row_out_of_distribution(metrics: ServerMetrics) -> None:
    plain = ModelVersion("demo", 3, metadata_of(SMALL), CR_OUTPUTS, {})
    outputs = answer(8, 0)
    del outputs[metadata.UNKNOWN_IDS]
    observe(metrics, [outputs], plain)
    assert value(metrics, "out_of_distribution_rows_total") == 0
    assert metrics.registry.get_sample_value("ghostless_unknown_ids_total", {**LABELS, "feature": "user_id"}) is None


def test_entropy_of_certain_uniform_and_random_bins() -> None:
    bins = np.array([[0, 1, 0, 0], [0.25] * 4, [0.1, 0.2, 0.3, 0.4]], np.float32)
    assert entropy(bins) == pytest.approx(stats.entropy(bins, axis=1), abs=1e-6)


@pytest.mark.parametrize(
    ("quantiles", "rows"),
    [
        ([[1, 2, 3], [0, 1, 1], [5, 5, 5]], 0),
        ([[1, 2, 1], [0, 1, 2]], 1),
        ([[3, 2, 1], [3, 2, 4], [1, 2, 3]], 2),
        ([[1, 1, 1]], 0),
        ([[0, 2, 1]], 1),
    ],
)
def test_rows_whose_quantiles_fall_are_found(quantiles: list[list[float]], rows: int) -> None:
    assert crossings(np.array(quantiles, np.float32)) == rows
