"""Fig. 14: TPO with four gradient epochs an episode and with one, beside DG with its one."""

from matplotlib.figure import Figure

from common.runs.store import RunStore
from common.statistics import value_at
from figures.claims import compared
from figures.comparison import Comparison
from figures.published import published_figure
from figures.quantities import Quantity
from figures.rules import Subject
from figures.selection import Selection
from figures.sequence_drawing import LOW_TICKS, draw_panels, error_label
from figures.sequences import MECHANISM, Panel, final, selected, steps_to_half
from figures.style import BESIDE_OTHERS

TITLE = "Fig. 14: one gradient epoch and four"

_NUMBERS = published_figure("fig14")
_PANEL = Panel("gradient_diagnostics", ("tpo_4_epochs", "tpo_1_epoch", "dg"), MECHANISM, _NUMBERS.seeds)
_SMOOTHED = 10
_QUANTITIES = {
    **final("exact-match error"),
    "on_the_way": Quantity("exact-match error (%) at episode 400", "error", value_at(400), scale=100),
    "steps_to_half": steps_to_half("error"),
}


def chosen(store: RunStore) -> list[Selection]:
    """Return the runs that the figure shows."""
    return [selected(store, _PANEL)]


def draw(store: RunStore) -> Figure:
    """Draw the figure.

    Raises:
        NoRunsError: the store has no runs of the experiment.
    """
    return draw_panels(
        "fig14",
        "gradient_diagnostics",
        TITLE,
        [chosen(store)],
        store,
        metric="error",
        label=error_label(_SMOOTHED),
        ticks=LOW_TICKS,
        smoothed=_SMOOTHED,
        looks=BESIDE_OTHERS,
    )


def subject(store: RunStore) -> Subject:
    """Return what the claims on this figure are judged by."""
    return Subject({"all": selected(store, _PANEL)}, _QUANTITIES, _NUMBERS)


def compare(store: RunStore) -> list[Comparison]:
    """Judge the figure's claims, and what stands beside them."""
    return compared("fig14", subject(store))
