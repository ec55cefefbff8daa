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
from figures.claims import Quantity, below_claim, ordering_claim, value_claim, value_claims
from figures.comparison import Comparison, number
from figures.published import published_figure
from figures.selection import Selection, require_runs, select
from figures.style import METHODS as LOOKS
from figures.style import draw_curve, finish, mark_level, new_figure, percent_axis, styled
from figures.variants import title

TITLE = "Fig. 4: MNIST contextual bandit"
METHODS = ("ce", "tpo", "dg", "pg", "grpo", "group_pg")

_NUMBERS = published_figure("fig04")
_THRESHOLD = 0.05
_MECHANISM_STEP = 2200
_BINS = ("[0, ¼)", "[¼, ½)", "[½, ¾)", "[¾, 1]")
_BANDIT_METHODS = METHODS[1:]
_WITH_SURPLUS = ("tpo", "dg")  # that of PG and Group PG is 0, of whatever policy
"""GRPO's update depends on the whole batch, CE's on no reward."""

_UPDATES = Quantity("updates to 5 % test error", "error", steps_to(_THRESHOLD))
_FINAL = Quantity("final test error (%)", "error", scale=100)


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


def compare(store: RunStore) -> list[Comparison]:
    """Judge the paper's claims and the artefact's numbers."""
    (selection,) = chosen(store)
    return [
        *_speed(selection),
        *value_claims(selection, _FINAL, _NUMBERS.paper["final_error"]),
        *_mechanism(selection),
        *value_claims(selection, _UPDATES, _NUMBERS.artefact["updates_to_5pct"]),
        *value_claims(selection, _FINAL, _NUMBERS.artefact["final_error"]),
    ]


def _speed(selection: Selection) -> list[Comparison]:
    """Updates to 5 % error, and that TPO needs the fewest."""
    rows = [
        value_claim(
            selection,
            f"{title(method)}: {_UPDATES.words} (labelled {published.value - 200:,.0f} on the paper's axis)",
            [method],
            published,
            partial(_UPDATES.of, selection, method),
        )
        for method, published in _NUMBERS.paper["updates_to_5pct"].items()
    ]
    slower = [method for method in _BANDIT_METHODS if method != "tpo"]
    first = below_claim(
        selection,
        _UPDATES,
        ["tpo"],
        slower,
        claim=f"TPO is the first bandit method: {_UPDATES.words}",
        source="Fig. 4, text",
        said="TPO first",
    )
    return [*rows, first]


def _mechanism(selection: Selection) -> list[Comparison]:
    """The surplus by bin: its values, that TPO's rises, that DG's is nowhere positive."""
    rows = []
    for method in ("tpo", "dg"):
        for index, bounds in enumerate(_BINS):
            rows.append(
                value_claim(
                    selection,
                    f"{title(method)}: surplus at confusion in {bounds} after {_MECHANISM_STEP:,} updates",
                    [method],
                    _NUMBERS.paper[f"surplus_{index}"][method],
                    partial(_surplus, selection, method, index),
                )
            )
    return [
        *rows,
        ordering_claim(
            selection,
            "TPO's surplus rises with the confusion: each bin less the next is below 0",
            "Fig. 4b, text",
            "rises",
            ["tpo"],
            partial(_rising, selection),
        ),
        ordering_claim(
            selection,
            "DG's surplus is nowhere positive: the largest bin is below 0",
            "Fig. 4b, text",
            "≤ 0",
            ["dg"],
            partial(_not_positive, selection),
        ),
    ]


def _surplus(selection: Selection, method: str, index: int) -> Sample | None:
    """Return the mean surplus in a bin over the seeds that fill it, or None where none does."""
    curves = selection.curves(method, f"surplus_{index}").at(_MECHANISM_STEP)
    return measure(resample(curves), FINAL) if curves.seeds else None


def _filled_bins(selection: Selection, method: str) -> dict[int, Sample]:
    """Return the surplus in the bins that most seeds fill."""
    samples = {index: _surplus(selection, method, index) for index in range(len(_BINS))}
    enough = selection.seeds([method]) / 2
    return {index: sample for index, sample in samples.items() if sample is not None and sample.n >= enough}


def _rising(selection: Selection) -> tuple[Interval, str]:
    filled = list(_filled_bins(selection, "tpo").values())
    steps = [interval(difference(low, high)) for low, high in itertools.pairwise(filled)]
    return _largest(steps), _values(filled)


def _not_positive(selection: Selection) -> tuple[Interval, str]:
    filled = list(_filled_bins(selection, "dg").values())
    return _largest([interval(sample) for sample in filled]), _values(filled)


def _largest(intervals: Sequence[Interval]) -> Interval:
    return all_of(intervals) if intervals else Interval(-math.inf, math.inf)


def _values(samples: Sequence[Sample]) -> str:
    return ", ".join(number(sample.estimate) for sample in samples) or "not in these runs"
