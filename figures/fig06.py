"""Fig. 6 and Table 2: a reward for every token, four targets and two rewards; groups of next tokens, as in Table 2."""

from functools import partial

from matplotlib.figure import Figure

from common.runs.store import RunStore
from figures.claims import compared
from figures.comparison import Comparison
from figures.published import published_figure
from figures.quantities import Derived
from figures.rules import Subject
from figures.selection import Selection
from figures.sequence_drawing import DENSE_TICKS, draw_panels
from figures.sequences import DENSE, Panel, by_key, by_target, ratio_to_next, selections, steps_to_one_percent

TITLE = "Fig. 6, Table 2: dense rewards, groups of next tokens"

_NUMBERS = published_figure("fig06")
_METHODS = ("tpo_token", "grpo_token", "dg", "ppo")
_ROWS = by_target(
    Panel("dense_variants", _METHODS, DENSE, _NUMBERS.seeds, overrides="level=token matching=prompt"),
)


def chosen(store: RunStore) -> list[Selection]:
    """Return the runs that the figure shows, a selection a panel."""
    return [each for row in _ROWS for each in selections(store, row)]


def draw(store: RunStore) -> Figure:
    """Draw the figure.

    Raises:
        NoRunsError: the store has no runs of the experiment.
    """
    return draw_panels(
        "fig06",
        "dense_variants",
        TITLE,
        [selections(store, row) for row in _ROWS],
        store,
        metric="error",
        label="1 − mean reward (log scale)",
        ticks=DENSE_TICKS,
        threshold=1,
    )


def subject(store: RunStore) -> Subject:
    """Return what the claims on this figure are judged by."""
    panels = by_key(store, [panel for row in _ROWS for panel in row])
    steps = steps_to_one_percent(", {place}")
    ratio = Derived(steps.words, partial(ratio_to_next, quantity=steps), _METHODS)
    return Subject(panels, {"steps": steps, "ratio": ratio}, _NUMBERS)


def compare(store: RunStore) -> list[Comparison]:
    """Judge the figure's claims, and what stands beside them."""
    return compared("fig06", subject(store))
