"""Two processes over gloo take the step that one process takes, with groups whole in each or cut."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.llm_rlvr import tiny_models

ROOT = Path(__file__).parents[2]


def step(folder: Path, objective: str, processes: int, kl: float = 0.1) -> dict[str, torch.Tensor]:
    launch = ["torch.distributed.run", "--standalone", f"--nproc_per_node={processes}"] if processes > 1 else []
    script = ["tests/llm_rlvr/one_step.py", str(folder), objective, str(kl)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    line = [sys.executable, *(["-m", *launch] if launch else []), *script]
    done = subprocess.run(line, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr[-3000:]
    weights: dict[str, torch.Tensor] = torch.load(folder / f"after_{objective}_{processes}.pt", weights_only=True)
    return weights


def assert_same_step(one: dict[str, torch.Tensor], two: dict[str, torch.Tensor]) -> None:
    moved = max(float((one[name] - before).abs().max()) for name, before in tiny_models.model().state_dict().items())
    assert moved > 1e-3
    for name, weights in one.items():
        torch.testing.assert_close(weights, two[name], rtol=0, atol=1e-6, msg=name)


@pytest.mark.parametrize("objective", ["tpo", "grpo_no_kl"])
def test_two_processes_take_the_step_of_one(tmp_path, objective):
    assert_same_step(step(tmp_path, objective, 1), step(tmp_path, objective, 2))


def test_advantages_take_tpos_step_though_processes_cut_the_groups(tmp_path):
    """By TRL's own loss: A = K(q − p) a row, and one update a generation."""
    assert_same_step(step(tmp_path, "tpo", 1, kl=0.0), step(tmp_path, "advantages", 2, kl=0.0))
