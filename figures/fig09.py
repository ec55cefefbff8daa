"""Fig. 9: language models with verifiable rewards, TPO against GRPO, and the small models that a CPU trains."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from common.runs.store import RunStore
from common.statistics import mean_of_last, steps_up_to
from figures.claims import compared
from figures.comparison import Comparison
from figures.language import Panel, selected
from figures.published import published_figure
from figures.quantities import Quantity
from figures.rules import Subject
from figures.selection import Selection, require_runs
from figures.style import draw_curve, finish, new_grid, styled

TITLE = "Fig. 9: language models with verifiable rewards"

_NUMBERS = published_figure("fig09")
_PAPER_PANELS = (
    Panel("gsm8k", "qwen3_1_7b"),
    Panel("graph_color", "qwen3_1_7b"),
    Panel("knights_knaves", "qwen3_1_7b"),
    Panel("gsm8k", "r1_distill_1_5b"),
    Panel("graph_color", "r1_distill_1_5b"),
    Panel("knights_knaves", "r1_distill_1_5b"),
)
_OWN_PANELS = (
    Panel("chain_sum", "smollm2", "task and model are not in the paper"),
    Panel("chain_sum", "tiny_qwen3", "a smoke run: a random model, nothing to be learnt from it"),
)
_COLUMNS = (
    ("mean reward of the training batch", "reward", False),
    ("held-out problems answered right", "test_accuracy", True),
    ("held-out answers in the format", "test_formatted", True),
    ("tokens a completion", "length", False),
)
_QUANTITIES = {
    "accuracy": Quantity("held-out accuracy at the end, {place}", "test_accuracy"),
    "steps_to_half": Quantity("updates to 50 % held-out accuracy, {place}", "test_accuracy", steps_up_to(0.5)),
    "reward": Quantity("mean reward at the end, {place}", "reward", mean_of_last(5)),
}


def chosen(store: RunStore) -> list[Selection]:
    """Return the runs that the figure shows, a selection a row; smoke runs only where there is nothing else."""
    rows = [selected(store, panel) for panel in (*_PAPER_PANELS, *_OWN_PANELS)]
    return rows[:-1] if any(each.runs for each in rows[:-1]) else rows


def draw(store: RunStore) -> Figure:
    """Draw the figure, a row for each task and model that has runs.

    Raises:
        NoRunsError: the store has no runs of the experiment.
    """
    require_runs("fig09", "learning", chosen(store), store)
    rows = [each for each in chosen(store) if each.runs]
    with styled():
        figure, axes = new_grid(len(rows), len(_COLUMNS), 3.6, 3.4)
        for selection, row in zip(rows, axes, strict=True):
            for axis, (words, metric, points) in zip(row, _COLUMNS, strict=True):
                _draw(axis, selection, metric, points)
                axis.set_title(f"{selection.place}\n{words}", fontsize=9)
                axis.set_xlabel("updates")
        return finish(figure, TITLE, rows)


def _draw(axis: Axes, selection: Selection, metric: str, points: bool) -> None:
    for method in selection.runs:
        curves = selection.curves(method, metric)
        draw_curve(axis, method, curves)
        if points:
            _, mean, _, _ = curves.mean()
            axis.plot(curves.steps, mean, ".", color=axis.lines[-1].get_color(), markersize=7)
    axis.set_xlim(0, selection.steps)
    axis.set_ylim(*((0, 1) if metric != "length" else (0, None)))


def subject(store: RunStore) -> Subject:
    """Return what the claims on this figure are judged by."""
    panels = {f"{panel.task}_{panel.model}": selected(store, panel) for panel in _PAPER_PANELS}
    return Subject(panels, _QUANTITIES, _NUMBERS)


def compare(store: RunStore) -> list[Comparison]:
    """Judge the figure's claims, and what stands beside them."""
    return compared("fig09", subject(store))
