"""Fig. 9: language models with verifiable rewards, TPO against GRPO, and the small models that a CPU trains."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from common.runs.store import RunStore
from common.statistics import mean_of_last, steps_up_to
from figures.claims import Quantity, below_claim, value_claims
from figures.comparison import Comparison
from figures.language import Panel, selected
from figures.published import published_figure
from figures.selection import Selection, require_runs
from figures.style import draw_curve, finish, new_grid, styled
from figures.variants import title

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
_LAST = 5


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


def compare(store: RunStore) -> list[Comparison]:
    """Judge what the paper says of its six pairs of runs, and TPO against GRPO on the others that have runs."""
    rows = []
    for panel in (*_PAPER_PANELS, *_OWN_PANELS[:1]):
        selection = selected(store, panel)
        metric = "test_accuracy" if panel.task in ("gsm8k", "chain_sum") else "reward"
        words = "held-out accuracy" if metric == "test_accuracy" else "mean reward"
        statistic = mean_of_last(1 if metric == "test_accuracy" else _LAST)
        end = Quantity(f"{words} at the end, {selection.place}", metric, statistic)
        rows += value_claims(selection, end, _NUMBERS.at("paper", f"{panel.task}_{panel.model}"))
        if panel == _PAPER_PANELS[0]:
            rows.append(_sooner(selection))
    return rows


def _sooner(selection: Selection) -> Comparison:
    half = Quantity(f"updates to 50 % held-out accuracy, {selection.place}", "test_accuracy", steps_up_to(0.5))
    return below_claim(
        selection,
        half,
        ["tpo"],
        ["grpo_no_kl"],
        claim=f"{title('tpo')} needs fewer {half.words}",
        source="Fig. 9, text",
        said="about 10 updates fewer",
    )
