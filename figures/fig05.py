"""Fig. 5 and Table 1: a reward for every token, groups of next tokens, over the size of the vocabulary."""

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
from figures.sequences import DENSE, Panel, by_key, ratio_to_next, selections, steps_to_one_percent, swept

TITLE = "Fig. 5, Table 1: dense reward, over the size of the vocabulary"
VOCABULARIES = (2, 4, 8, 16)

_NUMBERS = published_figure("fig05")
_METHODS = ("tpo_token", "grpo_token", "dg", "ppo")
_PANELS = swept(Panel("dense_vocabulary", _METHODS, DENSE, _NUMBERS.seeds), "vocabulary", VOCABULARIES, "V")


def chosen(store: RunStore) -> list[Selection]:
    """Return the runs that the figure shows, a selection a panel."""
    return selections(store, _PANELS)


def draw(store: RunStore) -> Figure:
    """Draw the figure.

    Raises:
        NoRunsError: the store has no runs of the experiment.
    """
    return draw_panels(
        "fig05",
        "dense_vocabulary",
        TITLE,
        [chosen(store)],
        store,
        metric="error",
        label="share of tokens wrong (log scale)",
        ticks=DENSE_TICKS,
        threshold=1,
    )


def subject(store: RunStore) -> Subject:
    """Return what the claims on this figure are judged by."""
    steps = steps_to_one_percent(" at {place}")
    ratio = Derived(steps.words, partial(ratio_to_next, quantity=steps), _METHODS)
    return Subject(by_key(store, _PANELS), {"steps": steps, "ratio": ratio}, _NUMBERS)


def compare(store: RunStore) -> list[Comparison]:
    """Judge the figure's claims, and what stands beside them."""
    return compared("fig05", subject(store))
