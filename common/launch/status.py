"""How far the planned runs are, and what is left to compute."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Column, Table

from common.launch.experiment import experiments_of
from common.launch.plan import PlannedRun
from common.runs.checkpoint import unfinished_blocks
from common.runs.files import read_json
from common.runs.store import RunStore, StoredRun, block_bytes, is_locked


@dataclass(frozen=True)
class Status:
    """A planned run against the store."""

    planned: PlannedRun
    directory: Path
    state: str
    """``done``, ``resumable``, ``missing``, ``failed`` or ``busy`` (another process is at work on it)."""
    seeds_done: int
    error: str | None
    """Why the last attempt failed."""
    cpu_hours_left: float


def status_of(planned: PlannedRun, store: RunStore) -> Status:
    """Look a planned run up; blocks whose files are damaged do not count."""
    run = store.find(planned.spec)
    directory = store.directory(planned.spec)
    blocks = [block for block in run.blocks if block_bytes(directory, block) is not None] if run else []
    done = {seed for block in blocks for seed in block.seeds} & set(range(planned.seeds))
    failure = (read_json(directory / "failure.json") or {}).get("error")
    steps_left = (planned.seeds - len(done)) * planned.spec.settings.steps - _steps_under_way(directory)
    hours = (
        max(steps_left, 0) * seconds_per_step(planned, store.runs(planned.spec.track, planned.spec.experiment)) / 3600
    )
    if len(done) == planned.seeds:
        state = "done"
    elif run is not None and is_locked(directory):
        state = "busy"
    elif failure is not None:
        state = "failed"
    else:
        state = "resumable" if unfinished_blocks(directory) else "missing"
    return Status(planned, directory, state, len(done), failure, hours)


def left_over(status: Status) -> bool:
    """Whether a process that was killed right after its last record left files that the next one is to remove."""
    return bool(unfinished_blocks(status.directory)) or (status.directory / "progress.json").exists()


def steps_done(planned: PlannedRun, store: RunStore) -> int:
    """Seed-steps that are done, those of the block in progress included, for a progress bar."""
    directory = store.directory(planned.spec)
    try:
        record = json.loads((directory / "record.json").read_text())["blocks"]
    except (OSError, ValueError, KeyError, TypeError):
        record = []
    wanted = set(range(planned.seeds))
    finished = sum(len(wanted & set(range(b["first_seed"], b["last_seed"] + 1))) for b in record)
    return finished * planned.spec.settings.steps + _steps_under_way(directory)


def _steps_under_way(directory: Path) -> int:
    try:
        progress = json.loads((directory / "progress.json").read_text())
        return int(progress["step"] * (progress["last_seed"] - progress["first_seed"] + 1))
    except (OSError, ValueError, KeyError, TypeError):
        return 0


def seconds_per_step(planned: PlannedRun, runs: Iterable[StoredRun]) -> float:
    """CPU-seconds a seed-step: as measured in finished runs of the same experiment and size, else as configured."""
    spec = planned.spec
    wanted = _size(spec.all_settings())
    blocks = [
        (block, run.objective == spec.settings.objective)
        for run in runs
        if _size(run.settings) == wanted
        for block in run.blocks
    ]
    own = [block for block, same_objective in blocks if same_objective] or [block for block, _ in blocks]
    seed_steps = sum(len(block.seeds) * block.steps for block in own)
    if seed_steps:
        return sum(block.cpu_seconds for block in own) / seed_steps
    configured = planned.config["cpu_milliseconds"]
    estimate = experiments_of(spec.track)[spec.experiment].cpu_milliseconds
    if configured is None and estimate is not None:
        configured = estimate(spec.settings)
    return float(configured or 0) / 1000


def _size(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that a step's cost may depend on, the objective apart."""
    return {key: value for key, value in settings.items() if key not in _COSTS_NOTHING}


_COSTS_NOTHING = ("objective", "options", "steps", "episodes", "experiment_seed")


def print_plan(statuses: Sequence[Status], console: Console) -> None:
    """Show what a command line would do."""
    directory = Column("directory", overflow="fold")
    table = Table("run", "state", "seeds", "CPU-hours left", directory, title="Planned runs", title_justify="left")
    for status in statuses:
        seeds = f"{status.seeds_done}/{status.planned.seeds}"
        hours = f"{status.cpu_hours_left:.3f}"
        table.add_row(status.planned.spec.title, status.state, seeds, hours, str(status.directory))
    console.print(table)
    total = sum(status.cpu_hours_left for status in statuses)
    console.print(f"{total:.3f} CPU-hours left in all, from measured rates")


def print_summary(statuses: Sequence[Status], trained: int, console: Console) -> None:
    """Say in a line what was done, and list every run that is not done, with its directory."""
    done = [status for status in statuses if status.state == "done"]
    console.print(f"{len(done)} of {len(statuses)} runs done ({trained} computed now, {len(done) - trained} before)")
    for status in statuses:
        if status.state != "done":
            console.print(f"{status.state}: {status.planned.spec.title}", soft_wrap=True, markup=False)
            console.print(f"  {status.error or _REASONS[status.state]}", soft_wrap=True, markup=False)
            console.print(f"  in {status.directory}", soft_wrap=True, markup=False)


_REASONS = {
    "busy": "another process is at work on this run; it was left to it",
    "resumable": "stopped before its end; the same command takes it up again",
    "missing": "was not started",
    "failed": "failed",
}
