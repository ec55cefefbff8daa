"""Fig. 17: DG with four gradient epochs an episode, which it is not meant for, and with one.

The paper does not state H of its terminal half; its curves start at 1 − 2⁻⁵, so H = 5.
"""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from common.runs.store import RunStore
from common.statistics import Interval, Sample, difference, interval, mean_and_error
from figures.claims import compared
from figures.comparison import Comparison
from figures.published import published_figure
from figures.rules import Subject
from figures.selection import Selection, require_runs
from figures.sequence_drawing import PAPER_KEY, PAPER_LOOK, TERMINAL_TICKS, draw_errors, error_label, lowest_tick
from figures.sequences import DENSE, LAST, Panel, by_key, by_target, combined, final, selected, selections
from figures.style import METHODS as LOOKS
from figures.style import finish, new_grid, percent_axis, styled

TITLE = "Fig. 17: DG with one gradient epoch and with four"

_NUMBERS = published_figure("fig17")
_ONE, _FOUR = _METHODS = ("dg_1_epoch", "dg_4_epochs")
_TERMINAL = Panel("dg_epochs", _METHODS, {"length": 5}, _NUMBERS.seeds, place="terminal reward", key="terminal")
_DENSE = [panel for row in by_target(Panel("dg_epochs_dense", _METHODS, DENSE, 10)) for panel in row]
_DENSE_KEYS = {panel.place: panel.key for panel in _DENSE}
_SMOOTHED = 10
_TICKS = [0.01, 0.1, 1, 10, 100]


def chosen(store: RunStore) -> list[Selection]:
    """Return the runs that the figure shows: the terminal task's, then each dense variant's."""
    return selections(store, [_TERMINAL, *_DENSE])


def draw(store: RunStore) -> Figure:
    """Draw the figure.

    Raises:
        NoRunsError: the store has no runs of either half.
    """
    everything = chosen(store)
    require_runs("fig17", "dg_epochs and dg_epochs_dense", everything, store)
    terminal, *dense = everything
    halves = [bool(terminal.runs), any(each.runs for each in dense)]
    with styled():
        figure, (axes,) = new_grid(1, sum(halves), 6.0, 4.2)
        if halves[0]:
            draw_errors(axes[0], terminal, "error", TERMINAL_TICKS, smoothed=_SMOOTHED)
            axes[0].set_ylim(bottom=lowest_tick([terminal], "error", TERMINAL_TICKS, _SMOOTHED))
            axes[0].set_title(terminal.place)
            axes[0].set_xlabel("episode")
            axes[0].set_ylabel(error_label(_SMOOTHED))
        if halves[1]:
            _draw_pairs(axes[-1], [each for each in dense if each.runs])
        return finish(figure, TITLE, everything, extra=[PAPER_KEY] if halves[1] else [])


def _draw_pairs(axis: Axes, shown: Sequence[Selection]) -> None:
    """Draw the final errors of each dense variant, one epoch beside four."""
    for row, each in enumerate(reversed(shown)):
        for method, shift in ((_ONE, 0.12), (_FOUR, -0.12)):
            if each.has([method]):
                look = LOOKS[method]
                values = each.curves(method, "error").values[:, -LAST:].mean(axis=1)
                mean, se, _ = mean_and_error(100 * np.clip(values, _TICKS[0] / 100, None))
                axis.errorbar(
                    mean,
                    row + shift,
                    xerr=[[min(se, 0.999 * mean)], [se]],
                    color=look.colour,
                    marker=look.marker,
                    markersize=7,
                    markeredgecolor="white",
                    capsize=2.5,
                )
                published = _NUMBERS.at("paper", f"error_{_DENSE_KEYS[each.place]}").get(method)
                if published:
                    axis.plot(max(published.value, _TICKS[0]), row + shift, marker=look.marker, **PAPER_LOOK)
    percent_axis(axis, _TICKS, which="x")
    axis.set_xlim(_TICKS[0] * 0.8, _TICKS[-1])
    axis.set_yticks(range(len(shown)), [each.place for each in reversed(shown)])
    axis.set_ylim(-0.5, len(shown) - 0.5)
    axis.set_xlabel("1 − mean reward (log scale)")
    axis.set_title(f"dense rewards, mean of the last {LAST} episodes")


def subject(store: RunStore) -> Subject:
    """Return what the claims on this figure are judged by."""
    at = ", {place}"
    terminal = final("exact-match error", at=at)
    quantities = {
        **final("error", at=at),
        "terminal_last_episode": terminal["last_episode"],
        "terminal_final": terminal["final"],
    }
    dense = by_key(store, _DENSE)
    panels = {_TERMINAL.key: selected(store, _TERMINAL), **dense, "dense": combined(list(dense.values()))}
    return Subject(panels, quantities, _NUMBERS, {"worse_variants": _worse_variants})


def compare(store: RunStore) -> list[Comparison]:
    """Judge the figure's claims, and what stands beside them."""
    return compared("fig17", subject(store))


def _worse_variants(dense: Selection, methods: Sequence[str]) -> tuple[Interval, str]:
    """Find in how many of the dense variants four epochs are worse; one of the paper's own pairs is tied."""
    error = final("error")["final"]
    pairs = [
        difference(error.of(dense, four), error.of(dense, one))
        for one, four in zip(methods[::2], methods[1::2], strict=True)
    ]
    worse = sum(pair.estimate > 0 for pair in pairs)
    draws = np.sum([pair.draws > 0 for pair in pairs], axis=0)
    count = Sample(worse, draws.astype(np.float64), min(pair.n for pair in pairs))
    return interval(count.transformed(-1, _AT_LEAST - 0.5)), f"{worse} of {len(pairs)}"


_AT_LEAST = 7
