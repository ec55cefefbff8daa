"""Fig. 8: what TPO's anchor and GRPO's KL term do, under one reward for the whole sequence."""

from matplotlib.figure import Figure

from common.runs.store import RunStore
from figures.claims import compared
from figures.comparison import Comparison
from figures.published import published_figure
from figures.rules import Subject
from figures.selection import Selection
from figures.sequence_drawing import TERMINAL_TICKS, draw_panels, error_label
from figures.sequences import AT_PLACE, Panel, by_key, final, lengths_in, selections

TITLE = "Fig. 8: anchor and target, terminal reward"
LENGTHS = (7, 8, 10)

_NUMBERS = published_figure("fig08")
_PANEL = Panel("anchor_ablation", ("tpo", "tpo_no_anchor", "grpo", "grpo_no_kl", "group_pg"), seeds=_NUMBERS.seeds)
_SMOOTHED = 10


def chosen(store: RunStore) -> list[Selection]:
    """Return the runs that the figure shows, a selection a panel."""
    return selections(store, lengths_in(store, _PANEL, LENGTHS))


def draw(store: RunStore) -> Figure:
    """Draw the figure.

    Raises:
        NoRunsError: the store has no runs of the experiment.
    """
    return draw_panels(
        "fig08",
        "anchor_ablation",
        TITLE,
        [chosen(store)],
        store,
        metric="exact_match_error",
        label=error_label(_SMOOTHED),
        ticks=TERMINAL_TICKS,
        smoothed=_SMOOTHED,
    )


def subject(store: RunStore) -> Subject:
    """Return what the claims on this figure are judged by."""
    panels = by_key(store, lengths_in(store, _PANEL, LENGTHS))
    return Subject(panels, final("exact-match error", "exact_match_error", at=AT_PLACE), _NUMBERS)


def compare(store: RunStore) -> list[Comparison]:
    """Judge the figure's claims, and what stands beside them."""
    return compared("fig08", subject(store))
