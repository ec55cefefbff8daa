"""Fig. 6 with groups of whole completions: it has a curve of GRPO (no KL) and interaction-matched rows.

The paper does not say at which level its Fig. 6 is; Table 2 is at the level of tokens (``fig06``), where matching the
interactions would change nothing.
"""

from collections.abc import Mapping
from dataclasses import replace

from matplotlib.figure import Figure

from common.runs.store import RunStore
from figures.claims import compared
from figures.comparison import Comparison
from figures.published import published_figure
from figures.rules import Subject
from figures.selection import Selection
from figures.sequence_drawing import DENSE_TICKS, draw_panels
from figures.sequences import DENSE, Panel, by_key, by_target, own_or_empty, steps_to_one_percent

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
    key="interaction",
    overrides="level=sequence matching=interaction",
)


def chosen(store: RunStore) -> list[Selection]:
    """Return the runs that the figure shows, a selection a panel."""
    return [each for row in _rows(store) for each in row.values()]


def _rows(store: RunStore) -> list[dict[str, Selection]]:
    """Return the panels that have runs of completions' groups, by reward and matching."""
    prompt = [_grouped(by_key(store, row)) for row in by_target(_PROMPT)]
    interaction = [_grouped(by_key(store, row)) for row in by_target(_INTERACTION)]
    own = [{key: own_or_empty(each) for key, each in row.items()} for row in interaction]
    return [row for pair in zip(prompt, own, strict=True) for row in pair]


def _grouped(row: Mapping[str, Selection]) -> dict[str, Selection]:
    """Return the panels, those without runs if all they have are methods without groups: ``fig06`` shows these too."""
    grouped = {"tpo", "grpo", "grpo_no_kl"}
    return {key: each if grouped & set(each.runs) else each.without_runs() for key, each in row.items()}


def draw(store: RunStore) -> Figure:
    """Draw the figure.

    Raises:
        NoRunsError: the store has no runs of the experiment at this level.
    """
    return draw_panels(
        "fig06_sequence",
        "dense_variants with level=sequence",
        TITLE,
        [list(row.values()) for row in _rows(store)],
        store,
        metric="error",
        label="1 − mean reward (log scale)",
        ticks=DENSE_TICKS,
        threshold=1,
    )


def subject(store: RunStore) -> Subject:
    """Return what the claims on this figure are judged by."""
    panels = {key: each for row in _rows(store) for key, each in row.items()}
    return Subject(panels, {"steps": steps_to_one_percent(", {place}")}, _NUMBERS)


def compare(store: RunStore) -> list[Comparison]:
    """Judge the figure's claims, and what stands beside them."""
    return compared("fig06_sequence", subject(store))
