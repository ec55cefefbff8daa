"""How figures look: one colour and line style a method everywhere, log axes with readable ticks, s.e. bands.

Colours are those of Okabe & Ito (2008), told apart with colour-blind eyes, and for ordered settings (epochs, group
sizes, temperatures) a scale from dark to light; line styles tell methods apart without any colour. Nothing needs a
display.
"""

import io
import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple

import matplotlib.style
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter, NullLocator

from common.statistics import Estimate, SeedCurves
from figures.selection import Selection, footer
from figures.variants import (
    EPOCHS,
    GROUP_SIZES,
    TEMPERATURES,
    epochs_label,
    group_label,
    temperature_label,
    title,
)

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
    "svg.hashsalt": "figures",
    "savefig.dpi": 160,
}
_NO_METADATA: dict[str, dict[str, None]] = {
    "png": {"Software": None},
    "pdf": {"Creator": None, "Producer": None, "CreationDate": None},
    "svg": {"Creator": None, "Date": None},
}
FORMATS = ("png", "pdf")
"""Of files; pages take SVG."""


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

_OBJECTIVES: dict[str, MethodStyle] = {
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
_SCALE = tuple(
    MethodStyle(colour, line, 1.8, marker)
    for colour, line, marker in zip(
        ("#0d0887", "#7e03a8", "#cc4778", "#f0804e", "#f0b429"),
        ("-", _LONG_DASHED, _DASH_DOT, _DASHED, _DOTTED),
        "os^Dv",
        strict=True,
    )
)
"""For five values of a setting, from the smallest to the largest."""


def _scaled(labels: Sequence[str]) -> dict[str, MethodStyle]:
    return dict(zip(labels, _SCALE, strict=True))


METHODS: dict[str, MethodStyle] = {
    **_OBJECTIVES,
    "tpo_token": _OBJECTIVES["tpo"],
    "grpo_token": _OBJECTIVES["grpo"],
    **_scaled([temperature_label(eta) for eta in TEMPERATURES]),
    **{
        label: look
        for name in ("tpo", "grpo")
        for label, look in _scaled([group_label(name, count) for count in GROUP_SIZES]).items()
    },
    **{
        label: look
        for name in ("tpo", "grpo")
        for label, look in _scaled([epochs_label(name, count) for count in EPOCHS]).items()
    },
    "tpo_mean": _OBJECTIVES["tpo"],
    "tpo_sum": MethodStyle(_VERMILLION, _DASHED, 1.8, "s"),
    "dg_1_epoch": _OBJECTIVES["dg"],
    "dg_4_epochs": MethodStyle(_ORANGE, _LONG_DASHED, 1.8, "D"),
}
"""By label."""
BESIDE_OTHERS: dict[str, MethodStyle] = {
    "tpo_4_epochs": _OBJECTIVES["tpo"],
    "tpo_1_epoch": MethodStyle(_BLUE, _DOTTED, 2.0, "o"),
}
"""How TPO with one gradient epoch and with four looks beside other objectives, rather than beside other epochs."""


@contextmanager
def styled() -> Iterator[None]:
    """Draw with the project's settings alone, whatever the user's own matplotlibrc says."""
    with matplotlib.style.context(_RC, after_reset=True):
        yield


def new_figure(panels: int, width: float = 4.8, height: float = 4.6) -> tuple[Figure, Sequence[Axes]]:
    """Return a figure with panels side by side, ``width`` inches each."""
    figure, (axes,) = new_grid(1, panels, width, height)
    for letter, axis in zip("abcdef", axes, strict=False):
        axis.set_title(f"({letter})")
    return figure, axes


def new_grid(rows: int, columns: int, width: float, height: float) -> tuple[Figure, list[list[Axes]]]:
    """Return a figure with rows of panels, ``width`` by ``height`` inches each."""
    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    return figure, [list(row) for row in figure.subplots(rows, columns, squeeze=False)]


def draw_curve(
    axis: Axes,
    method: str,
    curves: SeedCurves,
    *,
    scale: float = 1.0,
    shift: float = 0.0,
    look: MethodStyle | None = None,
) -> None:
    """Draw a method's mean ± s.e. over the seeds present at each step.

    Args:
        axis: where.
        method: decides colour and line style.
        curves: values at steps.
        scale: factor on the values, 100 for per cent.
        shift: added to the steps.
        look: another look than the method's own.
    """
    look = look or METHODS[method]
    steps, mean, se, _ = curves.mean()
    x, low, high = steps + shift, scale * (mean - se), scale * (mean + se)
    axis.plot(x, scale * mean, color=look.colour, linestyle=look.line, linewidth=look.width)
    axis.fill_between(x, low.clip(min=1e-30), high, color=look.colour, alpha=0.18, linewidth=0)


def draw_points(
    axis: Axes, look: MethodStyle, x: Sequence[float], estimates: Sequence[Estimate], *, scale: float = 1.0
) -> None:
    """Draw numbers ± s.e. over the values of a setting, joined by lines."""
    mean, se = (scale * np.array([getattr(each, part) for each in estimates]) for part in ("mean", "se"))
    low = np.minimum(se, mean * (1 - 1e-9))  # what a log axis can show
    axis.errorbar(
        x,
        mean,
        yerr=np.stack([low, se]),
        color=look.colour,
        linestyle=look.line,
        linewidth=look.width,
        marker=look.marker,
        markersize=6,
        markeredgecolor="white",
        capsize=2.5,
        elinewidth=1,
    )


def percent_axis(axes: Axes, ticks: Sequence[float], *, which: Literal["x", "y"] = "y") -> None:
    """Make an axis logarithmic, in per cent, with these ticks."""
    (axes.set_xscale if which == "x" else axes.set_yscale)("log")
    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_major_locator(FixedLocator(ticks))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g} %"))
    axis.set_minor_locator(NullLocator())


def power_axis(axis: Axes, ticks: int = 8) -> None:
    """Make the y axis logarithmic with powers of ten."""
    axis.set_yscale("log")
    axis.yaxis.set_major_locator(LogLocator(numticks=ticks))
    axis.yaxis.set_minor_formatter(NullFormatter())


def mark_level(axis: Axes, value: float, words: str = "", *, at: float = 0) -> None:
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


def finish(
    figure: Figure,
    heading: str,
    selections: Sequence[Selection],
    *,
    looks: Mapping[str, MethodStyle] | None = None,
    extra: Sequence[Line2D] = (),
    methods: Sequence[str] | None = None,
) -> Figure:
    """Put heading and legend above the panels, and what a reader must know of the runs below.

    Args:
        figure: with all its panels.
        heading: what it shows.
        selections: the runs of its panels.
        looks: of methods that are not drawn with their own look.
        extra: more lines for the legend, labelled.
        methods: for the legend; those with runs where not given.
    """
    if methods is None:
        present = {method for each in selections for method in each.runs}
        methods = [m for m in dict.fromkeys(m for each in selections for m in each.methods) if m in present]
    looks = {**METHODS, **(looks or {})}
    handles = [key(looks[method], title(method)) for method in methods] + list(extra)
    names = [str(line.get_label()) for line in handles]
    width = figure.get_figwidth()
    columns = max(1, min(len(names), math.floor(width / (_KEY_INCHES + _LETTER_INCHES * max(map(len, names))))))
    columns = math.ceil(len(names) / math.ceil(len(names) / columns))
    legend = figure.legend(handles, names, loc="outside upper left", ncols=columns, title=heading, columnspacing=1.4)
    legend.set_alignment("left")
    legend.get_title().set_fontsize(12)
    words = footer(selections)
    figure.supxlabel(
        textwrap.fill(words, int(width / _SMALL_LETTER_INCHES)),
        fontsize=7.5,
        color="#A00000" if "REDUCED" in words else "0.35",
        x=0.01,
        ha="left",
    )
    return figure


_KEY_INCHES, _LETTER_INCHES, _SMALL_LETTER_INCHES = 0.75, 0.075, 0.056


def key(look: MethodStyle, label: str, *, marker: bool = False) -> Line2D:
    """Return a line for the legend."""
    return Line2D(
        [],
        [],
        color=look.colour,
        linestyle=look.line,
        linewidth=look.width,
        marker=look.marker if marker else "",
        markeredgecolor="white",
        label=label,
    )


def rendered(figure: Figure, kind: str) -> bytes:
    """Return the figure as a PNG, PDF or SVG file, the last without a background; the same figure, the same bytes."""
    sink = io.BytesIO()
    with styled():
        figure.savefig(sink, format=kind, metadata=_NO_METADATA[kind], transparent=kind == "svg")
    return sink.getvalue()
