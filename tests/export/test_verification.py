"""The verification can fail: each of its checks on an answer that breaks just that."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import numpy_helper

from export import reference, rows, verification
from export.builder import Array
from export.checks import Check
from export.options import Layout
from export.verification import TOLERANCE, Report, error_against, relative_error, verify
from ghostless.contract import metadata
from ghostless.heads.closed_forms import piecewise
from serving.engines.embedded import load_model
from tests.support import torch_models as models

Answers = dict[str, Array]


@pytest.fixture(autouse=True)
def few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer rows and draws than an export takes; the bounds are the same."""
    for name, value in {
        "RANDOM_ROWS": 400,
        "BATCH_ROWS": 64,
        "ALONE_ROWS": 4,
        "DRAWS": 500,
        "SAMPLED_ROWS": 12,
    }.items():
        monkeypatch.setattr(verification, name, value)


@pytest.fixture(scope="module", params=["qr", "cr"])
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> models.ExportedGraph:
    checkpoint = models.video_checkpoint(head=request.param, levels=20, groups=10)
    return models.serve(models.alone(checkpoint), tmp_path_factory.mktemp("verified"))


def failures(served: models.ExportedGraph, change: Callable[[Answers, int], None]) -> list[str]:
    """Names of the checks that fail when `change` spoils the torch model's own answers; it is told how many rows."""

    def run(columns: Answers) -> Answers:
        answers = reference.answer(served.networks, columns, served.layout)
        change(answers, len(answers[metadata.MEAN]))
        return answers

    report = verify(run, served.networks, served.layout, "fp32")
    failed = [check.name for check in report.checks if not check.ok]
    assert report.ok == (not failed)
    return failed


def test_the_graph_passes(served: models.ExportedGraph) -> None:
    report = verify(served, served.networks, served.layout, "fp32")
    assert report.ok, report.failures()
    names = [check.name for check in report.checks]
    for name in served.layout.outputs:
        for title in ("random rows", "extreme rows"):
            assert f"{name}: against torch, {title}" in names
        assert f"{name}: a row alone against a batch of 64" in names
    assert [name for name in names if "500 posterior draws" in name]


def test_torch_itself_passes(served: models.ExportedGraph) -> None:
    assert failures(served, lambda answers, count: None) == []


@pytest.mark.parametrize(
    "weight",
    ["layer0/weight", "last/own", "last/carried/weight", "cross/gate/weight", "numbers/table", "video_id/table"],
)
def test_one_changed_weight_is_caught(served: models.ExportedGraph, weight: str, tmp_path: Path) -> None:
    model = onnx.ModelProto()
    model.CopyFrom(served.model)
    tensor = next(tensor for tensor in model.graph.initializer if tensor.name == weight)
    values = numpy_helper.to_array(tensor).copy()
    # A known id's row, where it is a table; not the largest weight nor the smallest.
    place = np.unravel_index(np.argsort(np.abs(values), axis=None)[values.size // 2], values.shape)
    values[place] += 0.1
    tensor.CopyFrom(numpy_helper.from_array(values, weight))
    onnx.save(model, tmp_path / "model.onnx")
    changed = load_model(tmp_path / "model.onnx", "demo", 1, (1,))

    def run(columns: Answers) -> Answers:
        return changed.run(rows.fed(columns), served.layout.outputs)

    report = verify(run, served.networks, served.layout, "fp32")
    assert not report.ok
    assert "against torch" in report.failures()


def spoil(name: str, value: float, row: int = 0, column: int | None = None) -> Callable[[Answers, int], None]:
    def change(answers: Answers, count: int) -> None:
        answers[name] = answers[name].copy()
        answers[name][row if column is None else (row, column)] = value

    return change


@pytest.mark.filterwarnings("ignore:invalid value encountered")
@pytest.mark.parametrize(("name", "value"), [(metadata.MEAN, np.inf), (metadata.QUANTILES, np.nan)])
def test_a_value_that_is_not_finite_is_caught(served: models.ExportedGraph, name: str, value: float) -> None:
    failed = failures(served, spoil(name, value))
    assert "values that are not finite, random rows" in failed
    assert "values that are not finite, extreme rows" in failed


def test_bins_that_do_not_sum_to_one_are_caught(served: models.ExportedGraph) -> None:
    def change(answers: Answers, count: int) -> None:
        # Less than the tolerance against torch would see.
        answers[metadata.BINS] = answers[metadata.BINS] * np.float32(1.00005)

    failed = failures(served, change)
    assert "bins: distance of their sum from 1, random rows" in failed
    assert not [name for name in failed if "against torch" in name]


def test_a_negative_bin_is_caught(served: models.ExportedGraph) -> None:
    assert "bins: most negative, extreme rows" in failures(served, spoil(metadata.BINS, -1e-8, column=0))


@pytest.mark.parametrize("name", [metadata.QUANTILES, metadata.CDF])
def test_crossing_is_caught(served: models.ExportedGraph, name: str) -> None:
    def change(answers: Answers, count: int) -> None:
        answers[name] = answers[name][:, ::-1]

    assert f"{name}: largest step down, random rows" in failures(served, change)


@pytest.mark.parametrize("name", [metadata.ALEATORIC, metadata.EPISTEMIC, metadata.LOGIT_VARIANCE])
def test_a_negative_variance_is_caught(served: models.ExportedGraph, name: str) -> None:
    assert f"{name}: most negative, random rows" in failures(served, spoil(name, -1e-9))


def test_an_answer_that_depends_on_its_batch_is_caught(served: models.ExportedGraph) -> None:
    def change(answers: Answers, count: int) -> None:
        if count == 1:
            answers[metadata.MEAN] = answers[metadata.MEAN] * np.float32(1.0001)

    assert failures(served, change) == ["mean: a row alone against a batch of 64"]


def test_a_wrong_closed_form_is_caught_even_where_torch_has_it_too(
    served: models.ExportedGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The posterior draws do not go through the closed forms: here both sides call too much variance epistemic."""
    honest = reference.answer

    def wrong(*arguments: object) -> Answers:
        answers = honest(*arguments)  # type: ignore[arg-type]  # passed on as they came
        total = answers[metadata.ALEATORIC] + answers[metadata.EPISTEMIC]
        answers[metadata.EPISTEMIC] = np.minimum(answers[metadata.EPISTEMIC] * np.float32(3.0), total)
        answers[metadata.ALEATORIC] = total - answers[metadata.EPISTEMIC]
        return answers

    monkeypatch.setattr(reference, "answer", wrong)
    failed = failures(served, lambda answers, count: None)
    assert failed == ["epistemic: against 500 posterior draws"]


def test_relative_error_by_hand() -> None:
    expected = np.array([1.0, -2.0, 0.0, 4.0])
    assert relative_error(expected, expected) == 0.0
    # 0.02 of 2 at the second place; at the third the unit is a hundredth of the output's scale, about 4.
    assert relative_error(np.array([1.0, -2.02, 0.0, 4.0]), expected) == pytest.approx(0.01)
    scale = np.quantile(np.abs(expected), 0.999)
    assert relative_error(np.array([1.0, -2.0, 0.001, 4.0]), expected) == pytest.approx(0.001 / (0.01 * scale))
    assert relative_error(np.array([1.0, -2.0, 0.001, 4.0]), expected, scale=100.0) == pytest.approx(0.001)
    assert relative_error(np.array([1.0, -2.0, 0.3, 4.0]), expected, floor=0.1, scale=10.0) == pytest.approx(0.3)
    assert np.isnan(relative_error(np.array([np.nan, -2.0, 0.0, 4.0]), expected))


def plateau(shift: float) -> tuple[Layout, Answers]:
    """Two modes with 24 all but empty bins between them, the level 1/2 on that plateau: the quantiles, exactly,
    where every inner value of the CDF is off by `shift`."""
    knots = np.linspace(0.0, 3.0, 41)
    layout = Layout("cr", np.array([0.2, 0.5]), knots, knots, np.zeros(0), (metadata.QUANTILES,))
    p = np.full(40, 1.0)
    p[8:32] = 1e-4
    cdf = np.concatenate([[0.0], np.cumsum(p) / p.sum()])[None, :]
    cdf[:, 1:-1] += shift
    values = piecewise.quantiles(*(torch.from_numpy(array) for array in (cdf, layout.knots, layout.levels)))
    return layout, {metadata.QUANTILES: values.numpy(), metadata.CDF: cdf}


def test_a_quantile_on_a_plateau_counts_in_level() -> None:
    """There float32's rounding of the CDF moves it by more than any tolerance; elsewhere its place is what counts."""
    layout, expected = plateau(0.0)
    rounded, off = plateau(2e-7)[1], plateau(1e-4)[1]
    name = metadata.QUANTILES
    assert relative_error(rounded[name], expected[name], floor=0.1, scale=3.0) > TOLERANCE["fp32"]
    assert error_against(expected, rounded, name, layout) < 1e-6
    assert error_against(expected, off, name, layout) > TOLERANCE["fp32"]
    beside = {**expected, name: expected[name] + [[1e-4, 0.0]]}
    assert error_against(expected, beside, name, layout) > TOLERANCE["fp32"]


def test_a_density_counts_as_the_mass_of_its_segment_does() -> None:
    """In a narrow segment with next to no mass, rounding of the heights is divided by the width."""
    knots = np.array([0.0, 1.0, 1.0, 1.001, 3.0])
    widths = np.array([1.0, 0.001, 1.999])
    layout = Layout("cr", np.array([0.5]), knots, knots, np.array([-1.0, 0.5, 1.0, 2.0, 3.5]), (metadata.DENSITY,))

    def answers(*masses: float) -> Answers:
        density = np.array([[0.0, *(np.array(masses) / widths), 0.0]])
        return {metadata.DENSITY: density, metadata.BINS: np.array([masses])}

    expected, rounded, off = answers(0.5, 1e-6, 0.5), answers(0.5, 1.4e-6, 0.5), answers(0.5, 3e-6, 0.5)
    assert relative_error(rounded[metadata.DENSITY], expected[metadata.DENSITY]) > TOLERANCE["fp32"]
    for answer, is_well in ((rounded, True), (off, False)):
        assert (error_against(expected, answer, metadata.DENSITY, layout) < TOLERANCE["fp32"]) == is_well
        errors = [error_against(expected, answer, name, layout) for name in (metadata.DENSITY, metadata.BINS)]
        assert errors[0] == pytest.approx(errors[1])


def test_the_report_says_what_failed_and_by_how_much() -> None:
    checks = [Check("mean: against torch, random rows", 0.5, 1e-4), Check("fine", 0.0, 0.0), Check("nan", np.nan, 1.0)]
    report = Report(checks, {"model": "demo", "nodes": 77})
    assert not report.ok
    assert report.failures() == "mean: against torch, random rows is 0.5, allowed 0.0001; nan is nan, allowed 1"
    content = json.loads(report.to_json())
    assert (content["ok"], content["model"], content["nodes"]) == (False, "demo", 77)
    assert content["checks"][0] == {
        "name": "mean: against torch, random rows",
        "value": 0.5,
        "bound": 1e-4,
        "ok": False,
    }
    assert [check["ok"] for check in content["checks"]] == [False, True, False]
    lines = report.to_markdown().splitlines()
    assert "| mean: against torch, random rows | 0.5 | 0.0001 | NO |" in lines
    assert "| fine | 0 | 0 | yes |" in lines
    assert "| nodes | 77 |" in lines
