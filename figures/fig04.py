"""Fig. 4: MNIST as a contextual bandit. Test error, and why TPO corrects confident mistakes.

Steps count updates done. The paper's axis starts at the first evaluation, so that its labels 1,600, 2,000 and 2,200
stand for 1,800, 2,200 and 2,400 updates (arXiv 2604.06159, section 4).
"""

import itertools
import math
from collections.abc import Sequence
from functools import partial

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from common.runs.store import RunStore
from common.statistics import (
    FINAL,
    Interval,
    Sample,
    all_of,
    difference,
    interval,
    mean_and_error,
    measure,
    resample,
    steps_to,
)
from figures.claims import compared
from figures.comparison import Comparison, number
from figures.published import published_figure
from figures.quantities import ABSENT, Derived, Measurable, Quantity
from figures.rules import Subject
from figures.selection import Selection, require_runs, select
from figures.style import METHODS as LOOKS
from figures.style import draw_curve, finish, mark_level, new_figure, percent_axis, styled

TITLE = "Fig. 4: MNIST contextual bandit"
METHODS = ("ce", "tpo", "dg", "pg", "grpo", "group_pg")

_NUMBERS = published_figure("fig04")
_THRESHOLD = 0.05
_MECHANISM_STEP = 2200
_BINS = ("[0, ¼)", "[¼, ½)", "[½, ¾)", "[¾, 1]")
_WITH_SURPLUS = ("tpo", "dg")  # that of PG and Group PG is 0, of whatever policy
"""GRPO's update depends on the whole batch, CE's on no reward."""


def chosen(store: RunStore) -> list[Selection]:
    """Return the runs that the figure shows."""
    return [select(store, "bandits", "mnist", METHODS, paper_steps=_NUMBERS.steps, paper_seeds=_NUMBERS.seeds)]


def draw(store: RunStore) -> Figure:
    """Draw the figure.

    Raises:
        NoRunsError: the store has no runs of the experiment.
    """
    (selection,) = chosen(store)
    require_runs("fig04", "mnist", [selection], store)
    with styled():
        figure, (errors, surplus) = new_figure(2, width=5.4)
        for method in selection.runs:
            draw_curve(errors, method, selection.curves(method, "error"), scale=100)
        percent_axis(errors, [2, 3, 5, 10, 20, 50, 100])
        mark_level(errors, 100 * _THRESHOLD, "5 %", at=0.01)
        errors.set_title("(a) test error")
        errors.set_xlabel("updates done")
        errors.set_ylabel("test error (log scale)")
        errors.set_xlim(0, selection.steps)
        errors.set_ylim(top=40)  # all start near 90 %
        _draw_surplus(surplus, selection)
        return finish(figure, TITLE, [selection])


def _draw_surplus(axis: Axes, selection: Selection) -> None:
    """Draw the mean surplus by bin of confusion, a marker a method."""
    step = _shown_step(selection)
    shown = [method for method in _WITH_SURPLUS if method in selection.runs]
    for place, method in enumerate(shown):
        look = LOOKS[method]
        for index in range(len(_BINS)):
            values = selection.curves(method, f"surplus_{index}").at(step).values
            if not values.size:
                continue
            mean, se, _ = mean_and_error(values)
            x = index + 0.16 * (place - (len(shown) - 1) / 2)
            axis.bar(x, mean, 0.14, color=look.colour, yerr=se, error_kw={"capsize": 2, "elinewidth": 1})
            axis.plot(x, mean, look.marker, color=look.colour, markersize=5, markeredgecolor="white")
    axis.axhline(0, color="0.2", linewidth=0.9)
    axis.set_xticks(range(len(_BINS)), _BINS)
    axis.set_xlim(-0.5, len(_BINS) - 0.5)
    axis.set_xlabel("confusion of misclassified images, largest wrong π / (1 − π(y))")
    axis.set_ylabel("surplus of the first-order gain in π(y)")
    axis.set_title(f"(b) gain over the symmetric surrogate, {step:,} updates")


def _shown_step(selection: Selection) -> int:
    """Return the paper's step, or the last one of runs that are shorter."""
    return min(_MECHANISM_STEP, selection.steps)


def _surplus(selection: Selection, method: str, *, index: int) -> Sample:
    """Return the mean surplus in a bin over the seeds that fill it."""
    curves = selection.curves(method, f"surplus_{index}").at(_MECHANISM_STEP)
    return measure(resample(curves), FINAL) if curves.seeds else ABSENT


def _filled_bins(selection: Selection, method: str) -> list[Sample]:
    """Return the surplus in the bins that most seeds fill."""
    samples = [_surplus(selection, method, index=index) for index in range(len(_BINS))]
    return [sample for sample in samples if sample.n >= selection.seeds([method]) / 2]


def _rising(selection: Selection, methods: Sequence[str]) -> tuple[Interval, str]:
    """Find that each bin's surplus is below the next one's."""
    (method,) = methods
    filled = _filled_bins(selection, method)
    steps = [interval(difference(low, high)) for low, high in itertools.pairwise(filled)]
    return _largest(steps), _values(filled)


def _not_positive(selection: Selection, methods: Sequence[str]) -> tuple[Interval, str]:
    """Find that no bin's surplus is above 0."""
    (method,) = methods
    filled = _filled_bins(selection, method)
    return _largest([interval(sample) for sample in filled]), _values(filled)


def _largest(intervals: Sequence[Interval]) -> Interval:
    return all_of(intervals) if intervals else Interval(-math.inf, math.inf)


def _values(samples: Sequence[Sample]) -> str:
    return ", ".join(number(sample.estimate) for sample in samples) or "not in these runs"


_QUANTITIES: dict[str, Measurable] = {
    "updates": Quantity("updates to 5 % test error", "error", steps_to(_THRESHOLD)),
    "final": Quantity("final test error (%)", "error", scale=100),
    **{
        f"surplus_{index}": Derived(
            f"surplus at confusion in {bounds} after {_MECHANISM_STEP:,} updates", partial(_surplus, index=index)
        )
        for index, bounds in enumerate(_BINS)
    },
}


def subject(store: RunStore) -> Subject:
    """Return what the claims on this figure are judged by."""
    (selection,) = chosen(store)
    return Subject({"all": selection}, _QUANTITIES, _NUMBERS, {"rising": _rising, "not_positive": _not_positive})


def compare(store: RunStore) -> list[Comparison]:
    """Judge the figure's claims, and what stands beside them."""
    return compared("fig04", subject(store))
