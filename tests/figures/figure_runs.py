"""Finished runs of made-up numbers, and the command line that draws them."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch

from common.runs.files import sha256, write_bytes
from common.runs.identity import RunSpec
from common.runs.store import Block, lock, parquet_bytes, write_record
from common.runs.trainer import Records
from sequence_tasks.experiments import resolved
from sequence_tasks.settings import SequenceTask

ROOT = Path(__file__).resolve().parents[2]
_DEFAULTS = {"options": {}, "epochs": None, "matching": "prompt", "allow_unstable": True}
_SETTINGS = {field: getattr(SequenceTask(), field) for field in SequenceTask.__dataclass_fields__}


def put(store, experiment, settings, seeds, metrics, steps, track="bandits"):
    """Write a finished run: metrics by name, [S, n]."""
    spec = RunSpec(track, experiment, settings)
    directory = store.directory(spec)
    with lock(directory):
        store.prepare(spec)
        content = parquet_bytes(Records(steps, metrics), range(seeds))
        name = f"metrics-0-{seeds - 1}.parquet"
        write_bytes(directory / name, content)
        block = Block(
            file=name,
            sha256=sha256(content),
            first_seed=0,
            last_seed=seeds - 1,
            steps=settings.steps,
            preset="paper",
            commit="0123456789ab",
            machine="cpu: test",
            versions={},
            finished="2026-01-01T00:00:00+00:00",
            wall_seconds=1.0,
            cpu_seconds=1.0,
        )
        write_record(directory, [block])
    return directory


def sequence_settings(objective, **settings):
    """Return a run's settings as the command line would make them."""
    config = {**_SETTINGS, **_DEFAULTS, **settings, "objective": objective}
    config |= resolved(config)
    return SequenceTask(**{key: value for key, value in config.items() if key in _SETTINGS})


def falling(seeds, episodes, *, half_way, floor=0.0, start=1.0, noise=0.05, rng=0):
    """Return errors that fall from ``start`` to ``floor``, at half of it after ``half_way`` episodes; [S, T]."""
    draws = np.random.default_rng(rng)
    when = half_way * draws.lognormal(0, noise, (seeds, 1))
    t = np.arange(episodes)
    error = floor + (start - floor) / (1 + np.exp(np.minimum(6 * (t / when - 1), 50)))
    return torch.from_numpy(np.clip(error * draws.lognormal(0, noise, (seeds, episodes)), 0, 1))


def put_sequence(store, objective, error, *, change=None, **settings):
    """Write a finished run of the sequence track whose error is given, [S, T]; ``change`` replaces other metrics."""
    seeds, episodes = error.shape
    chosen = sequence_settings(objective, episodes=episodes, **settings)
    solved = 1 - error ** min(chosen.candidates, 32)
    metrics = {
        "error": error,
        "exact_match_error": error,
        "gradient_norm": 0.1 + error,
        "update_norm": 0.1 + error,
        "all_fail": 1 - solved,
        "success": solved,
        "winner_weight": 0.05 + 0.3 * error,
        "loser_weight": 0.01 + 0.02 * error,
        **(change or {}),
    }
    return put(store, "sequences", chosen, seeds, metrics, torch.arange(episodes), track="sequence_tasks")


def figures(*arguments, cwd=ROOT, environment=None):
    command = [sys.executable, "-m", "figures", *map(str, arguments)]
    return subprocess.run(
        command,
        cwd=cwd,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def rows(*arguments):
    result = figures(*arguments, "--json")
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)
