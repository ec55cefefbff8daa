"""Fig. 10: how large the gradients are, and how much an update weighs completions that succeed and that fail."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from matplotlib.figure import Figure

from common.runs.store import RunStore
from common.statistics import Interval, Sample, Statistic, difference, interval, mean_of_last, measure, resample
from common.statistics.curves import Array
from figures.claims import compared
from figures.comparison import Comparison
from figures.published import published_figure
from figures.quantities import Quantity
from figures.rules import Subject
from figures.selection import Selection, require_runs
from figures.sequence_drawing import draw_smoothed
from figures.sequences import MECHANISM, Panel, final, selected
from figures.style import BESIDE_OTHERS, finish, new_figure, power_axis, styled

TITLE = "Fig. 10: gradient norms, weights of winners and losers"
SMOOTHED = 50

_NUMBERS = published_figure("fig10")
_METHODS = ("tpo_4_epochs", "tpo_1_epoch", "grpo", "ppo", "dg")
_WEIGHING = ("tpo_4_epochs", "grpo")
_PANEL = Panel("gradient_diagnostics", _METHODS, MECHANISM, _NUMBERS.seeds)


def _end_over_peak(_: Array, means: Array) -> Array:
    """Return the mean of the last episodes over that of the highest stretch of as many."""
    width = min(SMOOTHED, means.shape[-1])
    sums = np.cumsum(np.concatenate([np.zeros((*means.shape[:-1], 1)), means], axis=-1), axis=-1)
    stretches = sums[..., width:] - sums[..., :-width]
    return stretches[..., -1] / stretches.max(axis=-1)


_FADED = Quantity(
    f"gradient norm of the last {SMOOTHED} episodes over that of its highest {SMOOTHED}",
    "gradient_norm",
    Statistic(_end_over_peak, linear=False),
)
_QUANTITIES = {**final("exact-match error"), "faded": _FADED}


def chosen(store: RunStore) -> list[Selection]:
    """Return the runs that the figure shows."""
    return [selected(store, _PANEL)]


def draw(store: RunStore) -> Figure:
    """Draw the figure.

    Raises:
        NoRunsError: the store has no runs of the experiment.
    """
    (selection,) = chosen(store)
    require_runs("fig10", "gradient_diagnostics", [selection], store)
    weighing = [method for method in _WEIGHING if selection.has([method])]
    with styled():
        figure, (norms, winners, losers) = new_figure(3, width=4.2, height=4.0)
        draw_smoothed(norms, selection, "gradient_norm", SMOOTHED, looks=BESIDE_OTHERS)
        draw_smoothed(winners, selection, "winner_weight", SMOOTHED, methods=weighing, looks=BESIDE_OTHERS)
        draw_smoothed(losers, selection, "loser_weight", SMOOTHED, methods=weighing, looks=BESIDE_OTHERS)
        norms.set_title(f"(a) gradient, mean of {SMOOTHED} episodes")
        norms.set_ylabel("L2 norm in the first gradient epoch\n(log scale)")
        winners.set_title("(b) completions that succeed")
        losers.set_title("(c) completions that fail")
        power_axis(norms)
        low, high = _range(selection, weighing)
        for axis in (winners, losers):
            power_axis(axis)
            axis.set_ylim(low, high)
            axis.set_ylabel("mean weight, TPO's q or GRPO's |A|\n(log scale)")
        return finish(figure, TITLE, [selection], looks=BESIDE_OTHERS)


def _range(selection: Selection, methods: list[str]) -> tuple[float, float]:
    """Return the ends of an axis for the weights of winners and losers alike."""
    metrics = ("winner_weight", "loser_weight")
    curves = [selection.curves(method, metric).smoothed(SMOOTHED) for method in methods for metric in metrics]
    positive = [mean[mean > 0] for mean in (each.mean().mean for each in curves)]
    values = [end for each in positive if each.size for end in (float(each.min()), float(each.max()))]
    return min(values, default=1) / 2, max(values, default=1) * 2


def subject(store: RunStore) -> Subject:
    """Return what the claims on this figure are judged by."""
    return Subject({"all": selected(store, _PANEL)}, _QUANTITIES, _NUMBERS, {"prefers_winners": _prefers_winners})


def compare(store: RunStore) -> list[Comparison]:
    """Judge the figure's claims, and what stands beside them."""
    return compared("fig10", subject(store))


def _prefers_winners(selection: Selection, methods: Sequence[str]) -> tuple[Interval, str]:
    """Find that a method's completions that fail weigh less than those that succeed, while few do."""
    (method,) = methods
    high, low = (_early(selection, method, which) for which in ("winner", "loser"))
    return interval(difference(low, high)), f"winners {high.estimate / low.estimate:.3g} times as much"


def _early(selection: Selection, method: str, which: str) -> Sample:
    """Return the mean weight of winners or losers over the first episodes; later there may be none."""
    curves = selection.curves(method, f"{which}_weight")
    early = curves.steps < SMOOTHED
    first = replace(curves, steps=curves.steps[early], values=curves.values[:, early])
    return measure(resample(first), mean_of_last(SMOOTHED))
