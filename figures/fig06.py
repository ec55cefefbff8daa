"""Fig. 6 and Table 2: a reward for every token, four targets and two rewards; groups of next tokens, as in Table 2."""

from matplotlib.figure import Figure

from common.runs.store import RunStore
from common.statistics import Interval, all_of, interval
from figures.claims import Quantity, bound_claim, listed, ordering_claim
from figures.comparison import Comparison, number
from figures.published import published_figure
from figures.selection import Selection
from figures.sequence_drawing import DENSE_TICKS, draw_panels
from figures.sequences import (
    DENSE,
    Panel,
    by_target,
    leads,
    published_claims,
    ratio_to_next,
    runner_up_ratio,
    selected,
    selections,
    steps_to_one_percent,
)

TITLE = "Fig. 6, Table 2: dense rewards, groups of next tokens"

_NUMBERS = published_figure("fig06")
_METHODS = ("tpo_token", "grpo_token", "dg", "ppo")
_ROWS = by_target(
    Panel("dense_variants", _METHODS, DENSE, _NUMBERS.seeds, overrides="level=token matching=prompt"),
)
_TEXT = "Table 2, text"
_RATIO = (2.0, 6.0)


def chosen(store: RunStore) -> list[Selection]:
    """Return the runs that the figure shows, a selection a panel."""
    return [each for row in _ROWS for each in selections(store, row)]


def draw(store: RunStore) -> Figure:
    """Draw the figure.

    Raises:
        NoRunsError: the store has no runs of the experiment.
    """
    return draw_panels(
        "fig06",
        "dense_variants",
        TITLE,
        [selections(store, row) for row in _ROWS],
        store,
        metric="error",
        label="1 − mean reward (log scale)",
        ticks=DENSE_TICKS,
        threshold=1,
    )


def compare(store: RunStore) -> list[Comparison]:
    """Judge Table 2's numbers, who is first, and what the text says of the bag of tokens."""
    rows = []
    for panel in (panel for row in _ROWS for panel in row):
        selection = selected(store, panel)
        steps = steps_to_one_percent(f", {panel.place}")
        rows += [
            *published_claims(selection, [steps], _NUMBERS, f"steps_to_1pct_{panel.key}"),
            leads(selection, steps, "tpo_token", "Table 2", "TPO first"),
        ]
        ratio = _NUMBERS.at("paper", f"ratio_{panel.key}")
        if ratio:
            rows += [runner_up_ratio(selection, steps, "tpo_token", ratio["tpo_token"]), *_text(selection, steps)]
    return rows


def _text(selection: Selection, steps: Quantity) -> list[Comparison]:
    """What the text says of each target with a bag of tokens; its own table does not bear all of it out."""
    reaching = [method for method in _METHODS if method != "ppo"]
    last = selection.paper_steps - 1

    def reached() -> tuple[Interval, str]:
        samples = {method: steps.of(selection, method) for method in reaching}
        return all_of([interval(each.transformed(1, -last)) for each in samples.values()]), listed(samples)

    def within() -> tuple[Interval, str]:
        ratio = ratio_to_next(selection, steps, "tpo_token", _METHODS[1:])
        low, high = _RATIO
        return all_of([interval(ratio.transformed(-1, low)), interval(ratio.transformed(1, -high))]), number(
            ratio.estimate
        )

    return [
        ordering_claim(
            selection, f"TPO 2–6 times as fast as the next method: {steps.words}", _TEXT, "2–6 times", _METHODS, within
        ),
        ordering_claim(
            selection, f"all methods but PPO reach 1 %: {steps.words}", _TEXT, "all but PPO", reaching, reached
        ),
        bound_claim(
            selection,
            steps,
            "ppo",
            last,
            above=True,
            claim=f"PPO does not reach 1 %: {steps.words}",
            source=_TEXT,
            said="not PPO",
        ),
    ]
