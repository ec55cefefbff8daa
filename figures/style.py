"""How figures look: one colour and line style a method everywhere, log axes with readable ticks, s.e. bands.

Colours are those of Okabe & Ito (2008), told apart with colour-blind eyes; line styles tell methods apart without any
colour. Nothing needs a display.
"""

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import matplotlib.style
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter, NullLocator

from common.statistics import SeedCurves
from figures.selection import Selection, title

_RC: dict[str, Any] = {
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "0.9",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "legend.frameon": False,
    "legend.handlelength": 3.2,
    "pdf.fonttype": 42,
    "savefig.dpi": 160,
}
_NO_METADATA: dict[str, dict[str, None]] = {
    "png": {"Software": None},
    "pdf": {"Creator": None, "Producer": None, "CreationDate": None},
}
FORMATS = tuple(_NO_METADATA)


class MethodStyle(NamedTuple):
    """How a method is drawn."""

    colour: str
    line: Any
    """A matplotlib line style."""
    width: float = 1.6
    marker: str = "o"


_BLACK, _ORANGE, _SKY, _GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
_BLUE, _VERMILLION, _PURPLE = "#0072B2", "#D55E00", "#CC79A7"
_DASHED, _DOTTED, _DASH_DOT, _LONG_DASHED = (0, (5, 2)), (0, (1, 1.3)), (0, (6, 2, 1, 2)), (0, (9, 2))

METHODS: dict[str, MethodStyle] = {
    "tpo": MethodStyle(_BLUE, "-", 2.4, "o"),
    "tpo_no_anchor": MethodStyle(_BLUE, _DOTTED, 1.8, "o"),
    "dg": MethodStyle(_VERMILLION, _DASHED, 1.8, "s"),
    "grpo": MethodStyle(_GREEN, _DASH_DOT, 1.8, "^"),
    "grpo_no_kl": MethodStyle(_GREEN, _DOTTED, 1.8, "v"),
    "grpo_zv_masked": MethodStyle(_GREEN, _DASHED, 1.6, "<"),
    "pg": MethodStyle(_ORANGE, _LONG_DASHED, 1.8, "D"),
    "group_pg": MethodStyle(_PURPLE, (0, (3, 1.5, 1, 1.5, 1, 1.5)), 1.8, "P"),
    "ppo": MethodStyle(_SKY, "-", 1.4, "X"),
    "ce": MethodStyle(_BLACK, _DOTTED, 1.8, "x"),
}


@contextmanager
def styled() -> Iterator[None]:
    """Draw with the project's settings alone, whatever the user's own matplotlibrc says."""
    with matplotlib.style.context(_RC, after_reset=True):
        yield


def new_figure(panels: int, width: float = 4.8, height: float = 4.6) -> tuple[Figure, Sequence[Axes]]:
    """Return a figure with panels side by side, ``width`` inches each."""
    figure = Figure(figsize=(width * panels, height), layout="constrained")
    axes = figure.subplots(1, panels, squeeze=False)[0]
    for letter, axis in zip("abcdef", axes, strict=False):
        axis.set_title(f"({letter})")
    return figure, list(axes)


def draw_curve(axis: Axes, method: str, curves: SeedCurves, *, scale: float = 1.0, shift: float = 0.0) -> None:
    """Draw a method's mean ± s.e. over the seeds present at each step.

    Args:
        axis: where.
        method: decides colour and line style.
        curves: values at steps.
        scale: factor on the values, 100 for per cent.
        shift: added to the steps.
    """
    look = METHODS[method]
    steps, mean, se, _ = curves.mean()
    x, low, high = steps + shift, scale * (mean - se), scale * (mean + se)
    axis.plot(x, scale * mean, color=look.colour, linestyle=look.line, linewidth=look.width)
    axis.fill_between(x, low.clip(min=1e-30), high, color=look.colour, alpha=0.18, linewidth=0)


def percent_axis(axis: Axes, ticks: Sequence[float]) -> None:
    """Make the y axis logarithmic, in per cent, with these ticks."""
    axis.set_yscale("log")
    axis.yaxis.set_major_locator(FixedLocator(ticks))
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g} %"))
    axis.yaxis.set_minor_locator(NullLocator())


def power_axis(axis: Axes, ticks: int = 8) -> None:
    """Make the y axis logarithmic with powers of ten."""
    axis.set_yscale("log")
    axis.yaxis.set_major_locator(LogLocator(numticks=ticks))
    axis.yaxis.set_minor_formatter(NullFormatter())


def mark_level(axis: Axes, value: float, words: str, *, at: float) -> None:
    """Draw a horizontal line and name it, ``at`` a fraction of the axis's width."""
    axis.axhline(value, color="0.35", linewidth=0.9, linestyle=(0, (2, 2)), zorder=1)
    axis.annotate(
        words,
        xy=(at, value),
        xycoords=axis.get_yaxis_transform(),
        xytext=(0, 3),
        textcoords="offset points",
        fontsize=8.5,
        color="0.3",
    )


def finish(figure: Figure, heading: str, selection: Selection, methods: Sequence[str] | None = None) -> Figure:
    """Put heading and legend above the panels, and what a reader must know of the runs below."""
    shown = list(selection.runs) if methods is None else list(methods)
    names = [title(method) for method in shown]
    handles = [_handle(method) for method in shown]
    legend = figure.legend(handles, names, loc="outside upper left", ncols=len(shown), title=heading)
    legend.set_alignment("left")
    legend.get_title().set_fontsize(12)
    reduced = "REDUCED" in selection.footer()
    colour = "#A00000" if reduced else "0.35"
    figure.supxlabel(selection.footer(), fontsize=7.5, color=colour, x=0.01, ha="left")
    return figure


def _handle(method: str) -> Line2D:
    look = METHODS[method]
    return Line2D([], [], color=look.colour, linestyle=look.line, linewidth=look.width)


def rendered(figure: Figure, kind: str) -> bytes:
    """Return the figure as a PNG or PDF file; the same figure gives the same bytes."""
    sink = io.BytesIO()
    with styled():
        figure.savefig(sink, format=kind, metadata=_NO_METADATA[kind])
    return sink.getvalue()
