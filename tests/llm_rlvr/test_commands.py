"""The command lines, as a user types them, with the tiny model."""

import json
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from common.launch.main import main


def command(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    root = str(Path(__file__).parents[2])
    return subprocess.run(
        [sys.executable, "-m", *words],
        cwd=cwd,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": root, "HOME": str(cwd), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("rlvr")
    for experiment in ("learning", "candidate_logprob"):
        done = command("llm_rlvr", f"experiment={experiment}", "preset=smoke", "seeds=1", "workers=1", cwd=folder)
        assert done.returncode == 0, done.stderr
    return folder


def test_the_smoke_preset_leaves_whole_runs(trained):
    runs = [json.loads(path.read_text()) for path in trained.glob("runs/llm_rlvr/language/*/record.json")]
    assert len(runs) == 6
    for path in trained.glob("runs/llm_rlvr/language/*/metrics-*.parquet"):
        table = pd.read_parquet(path)
        assert table.test_reward.notna().sum() >= 2
        assert (table.reward.dropna().between(0, 1)).all()
    assert not list(trained.glob("runs/llm_rlvr/language/*/checkpoint*"))


def test_a_second_time_computes_nothing(trained):
    again = command("llm_rlvr", "experiment=learning", "preset=smoke", "seeds=1", cwd=trained)
    assert again.returncode == 0
    assert "0 computed now" in again.stdout


def test_the_figures_are_drawn(trained):
    drawn = command("figures", "fig09", "candidate_logprob", cwd=trained)
    assert drawn.returncode == 0, drawn.stderr
    for name in ("fig09", "candidate_logprob"):
        assert (trained / "out" / f"{name}.png").stat().st_size > 10_000


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["task=sums"], "error: task: 'sums' is unknown; choose from chain_sum, graph_color, gsm8k, knights_knaves"),
        (["model=smollm3"], "error: model: 'smollm3' is unknown; choose from tiny_qwen3, smollm2"),
        (["micro_batch=3"], "error: micro_batch: 3 does not divide batch=2; 2 fits"),
        (["candidates=1"], "error: candidates: 1 is not allowed; it must be at least 2"),
        (["temperature=0.5"], "error: temperature, top_p, top_k: 0.5, 1.0, 0 sample from another distribution"),
        (["engine=vllm", "device=cpu", "dry_run=false"], "error: engine: vllm needs a GPU in training"),
        (["stack=2"], "error: stack: 2 is not allowed"),
        (["candidate_logprob=max"], "error: candidate_logprob: 'max' is not allowed; choose from mean, sum"),
        (["task_options.digits=2"], "unknown key 'task_options.digits'"),
    ],
)
def test_mistakes_are_one_line(trained, monkeypatch, capsys, words, said):
    monkeypatch.chdir(trained)
    assert main("llm_rlvr", ["preset=smoke", "dry_run=true", *words]) == 2
    told = capsys.readouterr().err
    assert said in told
    assert len(told.strip().splitlines()) == 1
