"""What the figures of the sequence track share: their panels, the runs in them, curves of errors.

The track's experiments are settings of one, so that they share runs; a panel finds its runs by their settings. These
are written as the command line has them, and turned into a run's by the track itself.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from common import objectives
from common.runs.identity import RunSpec
from common.runs.store import RunStore, StoredRun
from common.statistics import Sample, mean_of_last, steps_to
from figures.quantities import Quantity
from figures.selection import Selection, SizeT, best_size
from figures.variants import common_words, variant
from sequence_tasks.experiments import EXPERIMENTS, resolved
from sequence_tasks.settings import SequenceTask
from sequence_tasks.task import TARGETS

TRACK = "sequence_tasks"
LAST = 20
"""Episodes at the end over which a noisy error is averaged."""

_EXPERIMENT = next(iter(EXPERIMENTS))
_SIZES = {"episodes": "episodes", "batch": "B", "candidates": "K", "length": "H"}
"""Settings in which runs may be smaller than the paper's, and what figures call them."""
_DEFAULTS: dict[str, Any] = {
    **asdict(SequenceTask()),
    "matching": "prompt",
    "epochs": None,
    "allow_unstable": True,
}
_NAMES = {each.name for each in fields(SequenceTask)}

DENSE = {"reward": "bag_of_tokens", "episodes": 1000}
"""Settings of the tasks with a reward for every token."""
AT_PLACE = " at {place}"
"""In the words of a quantity."""
MECHANISM = {"length": 8, "batch": 256, "candidates": 32}
"""Settings of the studies of the mechanism."""


@dataclass(frozen=True)
class Panel:
    """A panel of a figure: its settings, and the methods in it."""

    experiment: str
    """Configured experiment that makes its runs."""
    methods: tuple[str, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Those that differ from the track's defaults, the paper's terminal task."""
    seeds: int = 20
    """The paper's."""
    place: str = ""
    """What tells it from the figure's other panels."""
    key: str = ""
    """The same for ``claims.yaml`` and ``paper_numbers.yaml``."""
    overrides: str = ""
    """What the command that makes its runs says besides the experiment."""
    told_by: tuple[str, ...] = ()
    """Settings by which the figure tells panels apart, and which are therefore not smaller in smaller runs."""
    aside: str = ""
    """Says so, if the panel is not in the paper."""

    @property
    def command(self) -> str:
        """Makes the panel's runs at the paper's size."""
        return " ".join(
            ["python", "-m", TRACK, f"experiment={self.experiment}", "preset=paper", *self.overrides.split()]
        )

    @property
    def paper_size(self) -> SizeT:
        """The paper's episodes, B, K and H."""
        config = {**_DEFAULTS, **self.settings}
        return tuple(int(config[name]) for name in _SIZES)

    def run_key(self, method: str, size: SizeT, compiled: bool = False) -> str | None:
        """Return the key of a method's run at some size, None where there can be no such run."""
        chosen = variant(method)
        config = {**_DEFAULTS, **self.settings, **dict(zip(_SIZES, size, strict=True)), **chosen.settings}
        config |= {"objective": chosen.objective, "compile": compiled}
        settings = {**config, **resolved(config)}
        try:
            spec = RunSpec(TRACK, _EXPERIMENT, SequenceTask(**{k: v for k, v in settings.items() if k in _NAMES}))
        except ValueError:
            return None
        return spec.key


def swept(panel: Panel, name: str, values: Iterable[Any], words: str) -> list[Panel]:
    """Return a panel for each value of one of the task's settings.

    Args:
        panel: what they share.
        name: of the setting.
        values: of the setting.
        words: its symbol, e.g. ``V``.
    """
    return [
        replace(
            panel,
            settings={**panel.settings, name: value},
            place=f"{words} = {value}" + (f" ({panel.place})" if panel.place else ""),
            key="_".join(filter(None, [f"{words.lower()}{value}", panel.key])),
            overrides=f"{panel.overrides} task.{name}={value}",
            told_by=(*panel.told_by, name),
        )
        for value in values
    ]


def by_target(panel: Panel) -> list[list[Panel]]:
    """Return a panel for each of the dense rewards (rows) and targets."""
    return [
        [
            replace(
                panel,
                settings={**panel.settings, "target": target, "reward": reward},
                place=f"{_words(target)}, {_words(reward)}" + (f" ({panel.place})" if panel.place else ""),
                key="_".join(filter(None, [f"{reward}_{target}", panel.key])),
                overrides=f"{panel.overrides} task.target={target} task.reward={reward}",
            )
            for target in TARGETS
        ]
        for reward in ("bag_of_tokens", "sequential")
    ]


def _words(name: str) -> str:
    return name.replace("_", " ")


def own_or_empty(selection: Selection) -> Selection:
    """Return an interaction-matched panel, or it without runs if all it has is what prompt-matched panels have too."""
    return selection if has_own_runs(selection) else selection.without_runs()


def has_own_runs(selection: Selection) -> bool:
    """Whether an interaction-matched panel has methods without groups: the grouped ones are the same in both."""
    return not all(objectives.get(variant(method).objective).grouped for method in selection.runs)


def lengths_in(store: RunStore, panel: Panel, lengths: Sequence[int]) -> list[Panel]:
    """Return a panel for each of the paper's H, preceded by others for which the store has runs.

    Others are left out if their runs are very short beside the longest.
    """
    others = sorted({int(run.settings["length"]) for run in stored_runs(store).values()} - set(lengths))
    beside = [beside_the_paper(each) for each in swept(panel, "length", others, "H")]
    in_paper = swept(panel, "length", lengths, "H")
    found = [selected(store, each) for each in [*beside, *in_paper]]
    longest = max((each.steps for each in found if each.runs), default=0)
    worthy = [each.runs and each.steps >= _LONG_ENOUGH * longest for each in found]
    return [each for each, shown in zip(beside, worthy, strict=False) if shown] + in_paper


def beside_the_paper(panel: Panel) -> Panel:
    """Return a panel whose H is not among the paper's."""
    return replace(
        panel, place=f"{panel.place} (not in the paper)", aside=f"H = {panel.settings['length']} is not in the paper"
    )


_LONG_ENOUGH = 0.1
"""Share of the longest panel's episodes that a panel which is not in the paper must have."""


def selections(store: RunStore, panels: Iterable[Panel]) -> list[Selection]:
    """Return the runs of each panel."""
    return [selected(store, panel) for panel in panels]


def by_key(store: RunStore, panels: Iterable[Panel]) -> dict[str, Selection]:
    """Return the runs of each panel by its key."""
    return {panel.key: selected(store, panel) for panel in panels}


def selected(store: RunStore, panel: Panel) -> Selection:
    """Choose a panel's runs: all of one size, the paper's if any run has it, else the best smaller one.

    Raises:
        UserError: the store cannot be read.
    """
    by_size = _by_size(panel, stored_runs(store))
    size = best_size(by_size, panel.paper_size)
    named = list(zip(_SIZES, size, panel.paper_size, strict=True))
    differences = [f"{_SIZES[name]} = {ours} (paper {paper})" for name, ours, paper in named[1:] if ours != paper]
    return Selection(
        panel.methods,
        runs=by_size.get(size, {}),
        command=panel.command,
        steps=size[0],
        paper_steps=panel.paper_size[0],
        paper_seeds=panel.seeds,
        unit="episodes",
        place=panel.place,
        differences=[*differences, *([panel.aside] if panel.aside else [])],
        same_task=not panel.aside and size[-1] == panel.paper_size[-1],
        in_paper=not panel.aside,
    )


def combined(panels: Sequence[Selection]) -> Selection:
    """Return the runs of several panels as one selection, for a claim on all of them."""
    label = "{}: {}".format
    return Selection(
        [label(each.place, method) for each in panels for method in each.methods],
        runs={label(each.place, method): run for each in panels for method, run in each.runs.items()},
        command=common_words(each.command for each in panels),
        steps=min(each.steps for each in panels),
        paper_steps=panels[0].paper_steps,
        paper_seeds=panels[0].paper_seeds,
        unit=panels[0].unit,
        differences=sorted({words for each in panels for words in each.differences}),
        same_task=all(each.same_task for each in panels),
    )


def _by_size(panel: Panel, stored: Mapping[str, StoredRun]) -> dict[SizeT, dict[str, StoredRun]]:
    """Return the panel's runs by their size."""
    found: dict[SizeT, dict[str, StoredRun]] = {}
    for size in _sizes(panel, stored.values()):
        there: dict[str, StoredRun] = {}
        for compiled in (True, False):  # they differ by rounding; a run that is not compiled comes first
            keys = {method: panel.run_key(method, size, compiled) for method in panel.methods}
            there |= {method: stored[key] for method, key in keys.items() if key is not None and key in stored}
        if there:
            found[size] = there
    return found


def _sizes(panel: Panel, stored: Iterable[StoredRun]) -> set[SizeT]:
    """Return the sizes, up to the paper's, that stored runs of the panel's task may have.

    Objectives without groups know no K, and if matched by interactions their batch is K times the panel's, so each K
    in the store is tried.
    """
    config = {**_DEFAULTS, **panel.settings}
    task = {name: config[name] for name in ("target", "reward", "vocabulary")}
    runs = [run for run in stored if all(run.settings[name] == value for name, value in task.items())]
    group_sizes = {int(run.settings["candidates"]) for run in runs} | {int(config["candidates"])}
    at = {
        (int(run.settings["episodes"]), batch, candidates, int(run.settings["length"]))
        for run in runs
        for candidates in group_sizes
        for batch in {int(run.settings["batch"]), int(run.settings["batch"]) // candidates}
    }
    paper = panel.paper_size
    fixed = [name in panel.told_by for name in _SIZES]
    return {
        size
        for size in at
        if all(
            ours == theirs if same else ours <= theirs for ours, theirs, same in zip(size, paper, fixed, strict=True)
        )
    }


def stored_runs(store: RunStore) -> dict[str, StoredRun]:
    """Return the track's finished runs by key."""
    records = sorted(store.root.glob(f"{TRACK}/{_EXPERIMENT}/*/record.json"))
    return _read(store.root, tuple((path, path.stat().st_mtime_ns) for path in records))


@lru_cache(maxsize=1)
def _read(root: Path, records: tuple[tuple[Path, int], ...]) -> dict[str, StoredRun]:
    """Read the store anew only if its records have changed: every panel of every figure looks through it."""
    return {run.key: run for run in RunStore(root).runs(TRACK, _EXPERIMENT) if run.blocks}


def final(words: str, metric: str = "error", *, at: str = "") -> dict[str, Quantity]:
    """Return a figure's final error, at the last episode and over the last few, in per cent."""
    return {
        "last_episode": Quantity(f"{words} (%) at the last episode{at}", metric, scale=100),
        "final": Quantity(f"{words} (%), mean of the last {LAST} episodes{at}", metric, mean_of_last(LAST), scale=100),
    }


def steps_to_half(metric: str, at: str = "") -> Quantity:
    """Return the number of episodes to an error of 50 %."""
    return Quantity(f"episodes to 50 % error{at}", metric, steps_to(0.5))


def steps_to_one_percent(at: str = "") -> Quantity:
    """Return the number of episodes to an error of 1 %."""
    return Quantity(f"steps to 1 % error{at}", "error", steps_to(0.01))


def ratio_to_next(selection: Selection, method: str, *, quantity: Quantity) -> Sample:
    """Return how many times a method's quantity the lowest of the other methods' is."""
    first = quantity.of(selection, method)
    next_ones = [quantity.of(selection, other) for other in selection.methods if other != method]
    with np.errstate(invalid="ignore"):  # neither was ever reached
        draws = np.minimum.reduce([each.draws for each in next_ones]) / first.draws
        estimate = float(np.float64(min(each.estimate for each in next_ones)) / first.estimate)
    return Sample(estimate, draws, min(each.n for each in [first, *next_ones]))
