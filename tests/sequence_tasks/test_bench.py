"""``python -m sequence_tasks.bench`` at toy size."""

import json
import subprocess
import sys

import pytest
import torch

from sequence_tasks import bench
from sequence_tasks.settings import SequenceTask
from sequence_tasks.training import SequenceTrainer


def run(*arguments):
    command = [sys.executable, "-m", "sequence_tasks.bench", *arguments]
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False)


def test_json_lists_both_paths_and_policies():
    result = run("--json", "--rounds", "1", "--batch", "4", "--cases", "tpo", "dg")
    assert result.returncode == 0, result.stderr
    rows = json.loads(result.stdout)
    found = [(row["objective"], row["policy"], row["path"]) for row in rows]
    assert found == [
        (name, policy, path) for name in ("tpo", "dg") for policy in ("fresh", "solved") for path in ("fast", "plain")
    ]
    for row in rows:
        assert row["cpu_seconds"] > 0
        assert row["sgemm_gflops"] > 1
        assert row["gflops"] == pytest.approx(row["gigaflop"] / row["cpu_seconds"])


def test_a_table_names_what_is_wanted():
    result = run("--rounds", "1", "--batch", "4", "--cases", "tpo")
    assert result.returncode == 0, result.stderr
    for word in ("solved", "≥ 30", "GFLOP/s", "floor"):
        assert word in result.stdout


def test_a_device_that_there_is_not_is_one_line():
    result = run("--device", "tpu")
    assert result.returncode == 2
    assert result.stderr.splitlines() == ["error: device: 'tpu' is not allowed; choose from auto, cpu, cuda, cuda:N"]


@pytest.mark.parametrize("case", ["tpo", "tpo_token"])
def test_a_solved_policy_repeats_itself(case):
    settings = SequenceTask(**({"length": 4, "batch": 20} | bench.CASES[case]))
    trainer = SequenceTrainer(settings, [0], torch.device("cpu"))
    bench.sharpen(trainer)
    (rollout,) = trainer.rollouts()
    same = (rollout.tokens == rollout.tokens[:, :1]).flatten(1).all(1)
    if rollout.picked is not None:
        same = (rollout.picked == rollout.picked[..., :1]).all(-1)
    assert same.double().mean() >= 0.95
