"""Fig. 1b, Fig. 7 and Table 3: one reward for the whole sequence, over its length.

With prompts matched, every method has the same prompts an episode; with interactions matched, the methods without
groups have K times as many, at a learning rate sqrt(K) times as large, and the grouped ones are as before: their runs
stand in both rows. Table 3's numbers are single points of noisy curves, so that the last episodes' mean stands beside.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from common.runs.store import RunStore
from figures.claims import compared
from figures.comparison import Comparison
from figures.published import published_figure
from figures.rules import Subject
from figures.selection import Selection
from figures.sequence_drawing import TERMINAL_TICKS, draw_panels, error_label
from figures.sequences import (
    AT_PLACE,
    Panel,
    beside_the_paper,
    by_key,
    final,
    has_own_runs,
    lengths_in,
    own_or_empty,
    selections,
    steps_to_half,
    swept,
)
from figures.style import METHODS as LOOKS

TITLE = "Fig. 1b, Fig. 7, Table 3: terminal reward, over the length of the sequence"
LENGTHS = (7, 8, 9, 10)

_NUMBERS = published_figure("fig07")
_METHODS = ("tpo", "grpo", "grpo_no_kl", "ppo", "dg")
_PROMPT = Panel("terminal", _METHODS, seeds=_NUMBERS.seeds)
_INTERACTION = replace(
    _PROMPT,
    settings={"matching": "interaction"},
    place="interaction-matched",
    key="interaction",
    overrides="matching=interaction",
)
_SMOOTHED = 10
"""Episodes over which a drawn curve is averaged, as the published one is."""
_PUBLISHED_RUN = Path(__file__).parent / "data" / "published_terminal_h10.yaml"
_PUBLISHED_PLACE = "H = 10"


def chosen(store: RunStore) -> list[Selection]:
    """Return the runs that the figure shows, a selection a panel."""
    prompt, interaction = _rows(store)
    return [*prompt, *(each for each in interaction if each.runs)]


def _rows(store: RunStore) -> list[list[Selection]]:
    """Return the prompt-matched panels, and below each the interaction-matched one, empty without runs of its own."""
    prompt, interaction = _panels(store)
    return [selections(store, prompt), [own_or_empty(each) for each in selections(store, interaction)]]


def _panels(store: RunStore) -> tuple[list[Panel], list[Panel]]:
    """Return the prompt-matched panels and the interaction-matched ones of the same lengths."""
    prompt = lengths_in(store, _PROMPT, LENGTHS)
    lengths = [int(panel.settings["length"]) for panel in prompt]
    interaction = swept(_INTERACTION, "length", lengths, "H")
    return prompt, [
        beside_the_paper(panel) if same.aside else panel for panel, same in zip(interaction, prompt, strict=True)
    ]


def draw(store: RunStore) -> Figure:
    """Draw the figure.

    Raises:
        NoRunsError: the store has no runs of the experiment.
    """
    return draw_panels(
        "fig07",
        "terminal",
        TITLE,
        _rows(store),
        store,
        metric="exact_match_error",
        label=error_label(_SMOOTHED),
        ticks=TERMINAL_TICKS,
        smoothed=_SMOOTHED,
        overlay=_published_run,
    )


def _published_run(axis: Axes, selection: Selection) -> Sequence[Line2D]:
    """Draw the published run where its setting is shown."""
    if selection.place != _PUBLISHED_PLACE:
        return []
    data = _read_published()
    episodes = data["episodes_a_number"]
    for method, curve in data["methods"].items():
        x = episodes * (np.arange(len(curve["mean"])) + 0.5)
        axis.plot(
            x, 100 * np.array(curve["mean"]), color="0.45", linestyle=LOOKS[method].line, linewidth=1.0, zorder=1.5
        )
    return [Line2D([], [], color="0.45", linewidth=1.0, label="published run, H = 10 (TPO, GRPO, DG)")]


@lru_cache(maxsize=1)
def _read_published() -> dict[str, Any]:
    return dict(yaml.safe_load(_PUBLISHED_RUN.read_text(encoding="utf-8")))


def subject(store: RunStore) -> Subject:
    """Return what the claims on this figure are judged by."""
    prompt, interaction = _panels(store)
    panels = by_key(store, [*prompt, *(panel for panel in interaction if not panel.aside)])
    others = by_key(store, [panel for panel in interaction if panel.aside])
    panels |= {key: each for key, each in others.items() if has_own_runs(each)}
    errors = final("exact-match error", "exact_match_error", at=AT_PLACE)
    return Subject(panels, {**errors, "steps_to_half": steps_to_half("exact_match_error", AT_PLACE)}, _NUMBERS)


def compare(store: RunStore) -> list[Comparison]:
    """Judge the figure's claims, and what stands beside them."""
    return compared("fig07", subject(store))
