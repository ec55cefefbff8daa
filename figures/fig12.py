"""Fig. 12: the number of candidates in a group."""

from matplotlib.figure import Figure

from common.runs.store import RunStore
from figures.claims import compared
from figures.comparison import Comparison
from figures.published import published_figure
from figures.rules import Subject
from figures.selection import Selection
from figures.sequence_drawing import draw_sweep
from figures.sequences import MECHANISM, Panel, final, selected
from figures.variants import GROUP_SIZES, group_label

TITLE = "Fig. 12: candidates a group"

_NUMBERS = published_figure("fig12")
_LABELS = {name: [group_label(name, count) for count in GROUP_SIZES] for name in ("tpo", "grpo")}
_PANEL = Panel(
    "group_size",
    tuple(label for labels in _LABELS.values() for label in labels),
    MECHANISM,
    _NUMBERS.seeds,
    told_by=("candidates",),
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
        "fig12",
        TITLE,
        selected(store, _PANEL),
        store,
        labels=_LABELS,
        values=GROUP_SIZES,
        words=lambda value: f"K = {value:g}",
        x_label="K, candidates a group",
        numbers=_NUMBERS,
    )


def subject(store: RunStore) -> Subject:
    """Return what the claims on this figure are judged by."""
    return Subject({"all": selected(store, _PANEL)}, final("exact-match error"), _NUMBERS)


def compare(store: RunStore) -> list[Comparison]:
    """Judge the figure's claims, and what stands beside them."""
    return compared("fig12", subject(store))
