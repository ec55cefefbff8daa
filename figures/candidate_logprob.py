"""Not in the paper: what the sum and the mean of token log-probabilities do to TPO's target as completions grow.

With the sum, the log-probabilities of a group's completions lie apart by as much as their length brings; p_old comes
near to one-hot, q with it, and the scores cannot act. The study shows at which length.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from common.runs.store import RunStore, StoredRun
from common.statistics import mean_and_error
from figures.comparison import Comparison
from figures.language import MODEL_TITLES, TASK_TITLES, TRACK, has_default_options
from figures.selection import Selection, require_runs
from figures.style import METHODS, draw_points, finish, new_figure, styled

TITLE = "Sum or mean of token log-probabilities, as completions grow (not in the paper)"

_METHODS = ("tpo_mean", "tpo_sum")
_COLUMNS = (
    ("largest p of a group's completion", "max_p"),
    ("total variation |q − p|", "total_variation"),
    ("entropy of q (nats)", "entropy_q"),
)


def chosen(store: RunStore) -> list[Selection]:
    """Return the runs that the figure shows, a selection a length: TPO with the mean and with the sum."""
    runs = _runs(store)
    return [_selection(length, runs[length]) for length in sorted(runs)] or [_selection(0, {})]


def _selection(length: int, runs: Mapping[str, StoredRun]) -> Selection:
    steps = min((int(run.settings["steps"]) for run in runs.values()), default=0)
    return Selection(
        _METHODS,
        runs=runs,
        command=f"python -m {TRACK} experiment=candidate_logprob preset=quick",
        steps=steps,
        paper_steps=steps,
        paper_seeds=0,
        place=f"at most {length} tokens",
        same_task=False,
    )


def draw(store: RunStore) -> Figure:
    """Draw the diagnostics of TPO's target over the completions' length.

    Raises:
        NoRunsError: the store has no runs of the experiment.
    """
    selections = chosen(store)
    require_runs("candidate_logprob", "candidate_logprob", selections, store)
    with styled():
        figure, axes = new_figure(len(_COLUMNS), width=3.9, height=3.8)
        for axis, (words, metric) in zip(axes, _COLUMNS, strict=True):
            for method in _METHODS:
                shown = [each for each in selections if each.has([method])]
                lengths = [float(np.nanmean(each.curves(method, "length").values)) for each in shown]
                estimates = [mean_and_error(np.nanmean(each.curves(method, metric).values, axis=1)) for each in shown]
                draw_points(axis, METHODS[method], lengths, estimates)
            axis.set_xscale("log", base=2)
            axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axis.set_xlabel("mean tokens a completion")
            axis.set_title(words)
            axis.set_ylim(bottom=0)
        return finish(figure, f"{TITLE}\n{_about(selections)}", selections)


def compare(store: RunStore) -> list[Comparison]:
    """The paper claims nothing here."""
    return []


def _runs(store: RunStore) -> dict[int, dict[str, StoredRun]]:
    """Return, by length and method, the runs of the task, model and size that has the most lengths with both."""
    groups: dict[tuple[Any, ...], dict[int, dict[str, StoredRun]]] = {}
    for run in store.runs(TRACK, "language"):
        if run.objective == "tpo" and run.blocks and has_default_options(run):
            shared = tuple((name, repr(value)) for name, value in sorted(run.settings.items()) if name not in _STUDIED)
            lengths = groups.setdefault(shared, {})
            lengths.setdefault(int(run.settings["max_tokens"]), {})[f"tpo_{run.settings['candidate_logprob']}"] = run
    both = [{at: pair for at, pair in lengths.items() if len(pair) == 2} for lengths in groups.values()]
    return max(both, key=len, default={})


_STUDIED = ("candidate_logprob", "max_tokens")


def _about(selections: Sequence[Selection]) -> str:
    settings = next(run.settings for each in selections for run in each.runs.values())
    task, model = str(settings["task"]), str(settings["model"])
    return f"{TASK_TITLES.get(task, task)}, {MODEL_TITLES.get(model, model)}, K = {settings['candidates']}"
