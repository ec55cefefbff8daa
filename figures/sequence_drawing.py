"""How the figures of the sequence track are drawn: panels of error curves, and sweeps over a setting."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from common.runs.store import RunStore
from common.statistics import SeedCurves, mean_and_error
from figures.published import PublishedFigure
from figures.selection import Selection, require_runs
from figures.sequences import LAST
from figures.style import METHODS as LOOKS
from figures.style import (
    MethodStyle,
    draw_curve,
    draw_points,
    finish,
    key,
    mark_level,
    new_grid,
    percent_axis,
    styled,
)
from figures.variants import title


def error_label(smoothed: int) -> str:
    """Return what the axis of smoothed exact-match errors says."""
    return f"exact-match error (log scale),\nmean of {smoothed} episodes"


DENSE_TICKS = [0.01, 0.1, 1, 10, 100]
"""Of an axis of errors per token, in per cent."""
TERMINAL_TICKS = [0.1, 0.3, 1, 3, 10, 30, 100]
"""Of an axis of exact-match errors, in per cent."""
LOW_TICKS = [0.01, 0.1, 1, 10, 100]
"""The same where errors fall lower."""

Legend = Sequence[Line2D]


def draw_panels(
    name: str,
    what: str,
    heading: str,
    rows: Sequence[Sequence[Selection]],
    store: RunStore,
    *,
    metric: str,
    label: str,
    ticks: Sequence[float],
    smoothed: int = 1,
    threshold: float | None = None,
    looks: Mapping[str, MethodStyle] | None = None,
    overlay: Callable[[Axes, Selection], Legend] | None = None,
) -> Figure:
    """Draw a figure of error curves, a panel a selection that has runs.

    Args:
        name: of the figure.
        what: experiment that it shows.
        heading: above it.
        rows: selections, row by row, as many in each; what has no runs is left out.
        store: where they are from.
        metric: what is drawn, in per cent on a log axis.
        label: of the y axis.
        ticks: of the y axis, in per cent; the first and the last are its ends.
        smoothed: episodes over which each curve is averaged.
        threshold: a level to be marked, in per cent.
        looks: of methods that are not drawn with their own look.
        overlay: draws more into a panel and returns what the legend says of it.

    Raises:
        NoRunsError: the store has no runs of any panel.
    """
    everything = [each for row in rows for each in row]
    require_runs(name, what, everything, store)
    grid = _without_empty(rows)
    extra: list[Line2D] = []
    with styled():
        figure, axes = new_grid(len(grid), len(grid[0]), *_panel_inches(len(grid[0]), len(grid)))
        for axis, each in zip((a for row in axes for a in row), (s for row in grid for s in row), strict=True):
            axis.set_visible(bool(each.runs))
            axis.set_title(each.place if len(each.place) <= _TITLE_LETTERS else each.place.replace(" (", "\n("))
            draw_errors(axis, each, metric, ticks, smoothed=smoothed, threshold=threshold, looks=looks)
            extra += overlay(axis, each) if overlay and each.runs else []
        lowest = lowest_tick((s for row in grid for s in row), metric, ticks, smoothed)
        for axis in (a for row in axes for a in row):
            axis.set_ylim(bottom=lowest)
        for column in zip(*axes, strict=True):
            [axis for axis in column if axis.get_visible()][-1].set_xlabel("episode")
        for axes_row in axes:
            next(axis for axis in axes_row if axis.get_visible()).set_ylabel(label)
        return finish(figure, heading, everything, looks=looks, extra=extra)


_TITLE_LETTERS = 34


def _without_empty(rows: Sequence[Sequence[Selection]]) -> list[list[Selection]]:
    """Return the grid of panels without the rows and columns that hold no runs at all."""
    kept = [row for row in rows if any(each.runs for each in row)]
    columns = [column for column in zip(*kept, strict=True) if any(each.runs for each in column)]
    return [list(row) for row in zip(*columns, strict=True)]


def lowest_tick(selections: Iterable[Selection], metric: str, ticks: Sequence[float], smoothed: int) -> float:
    """Return the highest tick that lies below all the curves, in per cent."""
    curves = [each.curves(method, metric).smoothed(smoothed) for each in selections for method in each.runs]
    lowest = 100 * min(float(each.mean().mean.min()) for each in curves)
    return max([tick for tick in ticks if tick <= lowest], default=ticks[0])


def _panel_inches(across: int, down: int) -> tuple[float, float]:
    width = {1: 6.4, 2: 4.8, 3: 4.0}.get(across, 3.3)
    return width, (4.6 if across < 3 else 3.8) if down == 1 else 3.0


def draw_errors(
    axis: Axes,
    selection: Selection,
    metric: str,
    ticks: Sequence[float],
    *,
    smoothed: int = 1,
    threshold: float | None = None,
    looks: Mapping[str, MethodStyle] | None = None,
) -> None:
    """Draw the curves of a panel in per cent on a log axis."""
    for method in selection.runs:
        curves = selection.curves(method, metric).smoothed(smoothed)
        draw_curve(axis, method, thinned(curves, smoothed // 2), scale=100, look=(looks or LOOKS).get(method))
    percent_axis(axis, ticks)
    axis.set_ylim(ticks[0], ticks[-1] * 1.15)
    axis.set_xlim(0, selection.steps)
    if threshold is not None:
        mark_level(axis, threshold)


def thinned(curves: SeedCurves, every: int) -> SeedCurves:
    """Return the curves at one of so many steps: a smoothed one needs no more, and dashes stay dashes."""
    every = max(1, min(every, len(curves.steps) // _ENOUGH_POINTS))
    return replace(curves, steps=curves.steps[::every], values=curves.values[:, ::every])


_ENOUGH_POINTS = 50


def draw_smoothed(
    axis: Axes,
    selection: Selection,
    metric: str,
    width: int,
    *,
    methods: Sequence[str] | None = None,
    scale: float = 1.0,
    looks: Mapping[str, MethodStyle] | None = None,
) -> None:
    """Draw any metric of a panel, averaged over so many episodes."""
    for method in selection.runs if methods is None else methods:
        curves = thinned(selection.curves(method, metric).smoothed(width), width // 2)
        draw_curve(axis, method, curves, scale=scale, look=(looks or LOOKS).get(method))
    axis.set_xlim(0, selection.steps)
    axis.set_xlabel("episode")


def draw_sweep(
    name: str,
    heading: str,
    selection: Selection,
    store: RunStore,
    *,
    labels: Mapping[str, Sequence[str]],
    values: Sequence[float],
    words: Callable[[float], str],
    x_label: str,
    numbers: PublishedFigure,
) -> Figure:
    """Draw what a setting does to two or more objectives: error curves of each, and the final errors over the setting.

    Args:
        name: of the figure.
        heading: above it.
        selection: the runs.
        store: where they are from.
        labels: for each objective its labels, one for each value.
        values: of the setting.
        words: how a value is written.
        x_label: of the setting's axis.
        numbers: published ones, shown beside ours.

    Raises:
        NoRunsError: the store has no runs of the sweep.
    """
    require_runs(name, name, [selection], store)
    with styled():
        figure, (axes,) = new_grid(1, len(labels) + 1, 4.2, 4.0)
        for axis, (objective, of_objective) in zip(axes, labels.items(), strict=False):
            there = [label for label in of_objective if selection.has([label])]
            draw_smoothed(axis, selection, "error", _SWEEP_SMOOTHED, methods=there, scale=100)
            axis.set_title(title(objective))
            axis.set_ylabel(error_label(_SWEEP_SMOOTHED))
        for objective, of_objective in labels.items():
            _draw_finals(axes[-1], selection, objective, dict(zip(of_objective, values, strict=True)), numbers)
        axes[-1].set_xscale("log", base=2)
        axes[-1].set_xticks(values, [f"{value:g}" for value in values])
        axes[-1].set_xlabel(x_label)
        axes[-1].set_ylabel("exact-match error (log scale)")
        axes[-1].set_title(f"mean of the last {LAST} episodes")
        for axis in axes:
            percent_axis(axis, LOW_TICKS)
            axis.set_ylim(LOW_TICKS[0], 115)
        scale = [
            key(LOOKS[label], words(value)) for label, value in zip(next(iter(labels.values())), values, strict=True)
        ]
        objectives_keys = [key(LOOKS[objective], title(objective), marker=True) for objective in labels]
        return finish(figure, heading, [selection], methods=[], extra=[*scale, *objectives_keys, PAPER_KEY])


_SWEEP_SMOOTHED = 20
PAPER_LOOK: dict[str, Any] = {"color": "0.45", "linestyle": "", "markerfacecolor": "none", "markersize": 8}
"""Of a published number beside ours."""
PAPER_KEY = Line2D([], [], marker="o", label="the paper's numbers", **PAPER_LOOK)
"""Says so in the legend."""


def _draw_finals(
    axis: Axes, selection: Selection, objective: str, values: Mapping[str, float], numbers: PublishedFigure
) -> None:
    """Draw an objective's error over the last episodes, and the paper's numbers, over the values of the setting."""
    shown = {label: value for label, value in values.items() if selection.has([label])}
    finals = [selection.curves(label, "error").values[:, -LAST:].mean(axis=1) for label in shown]
    draw_points(axis, LOOKS[objective], list(shown.values()), [mean_and_error(each) for each in finals], scale=100)
    for label, number in numbers.at("paper", "error").items():
        if label in values:
            axis.plot(values[label], number.value, marker=LOOKS[objective].marker, **PAPER_LOOK)
