"""Fig. 12: the number of candidates in a group."""

from matplotlib.figure import Figure

from common.runs.store import RunStore
from figures.claims import below_claim
from figures.comparison import Comparison
from figures.published import published_figure
from figures.selection import Selection
from figures.sequence_drawing import draw_sweep
from figures.sequences import MECHANISM, Panel, below_at_each, final, published_claims, selected
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


def compare(store: RunStore) -> list[Comparison]:
    """Judge the printed numbers, TPO against GRPO at each K, and the largest K against the smallest."""
    (selection,) = chosen(store)
    quantities = final("exact-match error")
    last = quantities[-1]
    smallest, *_, largest = _LABELS["tpo"]
    return [
        *published_claims(selection, quantities, _NUMBERS, "error"),
        *below_at_each(selection, last, _LABELS, [f"at K = {count}" for count in GROUP_SIZES], "Fig. 12"),
        below_claim(
            selection,
            last,
            [largest],
            [smallest],
            claim=f"TPO lower with K = {GROUP_SIZES[-1]} than with K = {GROUP_SIZES[0]}: {last.words}",
            source="Fig. 12",
            said=f"K = {GROUP_SIZES[-1]} lower",
        ),
    ]
