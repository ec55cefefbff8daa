"""Fig. 2: one context, 100 actions, sampled updates. Error and misalignment over the steps.

A step's values are those before its update (arXiv 2604.06159, section 3). In the end the misalignment is that of rare
events (one wrong action in a batch, or none), so that a single step's mean over seeds is noisy: the claims about the
end are judged by the mean of the last 10 steps.
"""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from common.runs.store import RunStore
from common.statistics import Interval, mean_between, mean_of_last, simultaneous, steps_to
from figures.claims import compared
from figures.comparison import Comparison
from figures.published import published_figure
from figures.quantities import Quantity
from figures.rules import Subject
from figures.selection import Selection, require_runs, select
from figures.style import draw_curve, finish, mark_level, new_figure, percent_axis, power_axis, styled

TITLE = "Fig. 2: single-context bandit, error and misalignment"
METHODS = ("tpo", "dg", "grpo", "pg")

_NUMBERS = published_figure("fig02")
_THRESHOLD = 0.01
_LOWEST_SHOWN = 1e-9
_SMOOTHED = 9
"""Steps over which the drawn misalignment is averaged: late ones are those of rare events."""
_ROUNDING = 1e-12
"""A misalignment this small is as good as none."""

_LATE = mean_of_last(10)
_QUANTITIES = {
    "steps": Quantity("steps to 1 % error", "error", steps_to(_THRESHOLD)),
    "final": Quantity("final error (%)", "error", scale=100),
    "early": Quantity("misalignment of the first 20 steps (1 − cos, exact)", "misalignment", mean_between(0, 19)),
    "late": Quantity("misalignment of the last 10 steps (1 − cos, exact)", "misalignment", _LATE),
    "late_epsilon": Quantity(
        "misalignment of the last 10 steps (1 − cos, norms with ε = 1e-12)", "misalignment_epsilon", _LATE
    ),
}


def chosen(store: RunStore) -> list[Selection]:
    """Return the runs that the figure shows."""
    return [select(store, "bandits", "single_context", METHODS, paper_steps=_NUMBERS.steps, paper_seeds=_NUMBERS.seeds)]


def draw(store: RunStore) -> Figure:
    """Draw the figure.

    Raises:
        NoRunsError: the store has no runs of the experiment.
    """
    (selection,) = chosen(store)
    require_runs("fig02", "single_context", [selection], store)
    with styled():
        figure, (errors, angles) = new_figure(2, width=5.2)
        for method in selection.runs:
            draw_curve(errors, method, selection.curves(method, "error"), scale=100)
            draw_curve(angles, method, selection.curves(method, "misalignment").smoothed(_SMOOTHED))
        percent_axis(errors, [0.01, 0.1, 1, 10, 100])
        mark_level(errors, 100 * _THRESHOLD, "1 %", at=0.01)
        errors.set_title("(a) error 1 − π(y*)")
        errors.set_ylabel("error (log scale)")
        power_axis(angles)
        angles.set_ylim(bottom=_lowest(selection), top=2)
        angles.set_title(f"(b) misalignment 1 − cos(g, g*), mean of {_SMOOTHED} steps")
        angles.set_ylabel("misalignment (log scale, exact cosine)")
        for axis in (errors, angles):
            axis.set_xlabel("step")
            axis.set_xlim(0, selection.steps)
        return finish(figure, TITLE, [selection])


def _lowest(selection: Selection) -> float:
    """Return the lower end of the misalignment axis: no lower than where only rounding is left to see."""
    lowest = min(float(selection.curves(method, "misalignment").mean().mean.min()) for method in selection.runs)
    return max(lowest / 3, _LOWEST_SHOWN)


def subject(store: RunStore) -> Subject:
    """Return what the claims on this figure are judged by."""
    (selection,) = chosen(store)
    return Subject({"all": selection}, _QUANTITIES, _NUMBERS, {"best_aligned": _best_aligned})


def compare(store: RunStore) -> list[Comparison]:
    """Judge the figure's claims, and what stands beside them."""
    return compared("fig02", subject(store))


def _best_aligned(selection: Selection, methods: Sequence[str]) -> tuple[Interval, str]:
    """Find that the first method is better aligned than the others at every step."""
    first, *others = (selection.resampled(method, "misalignment") for method in methods)
    best = np.minimum.reduce([each.mean for each in others])
    behind = first.curves.steps[first.mean > best + _ROUNDING]
    words = f"behind at {len(behind)} steps" + (f", the last of them {behind[-1]:.0f}" if len(behind) else "")
    return simultaneous([(first, each) for each in others]), words
