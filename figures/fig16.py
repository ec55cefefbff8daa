"""Fig. 16 and Table 5: TPO's temperature, under a reward for every token.

The paper does not say at which level; both are judged against its numbers.
"""

import math

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from common.runs.store import RunStore
from figures.claims import compared
from figures.comparison import Comparison
from figures.published import published_figure
from figures.rules import Subject
from figures.selection import Selection, require_runs
from figures.sequence_drawing import DENSE_TICKS, PAPER_KEY, PAPER_LOOK, draw_errors
from figures.sequences import DENSE, Panel, by_key, final, selections, steps_to_one_percent
from figures.style import METHODS as LOOKS
from figures.style import MethodStyle, finish, key, new_grid, styled
from figures.variants import TEMPERATURES, temperature_label

TITLE = "Fig. 16, Table 5: temperature, dense reward"

_NUMBERS = published_figure("fig16")
_LABELS = tuple(temperature_label(eta) for eta in TEMPERATURES)
_PANELS = [
    Panel(
        "temperature",
        _LABELS,
        {**DENSE, "level": level},
        _NUMBERS.seeds,
        place=f"groups of {words}",
        key=level,
        overrides=f"level={level}",
    )
    for level, words in (("token", "next tokens"), ("sequence", "completions"))
]
_LEVEL_LOOKS = (LOOKS["tpo"], MethodStyle(LOOKS["ce"].colour, LOOKS["dg"].line, 1.8, "s"))
_STEPS = steps_to_one_percent()


def chosen(store: RunStore) -> list[Selection]:
    """Return the runs that the figure shows, a selection a panel."""
    return selections(store, _PANELS)


def draw(store: RunStore) -> Figure:
    """Draw the figure.

    Raises:
        NoRunsError: the store has no runs of the experiment.
    """
    both = chosen(store)
    require_runs("fig16", "temperature", both, store)
    shown = [each for each in both if each.runs]
    with styled():
        figure, (axes,) = new_grid(1, len(shown) + 1, 4.2, 4.0)
        for axis, each in zip(axes, shown, strict=False):
            draw_errors(axis, each, "error", DENSE_TICKS, threshold=1)
            axis.set_title(each.place)
            axis.set_xlabel("episode")
            axis.set_ylabel("share of tokens wrong (log scale)")
        keys = _draw_steps(axes[-1], both)
        return finish(figure, TITLE, both, extra=keys)


def _draw_steps(axis: Axes, both: list[Selection]) -> list[Line2D]:
    """Draw the steps to 1 % over η, ours at each level and the paper's; return what the legend says of them."""
    keys = []
    for each, look in zip(both, _LEVEL_LOOKS, strict=True):
        samples = {
            eta: _STEPS.of(each, label) for eta, label in zip(TEMPERATURES, _LABELS, strict=True) if each.has([label])
        }
        reached = {eta: sample for eta, sample in samples.items() if math.isfinite(sample.estimate)}
        if reached:
            axis.errorbar(
                list(reached),
                [sample.estimate for sample in reached.values()],
                yerr=[sample.se or 0 for sample in reached.values()],
                color=look.colour,
                linestyle=look.line,
                linewidth=look.width,
                marker=look.marker,
                capsize=2.5,
            )
            keys.append(key(look, each.place, marker=True))
    published = _NUMBERS.paper["steps_to_1pct"]
    axis.plot(TEMPERATURES, [published[label].value for label in _LABELS], marker="o", **PAPER_LOOK)
    axis.set_xscale("log", base=2)
    axis.set_xticks(TEMPERATURES, [f"{eta:g}" for eta in TEMPERATURES])
    axis.set_xlabel("η")
    axis.set_ylabel("episodes to 1 % error")
    axis.set_ylim(bottom=0)
    axis.set_title("episodes to 1 % error")
    return [*keys, PAPER_KEY]


def subject(store: RunStore) -> Subject:
    """Return what the claims on this figure are judged by."""
    at = ", {place}"
    quantities = {"steps": steps_to_one_percent(at), **final("error", at=at)}
    return Subject(by_key(store, _PANELS), quantities, _NUMBERS)


def compare(store: RunStore) -> list[Comparison]:
    """Judge the figure's claims, and what stands beside them."""
    return compared("fig16", subject(store))
