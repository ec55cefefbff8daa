"""Fig. 2: one context, 100 actions, sampled updates. Error and misalignment over the steps.

A step's values are those before its update (arXiv 2604.06159, section 3). In the end the misalignment is that of rare
events (one wrong action in a batch, or none), so that a single step's mean over seeds is noisy: the claims about the
end are judged by the mean of the last 10 steps.
"""

import numpy as np
from matplotlib.figure import Figure

from common.runs.store import RunStore
from common.statistics import (
    Interval,
    mean_between,
    mean_of_last,
    simultaneous,
    steps_to,
)
from figures.claims import Quantity, below_claim, bound_claim, ordering_claim, value_claims
from figures.comparison import Comparison
from figures.published import published_figure
from figures.selection import Selection, require_runs, select
from figures.style import draw_curve, finish, mark_level, new_figure, percent_axis, power_axis, styled
from figures.variants import title, titles

TITLE = "Fig. 2: single-context bandit, error and misalignment"
METHODS = ("tpo", "dg", "grpo", "pg")

_NUMBERS = published_figure("fig02")
_LEADERS, _OTHERS = ("tpo", "dg"), ("pg", "grpo")
_EARLY = 19
"""Last of the steps at which GRPO is the best aligned."""
_THRESHOLD = 0.01
_LOWEST_SHOWN = 1e-9
_SMOOTHED = 9
"""Steps over which the drawn misalignment is averaged: late ones are those of rare events."""
_ROUNDING = 1e-12
"""A misalignment this small is as good as none."""

_STEPS = Quantity("steps to 1 % error", "error", steps_to(_THRESHOLD))
_FINAL = Quantity("final error (%)", "error", scale=100)
_LATE = mean_of_last(10)
_MISALIGNMENT = Quantity("misalignment of the last 10 steps (1 − cos, exact)", "misalignment", _LATE)
_WITH_EPSILON = Quantity(
    "misalignment of the last 10 steps (1 − cos, norms with ε = 1e-12)", "misalignment_epsilon", _LATE
)


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


def compare(store: RunStore) -> list[Comparison]:
    """Judge the paper's claims and the artefact's numbers."""
    (selection,) = chosen(store)
    return [
        *_speed(selection),
        *_alignment(selection),
        *value_claims(selection, _WITH_EPSILON, _NUMBERS.paper["late_misalignment"]),
        *value_claims(selection, _STEPS, _NUMBERS.artefact["steps_to_1pct"]),
        *value_claims(selection, _FINAL, _NUMBERS.artefact["final_error"]),
        *value_claims(selection, _WITH_EPSILON, _NUMBERS.artefact["late_misalignment"]),
    ]


def _speed(selection: Selection) -> list[Comparison]:
    """Who reaches 1 % first, and who ends lowest."""
    rows = []
    for leader in _LEADERS:
        rows.append(
            below_claim(
                selection,
                _STEPS,
                [leader],
                _OTHERS,
                claim=f"{title(leader)} reaches 1 % error in fewer steps than {titles(_OTHERS)}",
                source="Fig. 2, text",
                said=f"{title(leader)} sooner",
            )
        )
    for leader in _LEADERS:
        rows.append(
            below_claim(
                selection,
                _FINAL,
                [leader],
                _OTHERS,
                claim=f"{title(leader)}'s final error (%) is below that of {titles(_OTHERS)}",
                source="Fig. 2, text",
                said=f"{title(leader)} lower",
            )
        )
    return rows + [_stuck(selection, method) for method in _OTHERS]


def _stuck(selection: Selection, method: str) -> Comparison:
    """Judge that a method's final error is not below 1 %."""
    return bound_claim(
        selection,
        _FINAL,
        method,
        100 * _THRESHOLD,
        above=True,
        claim=f"{title(method)} does not get beyond 1 % error (interval: 1 − final error, %)",
        source="Fig. 2, text",
        said="stays above 1 %",
    )


def _alignment(selection: Selection) -> list[Comparison]:
    """Who is best aligned: always, at first, and in the end."""
    others = [method for method in METHODS if method != "tpo"]

    def always() -> tuple[Interval, str]:
        curves = {method: selection.resampled(method, "misalignment") for method in METHODS}
        best = np.minimum.reduce([curves[method].mean for method in others])
        behind = curves["tpo"].curves.steps[curves["tpo"].mean > best + _ROUNDING]
        words = f"behind at {len(behind)} steps" + (f", the last of them {behind[-1]:.0f}" if len(behind) else "")
        return simultaneous([(curves["tpo"], curves[method]) for method in others]), words

    early = Quantity("misalignment", "misalignment", mean_between(0, _EARLY))
    return [
        ordering_claim(
            selection,
            "TPO is the best aligned at every step",
            "Fig. 2, text",
            "TPO throughout",
            METHODS,
            always,
        ),
        below_claim(
            selection,
            early,
            ["grpo"],
            [method for method in METHODS if method != "grpo"],
            claim=f"GRPO is the best aligned at first (mean misalignment of steps 0–{_EARLY})",
            source="artefact, measured at 73473b9",
            said="GRPO lowest",
        ),
        below_claim(
            selection,
            _MISALIGNMENT,
            ["tpo"],
            others,
            claim="TPO is the best aligned at the end (mean of the last 10 steps, exact cosine)",
            source="Fig. 2, text",
            said="TPO lowest",
        ),
    ]
