"""The command line in several processes, over gloo, and the launchers' configurations."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest
import torch
from accelerate.commands.config.config_args import ClusterConfig, load_config_from_file
from trl import GRPOConfig

from common.launch.main import main
from llm_rlvr.arguments import Placement, training_arguments
from llm_rlvr.settings import LanguageTask

ROOT = Path(__file__).parents[2]
ACCELERATE = ROOT / "configs" / "llm_rlvr" / "accelerate"


def launched(folder: Path, *words: str) -> subprocess.Popen[str]:
    launcher = ["torch.distributed.run", "--standalone", "--nproc_per_node=2", "-m", "llm_rlvr"]
    small = ["experiment=learning", "preset=smoke", "objective=tpo", "seeds=1", "device=cpu"]
    return subprocess.Popen(
        [sys.executable, "-m", *launcher, *small, *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "WANDB_MODE": "disabled"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def metrics(folder: Path) -> pd.DataFrame:
    (path,) = folder.glob("runs/llm_rlvr/language/*/metrics-0-0.parquet")
    return pd.read_parquet(path).drop(columns="sampler_disagreement")


FITTING = ["micro_batch=1", "workers=1", "checkpoint_seconds=0"]


def test_two_processes_train_a_run_and_take_it_up_where_it_was_killed(tmp_path):
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    for folder in (whole, cut):
        folder.mkdir()
    first = launched(whole, *FITTING, "steps=8")
    out, err = first.communicate(timeout=200)
    assert first.returncode == 0, err[-3000:]
    assert "1 of 1 runs done" in out

    killed = launched(cut, *FITTING, "steps=8")
    deadline = time.monotonic() + 120
    while not list(cut.glob("runs/llm_rlvr/language/*/checkpoint-0-0/checkpoint-*/complete.json")):
        assert killed.poll() is None, killed.communicate()[1][-3000:]
        assert time.monotonic() < deadline
        time.sleep(0.01)
    (progress,) = cut.glob("runs/llm_rlvr/language/*/progress.json")
    os.kill(json.loads(progress.read_text())["pid"], signal.SIGKILL)
    killed.communicate(timeout=100)  # the launcher ends the other process
    assert killed.returncode != 0
    assert not list(cut.glob("runs/llm_rlvr/language/*/metrics-*"))

    again = launched(cut, *FITTING, "steps=8")
    _, err = again.communicate(timeout=200)
    assert again.returncode == 0, err[-3000:]
    (record,) = cut.glob("runs/llm_rlvr/language/*/record.json")
    assert json.loads(record.read_text())["blocks"][0]["resumed"]
    pd.testing.assert_frame_equal(metrics(whole), metrics(cut), check_exact=True)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["micro_batch=2", "workers=1"], "error: micro_batch: 2 does not divide batch=2 over 2 processes; 1 fits"),
        (["micro_batch=1", "workers=2"], "error: workers: 2 is not allowed with 2 processes a training; use 1"),
        ([*FITTING, "eval_problems=5"], "error: eval_problems: 5 is not allowed; 2 processes must divide it"),
        ([*FITTING, "processes=4", "batch=4"], "error: processes: 4, but 2 were launched; use accelerate launch"),
    ],
)
def test_mistakes_are_told_once(tmp_path, words, said):
    process = launched(tmp_path, *words)
    _, err = process.communicate(timeout=100)
    assert process.returncode != 0
    assert err.count(said) == 1


@pytest.mark.parametrize("name", ["ddp", "fsdp2", "zero3"])
def test_accelerate_takes_the_configurations(name):
    config = load_config_from_file(str(ACCELERATE / f"{name}.yaml"))
    assert isinstance(config, ClusterConfig)
    assert config.num_processes == 8
    assert config.mixed_precision == "no"  # or it would win over precision=float32
    assert str(config.distributed_type.value) == {"ddp": "MULTI_GPU", "fsdp2": "FSDP", "zero3": "DEEPSPEED"}[name]
    assert config.fsdp_config.get("fsdp_version") == (2 if name == "fsdp2" else None)
    assert config.deepspeed_config.get("zero_stage") == (3 if name == "zero3" else None)


def arguments(folder: Path, engine: str, **changes) -> GRPOConfig:
    settings = LanguageTask(task_options={"data": "x"}, engine=engine, **changes)
    placement = Placement(torch.device("cpu"), 1, "http://localhost:8000")
    return training_arguments(settings, placement, folder, 0, evaluate_first=True)


def test_the_engines_become_trls_own_settings(tmp_path):
    colocated, served = arguments(tmp_path, "vllm"), arguments(tmp_path, "vllm_server")
    assert (colocated.use_vllm, colocated.vllm_mode, colocated.vllm_gpu_memory_utilization) == (True, "colocate", 0.3)
    assert (served.use_vllm, served.vllm_mode, served.vllm_server_base_url) == (True, "server", "http://localhost:8000")
    assert not arguments(tmp_path, "transformers").use_vllm
    for each in (colocated, served):
        assert each.vllm_importance_sampling_correction  # without it the log-probabilities are not compared


def test_an_update_is_one_generation_over_all_processes(tmp_path):
    one, four = arguments(tmp_path, "transformers"), arguments(tmp_path, "transformers", processes=4)
    assert (one.gradient_accumulation_steps, four.gradient_accumulation_steps) == (16, 4)
    assert one.per_device_train_batch_size == four.per_device_train_batch_size == 16
    assert one.steps_per_generation == one.gradient_accumulation_steps


def test_the_server_is_named_or_asked_for(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    line = ["preset=smoke", "dry_run=true", "engine=vllm_server"]
    assert main("llm_rlvr", line) == 2
    assert capsys.readouterr().err.startswith("error: server_url: is needed with engine=vllm_server, e.g. server_url=")
    assert main("llm_rlvr", [*line, "server_url=http://localhost:8000", "processes=2", "micro_batch=1"]) == 0
