"""Every plot writes a PNG of its size, draws as many marks as it got, and refuses what it cannot draw."""

import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import Collection, QuadMesh
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from scipy import stats

from ghostless import charts
from learning import metrics, plots
from learning.array_checks import Floats
from learning.metrics import Reliability

LABELS = ["0", "1-2", "3-5"]
GRID = np.linspace(0, 3, 61)
CURVES = np.stack([stats.norm.pdf(GRID, mean, 0.3) for mean in (0.5, 1.0, 1.5, 2.0)])
X = np.linspace(-6, 6, 31)
HEAT = stats.norm.pdf(GRID[:, None], 1.5 + 0 * X, 0.2 + np.abs(X))


def png_size(path: Path) -> tuple[int, int]:
    content = path.read_bytes()
    assert content[:8] == b"\x89PNG\r\n\x1a\n"
    assert content[-8:-4] == b"IEND"
    width, height = struct.unpack(">II", content[16:24])
    return width, height


def assert_written(figure: Figure, path: Path) -> None:
    width, height = figure.get_size_inches() * charts.DPI
    assert png_size(path) == pytest.approx((width, height), abs=1)


def legend_labels(axes: Axes) -> list[str]:
    legend = axes.get_legend()
    assert legend is not None
    return [text.get_text() for text in legend.get_texts()]


def bar_heights(axes: Axes) -> list[float]:
    return [bar.get_height() for bar in axes.patches if isinstance(bar, Rectangle)]


def heights_of(line: Line2D) -> Floats:
    return np.asarray(line.get_ydata(), dtype=np.float64)


def colour_values(drawn: Collection) -> Floats:
    values = drawn.get_array()
    assert values is not None
    return np.asarray(values, dtype=np.float64)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "plot.png"


class TestReliabilityDiagram:
    def test_one_bar_per_used_bin_at_its_accuracy(self, out: Path) -> None:
        masses = [[0.95, 0.05], [0.95, 0.05], [0.45, 0.55], [0.35, 0.65]]
        figure = plots.reliability_diagram(metrics.reliability(masses, [0.5, 1.5, 1.5, 1.5], [0, 1, 2]), out, "CR")
        assert_written(figure, out)
        upper, lower = figure.axes
        assert bar_heights(upper) == [1.0, 1.0, 0.5]
        assert bar_heights(lower) == [0, 0, 0, 0, 0, 1, 1, 0, 0, 2]
        assert upper.get_title(loc="left") == "CR"
        legend = upper.get_legend()
        assert legend is not None
        assert legend.get_title().get_text() == "ECE 0.4250"

    def test_nothing_to_draw_is_an_error(self, out: Path) -> None:
        empty = np.full(10, np.nan)
        with pytest.raises(ValueError, match="every confidence bin is empty"):
            plots.reliability_diagram(Reliability(empty, empty, np.zeros(10, dtype=np.int64)), out)
        assert not out.exists()


class TestDensities:
    def test_one_panel_per_title_with_truth_heads_and_histogram(self, out: Path) -> None:
        figure = plots.densities(
            GRID,
            {"QR-VBLL": CURVES, "CR-VBLL": CURVES * 0.9},
            CURVES,
            out,
            ["a", "b", "c", "d"],
            histograms=np.ones((4, 6)) / 3,
            histogram_edges=np.linspace(0, 3, 7),
        )
        assert_written(figure, out)
        assert [axes.get_title(loc="left") for axes in figure.axes] == ["a", "b", "c", "d"]
        assert [len(axes.lines) for axes in figure.axes] == [3, 3, 3, 3]
        assert [len(axes.patches) for axes in figure.axes] == [1, 1, 1, 1]
        np.testing.assert_array_equal(heights_of(figure.axes[2].lines[1]), CURVES[2])
        assert [t.get_text() for t in figure.legends[0].get_texts()] == [
            "observed",
            "truth",
            "QR-VBLL",
            "CR-VBLL",
        ]

    def test_bare_prediction_in_an_incomplete_row_of_panels(self, out: Path) -> None:
        figure = plots.densities(GRID, np.tile(CURVES[0], (5, 1)), None, out, list("abcde"))
        assert_written(figure, out)
        assert [len(axes.lines) for axes in figure.axes] == [1] * 5


class TestEpistemicByHistory:
    def test_one_line_per_head_and_one_bar_per_bucket(self, out: Path) -> None:
        values = {"QR-VBLL": [0.06, 0.03, 0.01], "CR-VBLL": [0.02, 0.01, 0.008]}
        figure = plots.epistemic_by_history(LABELS, values, [10, 200, 3000], out)
        assert_written(figure, out)
        upper, lower = figure.axes
        assert [heights_of(line).tolist() for line in upper.lines] == list(values.values())
        assert legend_labels(upper)[0] == "QR-VBLL: first bucket 6.0× the last"
        assert bar_heights(lower) == [10, 200, 3000]
        assert [text.get_text() for text in lower.get_xticklabels()] == LABELS

    def test_a_bucket_without_rows_is_left_out(self, out: Path) -> None:
        figure = plots.epistemic_by_history(LABELS, {"QR": [0.06, np.nan, 0.01]}, [10, 0, 30], out)
        assert np.asarray(figure.axes[0].lines[0].get_xdata()).tolist() == [0, 2]


class TestOutOfDistribution:
    def test_heat_map_entropy_and_variance_share_the_input(self, out: Path) -> None:
        s2 = 0.02 * X**2 + 0.01
        figure = plots.out_of_distribution(X, GRID, HEAT, np.abs(X), s2, (-1.0, 1.0), out)
        assert_written(figure, out)
        top, middle, bottom = figure.axes[:3]
        mesh = next(drawn for drawn in top.collections if isinstance(drawn, QuadMesh))
        np.testing.assert_allclose(colour_values(mesh).reshape(HEAT.shape), np.sqrt(HEAT))
        np.testing.assert_array_equal(heights_of(middle.lines[0]), np.abs(X))
        np.testing.assert_array_equal(heights_of(bottom.lines[0]), s2)
        for axes in (middle, bottom):
            assert axes.patches[0].get_extents().transformed(axes.transData.inverted()).x0 == pytest.approx(-1.0)

    def test_the_reference_curve_is_quadratic_and_only_outside_the_training_range(self, out: Path) -> None:
        figure = plots.out_of_distribution(X, GRID, HEAT, np.abs(X), 0.02 * X**2 + 0.01, (-1.0, 1.0), out)
        reference = heights_of(figure.axes[2].lines[1])
        assert np.isnan(reference[np.abs(X) <= 1]).all()
        far = np.abs(X) > 1
        assert np.polyfit(np.log(np.abs(X[far])), np.log(reference[far]), 1)[0] == pytest.approx(2.0)


class TestPitHistogram:
    def test_bars_are_the_density_and_the_band_shrinks_with_rows(self, out: Path) -> None:
        values = np.linspace(0, 1, 1001)[:-1] ** 2
        figure = plots.pit_histogram(values, out, bins=10)
        assert_written(figure, out)
        *bars, band = bar_heights(figure.axes[0])
        np.testing.assert_allclose(np.array(bars), metrics.pit_histogram(values, 10))
        # One bar counts Binomial(n, 1/10) rows, so its density has standard deviation 10 sqrt(n 0.1 0.9) / n.
        assert band == pytest.approx(2 * 1.96 * 10 * np.sqrt(1000 * 0.1 * 0.9) / 1000)


class TestPredictedAgainstTruth:
    def test_every_row_is_counted_and_the_tenths_have_their_means(self, out: Path) -> None:
        mean = np.linspace(0, 2, 500)
        figure = plots.predicted_against_truth(mean, mean**2, out, unit="watch ratio")
        assert_written(figure, out)
        axes = figure.axes[0]
        assert colour_values(axes.collections[0]).sum() == 500
        np.testing.assert_allclose(heights_of(axes.lines[1]), (mean**2).reshape(10, 50).mean(axis=1))
        assert axes.get_xlabel() == "predicted mean (watch ratio)"

    def test_a_constant_prediction_can_be_drawn(self, out: Path) -> None:
        assert_written(plots.predicted_against_truth(np.ones(50), np.linspace(0, 3, 50), out), out)


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda p: plots.densities(GRID, CURVES[:, :5], None, p, list("abcd")), r"\(4, 61\), got \(4, 5\)"),
        (lambda p: plots.densities(GRID, CURVES, CURVES[:2], p, list("abcd")), "truth must have shape"),
        (lambda p: plots.densities(GRID[::-1], CURVES, None, p, list("abcd")), "grid must increase"),
        (lambda p: plots.densities(GRID, CURVES, None, p, list("abcd"), histograms=CURVES), "given together"),
        (lambda p: plots.densities(GRID, {}, None, p, list("abcd")), "one to 7 heads .* got 0"),
        (lambda p: plots.epistemic_by_history(LABELS, {}, [1, 1, 1], p), "one to 7 heads .* got 0"),
        (
            lambda p: plots.epistemic_by_history(LABELS, {"QR": [1, 2]}, [1, 1, 1], p),
            "'QR' must be 3 positive",
        ),
        (
            lambda p: plots.epistemic_by_history(LABELS, {"QR": [1, 0, 1]}, [1, 1, 1], p),
            "'QR' must be 3 posit",
        ),
        (
            lambda p: plots.epistemic_by_history(LABELS, {"QR": [1, 1, 1]}, [1, 1], p),
            "counts must have shape",
        ),
        (
            lambda p: plots.epistemic_by_history(LABELS, {"QR": [1, 1, 1]}, [0, 0, 0], p),
            "counts must be posit",
        ),
        (lambda p: plots.out_of_distribution(X, GRID, HEAT.T, X, X, (0, 1), p), "density must have shape"),
        (lambda p: plots.out_of_distribution(X, GRID, HEAT, X, X, (0, 1), p), "s2 > 0"),
        (lambda p: plots.out_of_distribution(X, GRID, HEAT, X, X**2 + 1, (1, 0), p), "training_range"),
        (lambda p: plots.pit_histogram([0.5, 1.5], p), "PIT values must lie"),
        (lambda p: plots.predicted_against_truth([1.0, 2.0], [1.0], p), r"truth must have shape \(2,\)"),
        (lambda p: plots.predicted_against_truth([np.nan], [1.0], p), "predicted has 1 values"),
    ],
)
def test_bad_input_is_a_clear_error_and_writes_nothing(draw: Callable[[Path], Figure], message: str, out: Path) -> None:
    with pytest.raises(ValueError, match=message):
        draw(out)
    assert not out.exists()


def test_global_state_of_matplotlib_stays_as_it_was(out: Path) -> None:
    before = dict(matplotlib.rcParams)
    plots.pit_histogram([0.1, 0.5, 0.9], out)
    assert dict(matplotlib.rcParams) == before
    script = "import sys; import learning.plots; sys.exit('matplotlib.pyplot' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_style_is_the_same_on_every_axes(out: Path) -> None:
    axes = charts.style_axes(Figure().subplots(), title="t", xlabel="x", ylabel="y")
    assert (axes.get_title(loc="left"), axes.get_xlabel(), axes.get_ylabel()) == ("t", "x", "y")
    assert not axes.spines["top"].get_visible()
    drawn = plots.pit_histogram([0.1, 0.5, 0.9], out).axes[0]
    assert drawn.xaxis.label.get_fontsize() == axes.xaxis.label.get_fontsize()


def test_atoms_are_spikes_of_their_mass_on_a_scale_of_their_own(out: Path) -> None:
    masses = np.array([[0.3, 0.0], [0.1, 0.2]])
    figure = plots.densities(GRID, CURVES[:2], None, out, ["a", "b"], atoms=([0.0, 1.2], masses))
    assert_written(figure, out)
    scales = [axes for axes in figure.axes if axes.get_ylabel() == "point mass"]
    assert len(scales) == 2
    for axes, expected in zip(scales, ([0.3], [0.1, 0.2]), strict=True):
        assert axes.get_ylim() == (0.0, 1.0)
        assert heights_of(axes.lines[0]).tolist() == expected


def test_atoms_need_a_mass_for_every_panel(out: Path) -> None:
    with pytest.raises(ValueError, match="atoms' masses must have shape"):
        plots.densities(GRID, CURVES[:2], None, out, ["a", "b"], atoms=([0.0], [[0.3]]))
