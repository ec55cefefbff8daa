"""Not in the paper: what the sum and the mean of token log-probabilities do to TPO's target as completions grow.

With the sum, the log-probabilities of a group's completions lie apart by as much as their length brings; p_old comes
near to one-hot, q with it, and the scores cannot act. The study shows at which length.
"""

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from common.runs.store import RunStore, StoredRun
from common.statistics import mean_and_error
from figures.comparison import Comparison
from figures.language import MODEL_TITLES, TASK_TITLES, TRACK, has_default_options
from figures.selection import Selection, require_runs
from figures.style import MethodStyle, draw_points, finish, key, new_figure, styled

TITLE = "Sum or mean of token log-probabilities, as completions grow (not in the paper)"

_LOOKS = {
    "mean": MethodStyle("#0072B2", "-", 2.0, "o"),
    "sum": MethodStyle("#D55E00", (0, (5, 2)), 2.0, "s"),
}
_COLUMNS = (
    ("largest p of a group's completion", "max_p"),
    ("total variation |q − p|", "total_variation"),
    ("entropy of q (nats)", "entropy_q"),
)


def chosen(store: RunStore) -> list[Selection]:
    """Return the runs that the figure shows: of one task and model, TPO with sum and mean at each length."""
    runs = _runs(store)
    first = next(iter(runs.values()), None)
    about = "" if first is None else f"{_of(TASK_TITLES, first, 'task')}, {_of(MODEL_TITLES, first, 'model')}"
    return [
        Selection(
            list(runs) or ["mean", "sum"],
            runs=runs,
            command=f"python -m {TRACK} experiment=candidate_logprob preset=quick",
            steps=0 if first is None else int(first.settings["steps"]),
            paper_steps=0 if first is None else int(first.settings["steps"]),
            paper_seeds=0,
            place=about,
            differences=["not in the paper"],
            same_task=False,
        )
    ]


def draw(store: RunStore) -> Figure:
    """Draw the diagnostics of TPO's target over the completions' length.

    Raises:
        NoRunsError: the store has no runs of the experiment.
    """
    (selection,) = chosen(store)
    require_runs("candidate_logprob", "candidate_logprob", [selection], store)
    with styled():
        figure, axes = new_figure(len(_COLUMNS), width=3.9, height=3.8)
        for axis, (words, metric) in zip(axes, _COLUMNS, strict=True):
            for aggregate, look in _LOOKS.items():
                labels = [label for label in selection.runs if label.startswith(aggregate)]
                if labels:
                    lengths = [_seed_means(selection, label, "length").mean() for label in labels]
                    estimates = [mean_and_error(_seed_means(selection, label, metric)) for label in labels]
                    draw_points(axis, look, lengths, estimates)
            axis.set_xscale("log", base=2)
            axis.set_xlabel("mean tokens a completion")
            axis.set_title(words)
            axis.set_ylim(bottom=0)
        legend = [key(look, f"{aggregate} of token log π", marker=True) for aggregate, look in _LOOKS.items()]
        return finish(figure, f"{TITLE}\n{selection.place}", [selection], methods=[], extra=legend)


def compare(store: RunStore) -> list[Comparison]:
    """The paper claims nothing here."""
    return []


def _seed_means(selection: Selection, label: str, metric: str) -> Any:
    return np.nanmean(selection.curves(label, metric).values, axis=1)


def _runs(store: RunStore) -> dict[str, StoredRun]:
    """Return, by label, the runs of the task, model and size that has the most lengths with both aggregates."""
    groups: dict[tuple[Any, ...], dict[tuple[int, str], StoredRun]] = {}
    for run in store.runs(TRACK, "language"):
        settings = run.settings
        if run.objective == "tpo" and run.blocks and has_default_options(run):
            shared = tuple(
                (name, repr(value))
                for name, value in sorted(settings.items())
                if name not in ("candidate_logprob", "max_tokens")
            )
            groups.setdefault(shared, {})[int(settings["max_tokens"]), settings["candidate_logprob"]] = run
    both = [runs for runs in groups.values() if {aggregate for _, aggregate in runs} == set(_LOOKS)]
    best = max(both, key=len, default={})
    return {f"{aggregate} {length}": best[length, aggregate] for length, aggregate in sorted(best)}


def _of(titles: dict[str, str], run: StoredRun, name: str) -> str:
    word = str(run.settings[name])
    return titles.get(word, word)
