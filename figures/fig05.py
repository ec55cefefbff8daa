"""Fig. 5 and Table 1: a reward for every token, groups of next tokens, over the size of the vocabulary."""

from matplotlib.figure import Figure

from common.runs.store import RunStore
from figures.comparison import Comparison
from figures.published import published_figure
from figures.selection import Selection
from figures.sequence_drawing import DENSE_TICKS, draw_panels
from figures.sequences import (
    DENSE,
    Panel,
    leads,
    published_claims,
    runner_up_ratio,
    selections,
    steps_to_one_percent,
    swept,
)

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


def compare(store: RunStore) -> list[Comparison]:
    """Judge Table 1's numbers, and who is first."""
    rows = []
    for panel, selection in zip(_PANELS, chosen(store), strict=True):
        steps = steps_to_one_percent(f" at {panel.place}")
        rows += [
            *published_claims(selection, [steps], _NUMBERS, f"steps_to_1pct_{panel.key}"),
            leads(selection, steps, "tpo_token", "Table 1", "TPO first"),
            runner_up_ratio(selection, steps, "tpo_token", _NUMBERS.paper[f"ratio_{panel.key}"]["tpo_token"]),
        ]
    return rows
