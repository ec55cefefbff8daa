"""Fig. 15: gradient epochs an episode."""

from matplotlib.figure import Figure

from common.runs.store import RunStore
from figures.claims import compared
from figures.comparison import Comparison
from figures.published import published_figure
from figures.rules import Subject
from figures.selection import Selection
from figures.sequence_drawing import draw_sweep
from figures.sequences import MECHANISM, Panel, final, selected
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


def subject(store: RunStore) -> Subject:
    """Return what the claims on this figure are judged by."""
    return Subject({"all": selected(store, _PANEL)}, final("exact-match error"), _NUMBERS)


def compare(store: RunStore) -> list[Comparison]:
    """Judge the figure's claims, and what stands beside them."""
    return compared("fig15", subject(store))
