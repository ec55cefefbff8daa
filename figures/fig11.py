"""Fig. 11: how many groups hold no completion that succeeds, and how many prompts are solved by one."""

from matplotlib.figure import Figure

from common.runs.store import RunStore
from common.statistics import Statistic, value_at
from figures.claims import compared
from figures.comparison import Comparison
from figures.published import published_figure
from figures.quantities import Quantity
from figures.rules import Subject
from figures.selection import Selection, require_runs
from figures.sequence_drawing import draw_smoothed
from figures.sequences import MECHANISM, Panel, selected
from figures.style import finish, new_figure, styled

TITLE = "Fig. 11: groups in which all fail, prompts solved"

_NUMBERS = published_figure("fig11")
_PANEL = Panel("gradient_diagnostics", ("tpo", "grpo"), MECHANISM, _NUMBERS.seeds)
_SMOOTHED = 10
_QUANTITIES = {
    "at_first": Quantity("groups in which all fail (%), first episode", "all_fail", value_at(0), scale=100),
    "on_average": Quantity(
        "groups in which all fail (%), mean of all episodes",
        "all_fail",
        Statistic(lambda _, means: means.mean(axis=-1), linear=True),
        scale=100,
    ),
}


def chosen(store: RunStore) -> list[Selection]:
    """Return the runs that the figure shows."""
    return [selected(store, _PANEL)]


def draw(store: RunStore) -> Figure:
    """Draw the figure.

    Raises:
        NoRunsError: the store has no runs of the experiment.
    """
    (selection,) = chosen(store)
    require_runs("fig11", "gradient_diagnostics", [selection], store)
    with styled():
        figure, axes = new_figure(2, width=4.8, height=4.0)
        for axis, metric, words in zip(
            axes, ("all_fail", "success"), ("(a) groups in which all fail", "(b) prompts with a success"), strict=True
        ):
            draw_smoothed(axis, selection, metric, _SMOOTHED, scale=100)
            axis.set_title(words)
            axis.set_ylabel(f"share (%), mean of {_SMOOTHED} episodes")
            axis.set_ylim(0, 100)
        return finish(figure, TITLE, [selection])


def subject(store: RunStore) -> Subject:
    """Return what the claims on this figure are judged by."""
    return Subject({"all": selected(store, _PANEL)}, _QUANTITIES, _NUMBERS)


def compare(store: RunStore) -> list[Comparison]:
    """Judge the figure's claims, and what stands beside them."""
    return compared("fig11", subject(store))
