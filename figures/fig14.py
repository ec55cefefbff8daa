"""Fig. 14: TPO with four gradient epochs an episode and with one, beside DG with its one."""

from matplotlib.figure import Figure

from common.runs.store import RunStore
from common.statistics import value_at
from figures.claims import Quantity, below_claim, value_claims
from figures.comparison import Comparison
from figures.published import published_figure
from figures.selection import Selection
from figures.sequence_drawing import LOW_TICKS, draw_panels, error_label
from figures.sequences import MECHANISM, Panel, final, published_claims, selected, steps_to_half
from figures.style import BESIDE_OTHERS

TITLE = "Fig. 14: one gradient epoch and four"

_NUMBERS = published_figure("fig14")
_PANEL = Panel("gradient_diagnostics", ("tpo_4_epochs", "tpo_1_epoch", "dg"), MECHANISM, _NUMBERS.seeds)
_SMOOTHED = 10
_EPISODE = 400
_ON_THE_WAY = Quantity(f"exact-match error (%) at episode {_EPISODE}", "error", value_at(_EPISODE), scale=100)


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


def compare(store: RunStore) -> list[Comparison]:
    """Judge the numbers on the way and in the end, that four epochs are faster, and that DG stays above."""
    (selection,) = chosen(store)
    quantities = final("exact-match error")
    half = steps_to_half("error")
    return [
        *value_claims(selection, _ON_THE_WAY, _NUMBERS.paper["error_at_400"]),
        *published_claims(selection, quantities, _NUMBERS, "error"),
        below_claim(
            selection,
            half,
            ["tpo_4_epochs"],
            ["tpo_1_epoch"],
            claim=f"TPO faster with four epochs than with one: {half.words}",
            source="Fig. 14",
            said="4 epochs sooner",
        ),
        below_claim(
            selection,
            quantities[-1],
            ["tpo_4_epochs", "tpo_1_epoch"],
            ["dg"],
            claim=f"TPO below DG, with four epochs and with one: {quantities[-1].words}",
            source="Fig. 14",
            said="TPO lower",
        ),
    ]
