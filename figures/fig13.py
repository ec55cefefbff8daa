"""Fig. 13: GRPO with the groups of equal scores left out of its mean."""

from matplotlib.figure import Figure

from common.runs.store import RunStore
from figures.claims import below_claim
from figures.comparison import Comparison
from figures.published import published_figure
from figures.selection import Selection
from figures.sequence_drawing import LOW_TICKS, draw_panels, error_label
from figures.sequences import MECHANISM, Panel, final, leads, published_claims, selected

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


def compare(store: RunStore) -> list[Comparison]:
    """Judge the printed numbers and their order."""
    (selection,) = chosen(store)
    quantities = final("exact-match error")
    last = quantities[-1]
    return [
        *published_claims(selection, quantities, _NUMBERS, "error"),
        leads(selection, last, "tpo", "Fig. 13", "TPO lowest"),
        below_claim(
            selection,
            last,
            ["grpo"],
            ["grpo_zv_masked"],
            claim=f"masking makes GRPO worse: {last.words}",
            source="Fig. 13",
            said="GRPO lower",
        ),
    ]
