"""``python -m figures.fidelity`` on synthetic stores."""

import json
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import torch
from figure_runs import ROOT, put, sequence_settings

from common.runs.store import RunStore
from figures import fidelity

CHECKPOINTS = pd.read_csv(ROOT / "figures" / "data" / "artefact_terminal_h5.csv", comment="#")
EPISODES = 400


def put_errors(store, settings, error):
    """Write a finished run with these errors, [S, T]."""
    metrics = {"error": torch.from_numpy(error)}
    put(store, "sequences", settings, len(error), metrics, torch.arange(EPISODES), "sequence_tasks")


def terminal_runs(store, worse=(), seeds=20):
    """Seeds drawn anew from the public code's, their errors at the checkpoints held over the episodes before."""
    generator = np.random.default_rng(0)
    for method, rows in CHECKPOINTS.groupby("method"):
        table = rows.pivot(index="seed", columns="checkpoint", values="error")
        chosen = table.to_numpy()[generator.integers(len(table), size=seeds)]
        error = np.ones((seeds, EPISODES))
        for column, end in enumerate(table.columns):
            error[:, end - 5 : end] = chosen[:, [column]] + (0.3 if method in worse else 0)
        settings = sequence_settings(method, length=5, episodes=EPISODES)
        put_errors(store, settings, error)


def dense_runs(store, slower=1.0, seeds=20):
    steps = {"tpo": ("token", 55), "tpo ": ("sequence", 67), "dg": ("sequence", 186)}
    for name, (level, half) in steps.items():
        settings = sequence_settings(name.strip(), level=level, reward="bag_of_tokens", episodes=EPISODES)
        end = slower * half * np.linspace(0.9, 1.0, seeds)[:, None]
        error = np.where(np.arange(EPISODES) < end, 0.4, 0.001)
        put_errors(store, settings, error)


def run(store):
    command = [sys.executable, "-m", "figures.fidelity", "--store", str(store.root), "--json"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode in (0, 1), result.stderr
    return result.returncode, {(row["what"][:5], row["method"]): row["outcome"] for row in json.loads(result.stdout)}


def test_the_same_distributions_pass(tmp_path):
    store = RunStore(tmp_path / "runs")
    terminal_runs(store)
    dense_runs(store)
    status, outcomes = run(store)
    assert status == 0
    assert [outcomes["termi", name] for name in ("tpo", "grpo", "ppo", "dg")] == ["passes"] * 4
    assert [outcomes["dense", name] for name in ("tpo_token", "tpo", "dg")] == ["passes"] * 3
    assert [outcomes["dense", name] for name in ("grpo_token", "ppo")] == ["reported"] * 2


def test_a_method_that_is_worse_fails(tmp_path):
    store = RunStore(tmp_path / "runs")
    terminal_runs(store, worse=("ppo",))
    dense_runs(store, slower=1.4)
    status, outcomes = run(store)
    assert status == 1
    assert [outcomes["termi", name] for name in ("tpo", "grpo", "ppo", "dg")] == ["passes", "passes", "fails", "passes"]
    assert [outcomes["dense", name] for name in ("tpo_token", "tpo", "dg")] == ["fails"] * 3


def test_without_runs_nothing_passes(tmp_path):
    status, outcomes = run(RunStore(tmp_path / "nothing"))
    assert status == 1
    assert set(outcomes.values()) == {"not run", "reported"}


def test_few_seeds_pass_nothing(tmp_path):
    """They could hardly fail."""
    store = RunStore(tmp_path / "runs")
    terminal_runs(store, seeds=19)
    dense_runs(store, seeds=19)
    status, outcomes = run(store)
    assert status == 1
    assert set(outcomes.values()) == {"not run", "reported"}


def test_permutations():
    few = np.array([1.0, 2, 3, 4])
    assert fidelity.permutation_test(few, few) == 1
    assert fidelity.permutation_test(np.arange(20.0), np.arange(20.0) + 100) < 0.001
    assert fidelity.permutation_test(np.array([5.0, np.inf, np.inf]), np.array([5.0, np.inf, np.inf])) == 1
    # 1 and 2 of 1 ... 20: the mean rank 1.5 is matched by {1, 2} and {19, 20} of 190 pairs
    exact = fidelity.permutation_test(np.arange(3.0, 21), np.array([1.0, 2.0]))
    assert exact == pytest.approx(2 / 190, abs=0.005)
