"""What the paper's experiments cost at full size, and how much of that the store has."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from common.launch.plan import PlannedRun, plan_runs
from common.launch.status import seconds_per_step
from common.runs.store import RunStore, StoredRun
from figures.language import TRACK as LANGUAGE
from figures.variants import common_words
from report.sections import chosen_runs
from report.stored import all_settings, fetched_settings
from report.wording import hours


@dataclass(frozen=True)
class Estimate:
    """A configured experiment at the paper's size."""

    command: str
    figures: tuple[str, ...]
    """Those that it is for."""
    runs: int
    seeds: int
    """Of all its runs."""
    seeds_done: int
    full: str
    """CPU time, at rates measured in the store where it has such runs."""
    left: str


@dataclass(frozen=True)
class Costs:
    """All experiments."""

    estimates: tuple[Estimate, ...]
    total: Estimate
    """Without language models, which need a GPU; runs that several experiments share count once."""


@dataclass(frozen=True)
class _Needed:
    """A run at the paper's size."""

    seeds: int
    seeds_done: int
    seconds_a_seed: float


def costs(store: RunStore) -> Costs:
    """Plan the runs that the paper's figures need, and estimate their CPU time; nothing is fetched for it.

    Raises:
        UserError: the store cannot be read.
    """
    stored = [run for run in store.runs() if run.blocks]
    done = {_identity(run.track, run.experiment, all_settings(run)): len(run.seeds) for run in stored}
    estimates = []
    on_cpu: dict[str, _Needed] = {}
    for figures, commands in _commands().values():
        planned = {run.spec.key: run for command in commands for run in _planned(command)}
        needed = {key: _needed(run, stored, done) for key, run in planned.items()}
        estimates.append(_estimate(common_words(commands), figures, list(needed.values())))
        on_cpu |= {key: each for key, each in needed.items() if planned[key].spec.track != LANGUAGE}
    return Costs(tuple(estimates), _estimate("", (), list(on_cpu.values())))


_NO_RUNS = RunStore(Path(__file__).parent / "no-runs")
"""Which panels a figure has depends on the store: without any runs it has the paper's."""


def _commands() -> dict[str, tuple[list[str], list[str]]]:
    """Return the figures and the commands of each configured experiment that the paper's panels need."""
    found: dict[str, tuple[list[str], list[str]]] = {}
    for name, selections in chosen_runs(_NO_RUNS).items():
        for selection in selections:
            if "preset=paper" in selection.command:
                experiment = " ".join(selection.command.split()[:4])
                figures, commands = found.setdefault(experiment, ([], []))
                figures += [name] if name not in figures else []
                commands += [selection.command] if selection.command not in commands else []
    return found


@cache  # a plan depends on the command alone, and takes long
def _planned(command: str) -> list[PlannedRun]:
    """Return the runs of ``python -m TRACK KEY=VALUE ...``."""
    _, _, track, *arguments = command.split()
    return plan_runs(track, [*arguments, "device=cpu", "dry_run=true"], fetch=False)


def _needed(run: PlannedRun, stored: Sequence[StoredRun], done: Mapping[str, int]) -> _Needed:
    spec = run.spec
    same = [each for each in stored if (each.track, each.experiment) == (spec.track, spec.experiment)]
    seeds_done = done.get(_identity(spec.track, spec.experiment, spec.all_settings()), 0)
    return _Needed(run.seeds, min(run.seeds, seeds_done), spec.settings.steps * seconds_per_step(run, same))


def _identity(track: str, experiment: str, settings: Mapping[str, Any]) -> str:
    """Return a run's settings without those that data, a model or the device decide on."""
    left_out = {"compile", *fetched_settings(track, experiment)}
    own = {name: value for name, value in settings.items() if name not in left_out}
    return json.dumps([track, experiment, own], sort_keys=True)


def _estimate(command: str, figures: Sequence[str], needed: Sequence[_Needed]) -> Estimate:
    return Estimate(
        command=command,
        figures=tuple(figures),
        runs=len(needed),
        seeds=sum(each.seeds for each in needed),
        seeds_done=sum(each.seeds_done for each in needed),
        full=hours(sum(each.seeds * each.seconds_a_seed for each in needed)),
        left=hours(sum((each.seeds - each.seeds_done) * each.seconds_a_seed for each in needed)),
    )
