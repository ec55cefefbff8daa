"""Which stored runs a figure shows: those with the paper's settings, else smaller ones that differ in their length."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from common import objectives
from common.errors import UserError
from common.runs.identity import RunSpec
from common.runs.store import RunStore, StoredRun
from common.statistics import Resampled, SeedCurves, Size, resample


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
    """The runs of one experiment that a figure shows, one a method, all with the same settings."""

    def __init__(
        self,
        track: str,
        experiment: str,
        methods: Sequence[str],
        *,
        runs: Mapping[str, StoredRun],
        steps: int,
        paper_steps: int,
        paper_seeds: int,
    ) -> None:
        self.track = track
        self.experiment = experiment
        self.methods = tuple(methods)
        """Those that the figure is about, in the order in which it names them."""
        self.runs = {method: runs[method] for method in methods if method in runs}
        """Those there are, in the same order."""
        self.steps = steps
        """Updates of the runs."""
        self.paper_steps = paper_steps
        self.paper_seeds = paper_seeds
        self._curves: dict[tuple[str, str], SeedCurves] = {}
        self._resampled: dict[tuple[str, str], Resampled] = {}

    @property
    def command(self) -> str:
        """What produces the runs at the paper's size."""
        return f"python -m {self.track} experiment={self.experiment} preset=paper"

    @property
    def missing(self) -> list[str]:
        """Methods without a run."""
        return [method for method in self.methods if method not in self.runs]

    def has(self, methods: Iterable[str]) -> bool:
        """Whether all these methods have a run."""
        return all(method in self.runs for method in methods)

    def seeds(self, methods: Iterable[str]) -> int:
        """Return the smallest number of seeds among these methods."""
        return min(len(self.runs[method].seeds) for method in methods)

    def size(self, methods: Iterable[str]) -> Size:
        """Compare the runs of these methods with the paper's."""
        if self.steps != self.paper_steps:
            return Size.OTHER_SETTINGS
        return Size.FEWER_SEEDS if self.seeds(methods) < self.paper_seeds else Size.PAPER

    def presets(self, methods: Iterable[str] | None = None) -> str:
        """Return the presets under which the runs were made, as recorded."""
        return self._recorded("preset", methods)

    def commits(self) -> str:
        """Return the commits at which the runs were made, as recorded."""
        return self._recorded("commit", None)

    def _recorded(self, attribute: str, methods: Iterable[str] | None) -> str:
        chosen = self.runs if methods is None else methods
        blocks = [block for method in chosen for block in self.runs[method].blocks]
        return ", ".join(sorted({str(getattr(block, attribute)) for block in blocks}))

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

    def footer(self) -> str:
        """Return what a reader must know of the runs: seeds, presets, commits, what is missing."""
        counts = {title(method): len(run.seeds) for method, run in self.runs.items()}
        if len(set(counts.values())) == 1:
            seeds = f"{next(iter(counts.values()))} seeds a curve"
        else:
            seeds = "seeds: " + ", ".join(f"{name} {count}" for name, count in counts.items())
        parts = [f"{seeds} (paper: {self.paper_seeds})"]
        if self.steps != self.paper_steps:
            parts.append(f"REDUCED: {self.steps:,} of {self.paper_steps:,} updates")
        parts += ["bands: mean ± s.e.", f"preset {self.presets()}", f"commit {self.commits()}"]
        if self.missing:
            parts.append(f"no runs: {titles(self.missing)}")
        return " · ".join(parts)


def select(
    store: RunStore, track: str, experiment: str, methods: Sequence[str], *, paper_steps: int, paper_seeds: int
) -> Selection:
    """Choose the runs of an experiment.

    Those with the paper's settings and each objective's default options, if there is any. Otherwise those that differ
    from them only in being shorter, of one length: the length with the most updates over all methods and seeds.

    Raises:
        UserError: the store cannot be read.
    """
    by_steps: dict[int, dict[str, StoredRun]] = {}
    for run in store.runs(track, experiment):
        if run.objective in methods and run.blocks:
            steps = _length(run, paper_steps)
            if steps is not None:
                by_steps.setdefault(steps, {})[run.objective] = run
    steps = max(by_steps, key=lambda length: _worth(by_steps[length], length, paper_steps), default=paper_steps)
    return Selection(
        track,
        experiment,
        methods,
        runs=by_steps.get(steps, {}),
        steps=steps,
        paper_steps=paper_steps,
        paper_seeds=paper_seeds,
    )


def _length(run: StoredRun, paper_steps: int) -> int | None:
    """Return the run's length, or None where it is longer than the paper's or differs in another setting."""
    steps = int(run.settings["steps"])
    settings = _AsInThePaper(run.objective, steps=0 if steps == paper_steps else steps)
    same = RunSpec(run.track, run.experiment, settings).key == run.key
    return steps if same and steps <= paper_steps else None


def _worth(runs: Mapping[str, StoredRun], steps: int, paper_steps: int) -> tuple[bool, int]:
    return steps == paper_steps, steps * sum(len(run.seeds) for run in runs.values())


def title(method: str) -> str:
    """Return what figures call a method."""
    return objectives.get(method).title


def titles(methods: Iterable[str]) -> str:
    """Return the methods' names in a row: ``A``, ``A and B``, ``A, B and C``."""
    *first, last = [title(method) for method in methods]
    return f"{', '.join(first)} and {last}" if first else last
