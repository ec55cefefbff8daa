"""Fig. 6 with groups of whole completions: it has a curve of GRPO (no KL) and interaction-matched rows.

The paper does not say at which level its Fig. 6 is; Table 2 is at the level of tokens (``fig06``), where matching the
interactions would change nothing.
"""

from dataclasses import replace

from matplotlib.figure import Figure

from common.runs.store import RunStore
from figures.comparison import Comparison
from figures.published import published_figure
from figures.selection import Selection
from figures.sequence_drawing import DENSE_TICKS, draw_panels
from figures.sequences import DENSE, Panel, by_target, leads, own_or_empty, selections, steps_to_one_percent

TITLE = "Fig. 6: dense rewards, groups of completions"

_NUMBERS = published_figure("fig06")
_PROMPT = Panel(
    "dense_variants",
    ("tpo", "grpo", "grpo_no_kl", "ppo", "dg"),
    DENSE,
    _NUMBERS.seeds,
    overrides="level=sequence matching=prompt",
)
_INTERACTION = replace(
    _PROMPT,
    settings={**DENSE, "matching": "interaction"},
    place="interaction-matched",
    overrides="level=sequence matching=interaction",
)


def chosen(store: RunStore) -> list[Selection]:
    """Return the runs that the figure shows, a selection a panel."""
    return [each for row in _rows(store) for each in row]


def _rows(store: RunStore) -> list[list[Selection]]:
    """Return the panels that have runs of completions' groups, by reward and matching."""
    prompt = [[_with_groups(each) for each in selections(store, row)] for row in by_target(_PROMPT)]
    interaction = [
        [own_or_empty(_with_groups(each)) for each in selections(store, row)] for row in by_target(_INTERACTION)
    ]
    return [row for pair in zip(prompt, interaction, strict=True) for row in pair]


def _with_groups(selection: Selection) -> Selection:
    """Return the panel, or it without runs if all it has are methods without groups: ``fig06`` shows these too."""
    return selection if {"tpo", "grpo", "grpo_no_kl"} & set(selection.runs) else selection.without_runs()


def draw(store: RunStore) -> Figure:
    """Draw the figure.

    Raises:
        NoRunsError: the store has no runs of the experiment at this level.
    """
    return draw_panels(
        "fig06_sequence",
        "dense_variants with level=sequence",
        TITLE,
        _rows(store),
        store,
        metric="error",
        label="1 − mean reward (log scale)",
        ticks=DENSE_TICKS,
        threshold=1,
    )


def compare(store: RunStore) -> list[Comparison]:
    """Judge that TPO is the first."""
    return [
        leads(each, steps_to_one_percent(f", {each.place}"), "tpo", "Fig. 6, level not stated", "TPO first")
        for each in chosen(store)
    ]
