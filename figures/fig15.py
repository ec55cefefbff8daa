"""Fig. 15: gradient epochs an episode."""

from matplotlib.figure import Figure

from common.runs.store import RunStore
from figures.comparison import Comparison
from figures.published import published_figure
from figures.selection import Selection
from figures.sequence_drawing import draw_sweep
from figures.sequences import MECHANISM, Panel, below_at_each, final, published_claims, selected
from figures.variants import EPOCHS, epochs_label

TITLE = "Fig. 15: gradient epochs an episode"

_NUMBERS = published_figure("fig15")
_LABELS = {name: [epochs_label(name, count) for count in EPOCHS] for name in ("tpo", "grpo")}
_PANEL = Panel(
    "gradient_epochs", tuple(label for labels in _LABELS.values() for label in labels), MECHANISM, _NUMBERS.seeds
)


def chosen(store: RunStore) -> list[Selection]:
    """Return the runs that the figure shows."""
    return [selected(store, _PANEL)]


def draw(store: RunStore) -> Figure:
    """Draw the figure.

    Raises:
        NoRunsError: the store has no runs of the experiment.
    """
    return draw_sweep(
        "fig15",
        TITLE,
        selected(store, _PANEL),
        store,
        labels=_LABELS,
        values=EPOCHS,
        words=lambda value: f"{value:g} epoch{'s' if value > 1 else ''}",
        x_label="gradient epochs an episode",
        numbers=_NUMBERS,
    )


def compare(store: RunStore) -> list[Comparison]:
    """Judge the printed numbers, and TPO against GRPO with as many epochs."""
    (selection,) = chosen(store)
    quantities = final("exact-match error")
    places = [f"with {count} epoch{'s' if count > 1 else ''}" for count in EPOCHS]
    return [
        *published_claims(selection, quantities, _NUMBERS, "error"),
        *below_at_each(selection, quantities[-1], _LABELS, places, "Fig. 15"),
    ]
