"""Fig. 3: 100 contexts of 10 actions, exact gradients. Where each objective spends a step of fixed length.

Errors are those after a step's update (arXiv 2604.06159, section 3).
"""

from collections.abc import Callable

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from common.runs.store import RunStore
from common.statistics import Sample, compare_curves, mean_between, steps_to
from common.statistics.curves import Array
from figures.claims import compared
from figures.comparison import Comparison
from figures.published import published_figure
from figures.quantities import Derived, Measurable, Quantity
from figures.rules import Subject
from figures.selection import Selection, require_runs, select
from figures.style import METHODS as LOOKS
from figures.style import draw_curve, finish, mark_level, new_figure, percent_axis, power_axis, styled

TITLE = "Fig. 3: multi-context bandit with exact gradients"
METHODS = ("ce", "tpo", "grpo", "dg", "pg")

_NUMBERS = published_figure("fig03")
_THRESHOLD = 0.01
_LOWEST_SHOWN = 1e-8
"""Below it float32 rounding is all there is to see."""
_ACTIONS = 10


def chosen(store: RunStore) -> list[Selection]:
    """Return the runs that the figure shows."""
    return [select(store, "bandits", "multi_context", METHODS, paper_steps=_NUMBERS.steps, paper_seeds=_NUMBERS.seeds)]


def weights(actions: int) -> dict[str, Callable[[Array], Array]]:
    """Return β(p) by method: a context's update is β(p)(e_y − π), with p = π(y).

    CE 1, PG p, DG p·σ(−log p) = p/(1+p), GRPO sqrt(p/(1−p)), TPO p(λ−1)/(1−p+λp) with λ = exp(A/sqrt(A−1)) for A
    actions (arXiv 2604.06159, section 3).
    """
    ratio = np.exp(actions / np.sqrt(actions - 1))
    return {
        "ce": np.ones_like,
        "tpo": lambda p: p * (ratio - 1) / (1 - p + ratio * p),
        "grpo": lambda p: np.sqrt(p / (1 - p)),
        "dg": lambda p: p / (1 + p),
        "pg": lambda p: p,
    }


def draw(store: RunStore) -> Figure:
    """Draw the figure.

    Raises:
        NoRunsError: the store has no runs of the experiment.
    """
    (selection,) = chosen(store)
    require_runs("fig03", "multi_context", [selection], store)
    with styled():
        figure, (errors, angles, shares) = new_figure(3, width=4.5)
        for method in selection.runs:
            draw_curve(errors, method, selection.curves(method, "error"), scale=100, shift=1)
            draw_curve(angles, method, selection.curves(method, "misalignment"), shift=1)
        percent_axis(errors, [0.03, 0.1, 0.3, 1, 3, 10, 30, 100])
        mark_level(errors, 100 * _THRESHOLD, "1 %", at=0.02)
        errors.set_title("(a) error 1 − mean π(y)")
        errors.set_ylabel("error (log scale)")
        power_axis(angles)
        angles.set_ylim(bottom=_LOWEST_SHOWN)
        angles.set_title("(b) misalignment to cross-entropy's direction")
        angles.set_ylabel("1 − cos (log scale)")
        for axis in (errors, angles):
            axis.set_xlabel("updates done")
        _draw_weights(shares)
        return finish(figure, TITLE, [selection])


def _draw_weights(axis: Axes) -> None:
    p = np.geomspace(1e-3, 0.995, 400)
    for method, weight in weights(_ACTIONS).items():
        look = LOOKS[method]
        axis.plot(p, weight(p), color=look.colour, linestyle=look.line, linewidth=look.width)
    axis.set_xscale("log")
    power_axis(axis)
    axis.set_title("(c) weight β(p) of a context, closed form")
    axis.set_xlabel("p, the context's probability of the right action")
    axis.set_ylabel("β(p) (log scale)")


def _distance_to_ce(selection: Selection, method: str) -> Sample:
    """Return the mean over the steps of how far log10 of a method's error is from that of CE's."""

    def of(_: Array, left: Array, right: Array) -> Array:
        return np.abs(np.log10(left) - np.log10(right)).mean(axis=-1)

    return compare_curves(selection.resampled(method, "error"), selection.resampled("ce", "error"), of)


def _passing(selection: Selection, method: str) -> Sample:
    """Return the first step from which TPO's mean error stays below the method's; +inf where it ends above."""

    def of(steps: Array, tpo: Array, other: Array) -> Array:
        below_ever_after = np.logical_and.accumulate((tpo < other)[..., ::-1], axis=-1)[..., ::-1]
        return np.where(below_ever_after.any(axis=-1), steps[below_ever_after.argmax(axis=-1)], np.inf)

    return compare_curves(selection.resampled("tpo", "error"), selection.resampled(method, "error"), of)


_QUANTITIES: dict[str, Measurable] = {
    "steps": Quantity("steps to 1 % error", "error", steps_to(_THRESHOLD)),
    "final": Quantity("final error (%)", "error", scale=100),
    "early": Quantity("mean error (%) of steps 0–99", "error", mean_between(0, 99), scale=100),
    "final_epsilon": Quantity("final misalignment (1 − cos, norms with ε = 1e-12)", "misalignment_epsilon"),
    "distance": Derived(
        "mean distance |log10 error − log10 CE's error| over the steps", _distance_to_ce, beside=("ce",)
    ),
    "passing": Derived("step from which TPO stays ahead", _passing, beside=("tpo",)),
}


def subject(store: RunStore) -> Subject:
    """Return what the claims on this figure are judged by."""
    (selection,) = chosen(store)
    return Subject({"all": selection}, _QUANTITIES, _NUMBERS)


def compare(store: RunStore) -> list[Comparison]:
    """Judge the figure's claims, and what stands beside them."""
    return compared("fig03", subject(store))
