"""The style of all plots; importing it does not need matplotlib."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DPI = 150
# The palette of Okabe and Ito (2008), which is safe for all common colour-vision deficiencies, plus a brown.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C6D31")
MARKERS = "osD^vPX"
TRUTH, DATA, GRID, TEXT = "#222222", "#BDBDBD", "#E3E3E3", "#333333"


def style_axes(axes: "Axes", *, title: str = "", xlabel: str = "", ylabel: str = "") -> "Axes":
    """Apply the style to one pair of axes: open frame, light grid behind the data, one text size."""
    axes.set_title(title, fontsize=11, color=TEXT, loc="left", fontweight="bold")
    axes.set_xlabel(xlabel, fontsize=10, color=TEXT)
    axes.set_ylabel(ylabel, fontsize=10, color=TEXT)
    axes.tick_params(which="both", labelsize=9, colors=TEXT, length=3)
    axes.grid(True, color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color("#888888")
    return axes
