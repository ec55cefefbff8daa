"""Fig. 13: GRPO with the groups of equal scores left out of its mean."""

from matplotlib.figure import Figure

from common.runs.store import RunStore
from figures.claims import compared
from figures.comparison import Comparison
from figures.published import published_figure
from figures.rules import Subject
from figures.selection import Selection
from figures.sequence_drawing import LOW_TICKS, draw_panels, error_label
from figures.sequences import MECHANISM, Panel, final, selected

TITLE = "Fig. 13: groups of equal scores left out"

_NUMBERS = published_figure("fig13")
_PANEL = Panel("zero_variance_masking", ("tpo", "grpo", "grpo_zv_masked"), MECHANISM, _NUMBERS.seeds)
_SMOOTHED = 10


def chosen(store: RunStore) -> list[Selection]:
    """Return the runs that the figure shows."""
    return [selected(store, _PANEL)]


def draw(store: RunStore) -> Figure:
    """Draw the figure.

    Raises:
        NoRunsError: the store has no runs of the experiment.
    """
    return draw_panels(
        "fig13",
        "zero_variance_masking",
        TITLE,
        [chosen(store)],
        store,
        metric="error",
        label=error_label(_SMOOTHED),
        ticks=LOW_TICKS,
        smoothed=_SMOOTHED,
    )


def subject(store: RunStore) -> Subject:
    """Return what the claims on this figure are judged by."""
    return Subject({"all": selected(store, _PANEL)}, final("exact-match error"), _NUMBERS)


def compare(store: RunStore) -> list[Comparison]:
    """Judge the figure's claims, and what stands beside them."""
    return compared("fig13", subject(store))
