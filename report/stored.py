"""What the store holds, run by run: how far each is, and what it took."""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import MISSING, dataclass, fields
from typing import Any

from common.launch.experiment import Experiment, experiments_of
from common.runs.files import read_json
from common.runs.store import RunStore, StoredRun
from report.wording import hours


@dataclass(frozen=True)
class StoredExperiment:
    """The runs of one experiment of a track."""

    name: str
    runs: int
    seeds: int
    states: str
    cpu: str
    gpu: str


@dataclass(frozen=True)
class OpenRun:
    """A run that is not done."""

    name: str
    state: str
    finished_seeds: int
    step: int | None
    """How far the seeds are that it was last seen at work on."""
    error: str


@dataclass(frozen=True)
class Holdings:
    """What the store holds."""

    root: str
    runs: int
    finished: int
    """Those with finished seeds."""
    commits: tuple[str, ...]
    cpu: str
    experiments: tuple[StoredExperiment, ...]
    open_runs: tuple[OpenRun, ...]


def holdings(store: RunStore) -> Holdings:
    """Look through the store.

    Raises:
        UserError: it cannot be read.
    """
    states = [(run, run.state) for run in store.runs()]
    by_experiment: dict[str, list[tuple[StoredRun, str]]] = {}
    for run, state in states:
        by_experiment.setdefault(f"{run.track}/{run.experiment}", []).append((run, state))
    return Holdings(
        root=str(store.root),
        runs=len(states),
        finished=sum(bool(run.blocks) for run, _ in states),
        commits=tuple(sorted({block.commit for run, _ in states for block in run.blocks})),
        cpu=hours(cpu_seconds([run for run, _ in states])),
        experiments=tuple(_experiment(name, group) for name, group in by_experiment.items()),
        open_runs=tuple(_open(run, state) for run, state in states if state != "done"),
    )


def cpu_seconds(runs: Sequence[StoredRun]) -> float:
    """Return the CPU time that the runs took."""
    return sum(block.cpu_seconds for run in runs for block in run.blocks)


def gpu_seconds(runs: Sequence[StoredRun]) -> float:
    """Return the time that the runs had a GPU for."""
    return sum(block.wall_seconds for run in runs for block in run.blocks if block.machine.startswith("cuda"))


def all_settings(run: StoredRun) -> dict[str, Any]:
    """Return a run's settings, with the defaults of those that are younger than it."""
    return {**defaults(run.track, run.experiment), **run.settings}


def defaults(track: str, experiment: str) -> dict[str, Any]:
    """Return the defaults of an experiment's settings; none of an experiment that is not known here."""
    known = _known(track, experiment)
    return {each.name: each.default for each in fields(known.settings) if each.default is not MISSING} if known else {}


def fetched_settings(track: str, experiment: str) -> Collection[str]:
    """Return the settings that an experiment gets from data or a model."""
    known = _known(track, experiment)
    return known.fetch if known else ()


def _known(track: str, experiment: str) -> Experiment | None:
    try:
        return experiments_of(track)[experiment]
    except (ImportError, KeyError):
        return None


def _experiment(name: str, group: Sequence[tuple[StoredRun, str]]) -> StoredExperiment:
    runs = [run for run, _ in group]
    counts = Counter(state for _, state in group)
    on_gpu = gpu_seconds(runs)
    return StoredExperiment(
        name=name,
        runs=len(runs),
        seeds=sum(len(run.seeds) for run in runs),
        states=", ".join(f"{count} {state}" for state, count in sorted(counts.items())),
        cpu=hours(cpu_seconds(runs)),
        gpu=hours(on_gpu) if on_gpu else "",
    )


def _open(run: StoredRun, state: str) -> OpenRun:
    progress: dict[str, Any] = read_json(run.directory / "progress.json") or {}
    failure: dict[str, Any] = read_json(run.directory / "failure.json") or {}
    return OpenRun(
        name=f"{run.track}/{run.experiment}/{run.directory.name}",
        state=state,
        finished_seeds=len(run.seeds),
        step=progress.get("step"),
        error=str(failure.get("error", "")),
    )
