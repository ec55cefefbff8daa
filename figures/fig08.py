"""Fig. 8: what TPO's anchor and GRPO's KL term do, under one reward for the whole sequence."""

from matplotlib.figure import Figure

from common.runs.store import RunStore
from figures.claims import bound_claim
from figures.comparison import Comparison
from figures.published import published_figure
from figures.selection import Selection
from figures.sequence_drawing import TERMINAL_TICKS, draw_panels, error_label
from figures.sequences import Panel, final, leads, lengths_in, published_claims, selected, selections
from figures.variants import title

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


def compare(store: RunStore) -> list[Comparison]:
    """Judge the printed numbers, that TPO is the lowest, and what the text says of every ablation."""
    rows = []
    for panel in lengths_in(store, _PANEL, LENGTHS):
        selection = selected(store, panel)
        quantities = final("exact-match error", "exact_match_error", at=f" at {panel.place}")
        rows += [
            *published_claims(selection, quantities, _NUMBERS, f"error_{panel.key}"),
            leads(selection, quantities[-1], "tpo", "Fig. 8", "TPO lowest"),
        ]
        for method, bound in _NUMBERS.at("above", f"ablations_{panel.key}").items():
            claim = f"every ablation is above {bound.value:g} %, {title(method)} too: {quantities[-1].words}"
            rows.append(
                bound_claim(
                    selection,
                    quantities[-1],
                    method,
                    bound.value,
                    above=True,
                    claim=claim,
                    source=bound.source,
                    said=f"> {bound.value:g}",
                )
            )
    return rows
