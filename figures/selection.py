"""Which stored runs a panel shows: those with the paper's settings, else smaller ones, all of one size."""

import math
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field

from common.errors import UserError
from common.runs.identity import RunSpec
from common.runs.store import RunStore, StoredRun
from common.statistics import Resampled, SeedCurves, Size, resample
from figures.variants import common_words, title, titles

SizeT = tuple[int, ...]
"""What may be smaller than in the paper, the updates first."""


class NoRunsError(UserError):
    """The store holds nothing that the figure could show."""


@dataclass(frozen=True)
class _AsInThePaper:
    """Settings that are all at their defaults, which are the paper's, the length excepted."""

    objective: str
    options: Mapping[str, float | bool] = field(default_factory=dict)
    steps: int = 0
    """0 is the default of the experiment."""


class Selection:
    """The runs that a panel shows, one a method, all of the same size."""

    def __init__(
        self,
        methods: Sequence[str],
        *,
        runs: Mapping[str, StoredRun],
        command: str,
        steps: int,
        paper_steps: int,
        paper_seeds: int,
        unit: str = "updates",
        place: str = "",
        differences: Sequence[str] = (),
        same_task: bool = True,
        in_paper: bool = True,
    ) -> None:
        self.methods = tuple(methods)
        """Those that the panel is about, in the order in which it names them."""
        self.runs = {method: runs[method] for method in methods if method in runs}
        """Those there are, in the same order."""
        self.command = command
        """What produces the runs at the paper's size."""
        self.steps = steps
        """Updates of the runs."""
        self.paper_steps = paper_steps
        self.paper_seeds = paper_seeds
        self.unit = unit
        """What a step is."""
        self.place = place
        """What tells the panel from the figure's others; empty if it is the only one."""
        self.differences = tuple(differences)
        """Settings other than the steps that are not the paper's, in words."""
        self.same_task = same_task
        """Whether published numbers can be set against the runs: not if these solve another task than the paper's."""
        self.in_paper = in_paper
        """Whether the paper has such a panel."""
        self._curves: dict[tuple[str, str], SeedCurves] = {}
        self._resampled: dict[tuple[str, str], Resampled] = {}

    def without_runs(self) -> "Selection":
        """Return the selection as it would be of an empty store."""
        emptied = copy(self)
        emptied.runs = {}
        return emptied

    @property
    def missing(self) -> list[str]:
        """Methods without a run."""
        return [method for method in self.methods if method not in self.runs]

    @property
    def reductions(self) -> tuple[str, ...]:
        """Everything but the seeds in which the runs differ from the paper's, in words."""
        shorter = (f"{self.steps:,} of {self.paper_steps:,} {self.unit}",) if self.steps != self.paper_steps else ()
        return (*shorter, *self.differences)

    def has(self, methods: Iterable[str]) -> bool:
        """Whether all these methods have a run."""
        return all(method in self.runs for method in methods)

    def seeds(self, methods: Iterable[str]) -> int:
        """Return the smallest number of seeds among these methods."""
        return min(len(self.runs[method].seeds) for method in methods)

    def size(self, methods: Iterable[str]) -> Size:
        """Compare the runs of these methods with the paper's."""
        if self.reductions:
            return Size.OTHER_SETTINGS
        return Size.FEWER_SEEDS if self.seeds(methods) < self.paper_seeds else Size.PAPER

    def presets(self, methods: Iterable[str] | None = None) -> str:
        """Return the presets under which the runs were made, as recorded."""
        return ", ".join(sorted(self.recorded("preset", self.runs if methods is None else methods)))

    def recorded(self, attribute: str, methods: Iterable[str]) -> set[str]:
        """Return what the runs of these methods have recorded, e.g. their ``commit``."""
        return {str(getattr(block, attribute)) for method in methods for block in self.runs[method].blocks}

    def curves(self, method: str, metric: str) -> SeedCurves:
        """Return a metric of a method.

        Raises:
            UserError: a file of the run is damaged, or was written without this metric.
        """
        if (method, metric) not in self._curves:
            run = self.runs[method]
            try:
                self._curves[method, metric] = SeedCurves.from_frame(run.metrics(), metric)
            except ValueError as error:
                raise UserError(f"{run.directory}: {error}; remove the run and make it anew") from error
        return self._curves[method, metric]

    def resampled(self, method: str, metric: str) -> Resampled:
        """Return a metric's mean curve with its bootstrap draws."""
        if (method, metric) not in self._resampled:
            self._resampled[method, metric] = resample(self.curves(method, metric))
        return self._resampled[method, metric]


def select(
    store: RunStore, track: str, experiment: str, methods: Sequence[str], *, paper_steps: int, paper_seeds: int
) -> Selection:
    """Choose the runs of an experiment.

    Those with the paper's settings and each objective's default options, if there is any. Otherwise those that differ
    from them only in being shorter, of one length (``best_size``).

    Raises:
        UserError: the store cannot be read.
    """
    by_size: dict[SizeT, dict[str, StoredRun]] = {}
    for run in store.runs(track, experiment):
        if run.objective in methods and run.blocks:
            steps = _length(run, paper_steps)
            if steps is not None:
                by_size.setdefault((steps,), {})[run.objective] = run
    size = best_size(by_size, (paper_steps,))
    return Selection(
        methods,
        runs=by_size.get(size, {}),
        command=f"python -m {track} experiment={experiment} preset=paper",
        steps=size[0],
        paper_steps=paper_steps,
        paper_seeds=paper_seeds,
    )


def _length(run: StoredRun, paper_steps: int) -> int | None:
    """Return the run's length, or None where it is longer than the paper's or differs in another setting."""
    steps = int(run.settings["steps"])
    settings = _AsInThePaper(run.objective, steps=0 if steps == paper_steps else steps)
    same = RunSpec(run.track, run.experiment, settings).key == run.key
    return steps if same and steps <= paper_steps else None


def best_size(by_size: Mapping[SizeT, Mapping[str, StoredRun]], paper: SizeT) -> SizeT:
    """Return the paper's size if any run has it, else the one with the most updates and seeds.

    Updates times seeds are multiplied over the methods, so that one more method is worth more than longer runs of few.
    """
    return max(by_size, key=lambda size: (size == paper, _worth(size[0], by_size[size].values()), size), default=paper)


def _worth(steps: int, runs: Iterable[StoredRun]) -> float:
    return sum(math.log2(1 + steps * len(run.seeds)) for run in runs)


def require_runs(name: str, what: str, selections: Sequence[Selection], store: RunStore) -> None:
    """Raise NoRunsError, telling how to make them, where no panel of the figure has runs of the experiment."""
    if not any(selection.runs for selection in selections):
        command = common_words(each.command for each in selections)
        raise NoRunsError(f"{name}: no runs of {what} in {store.root}; nothing drawn ({command})")


def what_is_missing(selections: Sequence[Selection]) -> list[str]:
    """Return, a line each, the methods without runs in panels that have some, and the panels without any."""
    lines = []
    for each in selections:
        if each.runs and each.missing:
            at = f" at {each.place}" if each.place else ""
            lines.append(f"no runs of {titles(each.missing)}{at}; {each.command}")
    empty = [each for each in selections if not each.runs]
    if empty:
        places = ", ".join(each.place for each in empty)
        lines.append(f"no runs at {places}; {common_words(each.command for each in empty)}")
    return lines


def footer(selections: Sequence[Selection]) -> str:
    """Return what a reader must know of the runs: seeds, sizes, presets, commits, what is missing."""
    shown = [each for each in selections if each.runs]
    published = any(each.paper_seeds for each in shown)
    paper = f" (paper: {_one(str(each.paper_seeds) for each in shown)})" if published else ", not in the paper"
    parts = [f"{_seeds(shown)}{paper}"]
    if any(each.reductions for each in shown):
        parts.append(f"REDUCED: {_by_place(shown, {i: ', '.join(each.reductions) for i, each in enumerate(shown)})}")
    parts.append("bands: mean ± s.e.")
    parts += [f"{what} {_recorded(shown, what)}" for what in ("preset", "commit")]
    missing = {i: titles(each.missing) if each.missing else "" for i, each in enumerate(shown)}
    if any(missing.values()):
        parts.append(f"no runs: {_by_place(shown, missing)}")
    return " · ".join(parts)


def _seeds(shown: Sequence[Selection]) -> str:
    counts = [{title(method): len(run.seeds) for method, run in each.runs.items()} for each in shown]
    every = [count for each in counts for count in each.values()]
    if len(set(every)) == 1:
        return f"{every[0]} seed{'s' if every[0] != 1 else ''} a curve"
    if len(shown) == 1:
        return "seeds: " + ", ".join(f"{name} {count}" for name, count in counts[0].items())
    ranges = {i: _range(each.values()) for i, each in enumerate(counts)}
    return f"seeds a curve: {_by_place(shown, ranges)}"


def _range(counts: Iterable[int]) -> str:
    ordered = sorted(set(counts))
    return f"{ordered[0]}–{ordered[-1]}" if len(ordered) > 1 else str(ordered[0])


def _one(values: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(values))


def _by_place(shown: Sequence[Selection], words: Mapping[int, str]) -> str:
    """Return the words once if they hold for every panel, else after the panels that they hold for."""
    places: dict[str, list[str]] = {}
    for index, said in words.items():
        if said:
            places.setdefault(said, []).append(shown[index].place)
    if list(map(len, places.values())) == [len(shown)]:
        return next(iter(places))
    most = max(places, key=lambda said: len(places[said]))
    if len(places[most]) > _NAMED and sum(map(len, places.values())) == len(shown):
        places[most] = ["other panels"]
        places[most] = places.pop(most)  # named last
    return "; ".join(f"{', '.join(where)}: {said}" for said, where in places.items())


_NAMED = 4
"""Panels that are named one by one."""


def _recorded(shown: Sequence[Selection], attribute: str) -> str:
    return ", ".join(sorted(set().union(*(each.recorded(attribute, each.runs) for each in shown))))
