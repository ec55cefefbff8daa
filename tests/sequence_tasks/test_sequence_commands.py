"""``python -m sequence_tasks`` as users type it, at toy size: plans, mistakes, failures, kill and resume."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest

from common.errors import UserError
from common.launch.plan import CONFIGS, plan_runs

TINY = ("preset=smoke", "task.length=3", "batch=8", "episodes=6", "seeds=2", "workers=1")
EXPERIMENTS = sorted(path.stem for path in (CONFIGS / "sequence_tasks" / "experiment").glob("*.yaml"))
PRESETS = sorted(path.stem for path in (CONFIGS / "sequence_tasks" / "preset").glob("*.yaml"))


def planned(*arguments):
    return {run.spec.key: run for run in plan_runs("sequence_tasks", arguments)}.values()


def settings(*arguments):
    return [run.spec.settings for run in planned(*arguments)]


@pytest.fixture
def command(tmp_path, environment):
    """Run ``python -m sequence_tasks`` to its end, in a folder of its own."""

    def run(*arguments, store="runs"):
        return subprocess.run(
            [sys.executable, "-m", "sequence_tasks", *arguments, f"store={tmp_path / store}"],
            cwd=tmp_path,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    return run


def test_there_are_the_papers_experiments():
    assert set(EXPERIMENTS) >= {
        "dense_vocabulary",
        "dense_variants",
        "terminal",
        "anchor_ablation",
        "gradient_diagnostics",
        "group_size",
        "zero_variance_masking",
        "gradient_epochs",
        "temperature",
        "dg_epochs",
    }
    assert {"smoke", "quick", "medium", "paper"} == set(PRESETS)


@pytest.mark.parametrize("preset", ["quick", "medium"])
@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_every_experiment_plans_in_every_preset(experiment, preset):
    runs = planned(f"experiment={experiment}", f"preset={preset}")
    assert runs
    assert all(run.seeds >= 2 for run in runs)


@pytest.mark.parametrize(
    ("experiment", "runs", "seeds"),
    [
        ("terminal", 5 * 4 + 2 * 4, 20),
        ("dense_vocabulary", 4 * 4, 20),
        ("anchor_ablation", 5 * 3, 20),
        ("gradient_diagnostics", 3 * 2 + 1, 10),
        ("group_size", 2 * 5, 30),
        ("zero_variance_masking", 3, 30),
        ("gradient_epochs", 2 * 5, 30),
        ("temperature", 5 * 2, 10),
        ("dg_epochs", 2, 20),
    ],
)
def test_paper_sizes(experiment, runs, seeds):
    found = planned(f"experiment={experiment}", "preset=paper")
    assert len(found) == runs
    assert {run.seeds for run in found} == {seeds}


def test_one_run_of_a_sweep_by_name():
    (run,) = planned("experiment=terminal", "task.length=10", "objective=tpo", "preset=paper")
    assert run.spec.changed_settings() == {"objective": "tpo"}  # the defaults are the paper's
    assert run.seeds == 20


def test_what_follows_from_the_objective():
    by_name = {each.objective: each for each in settings("experiment=terminal", "preset=smoke", "matching=prompt")}
    assert {name: each.epochs for name, each in by_name.items()} == {"tpo": 4, "grpo": 4, "ppo": 4, "dg": 1}
    wide = {each.objective: each for each in settings("experiment=terminal", "preset=smoke", "matching=interaction")}
    for name in ("tpo", "grpo"):
        assert wide[name] == by_name[name]
    for name in ("ppo", "dg"):
        assert wide[name].batch == 8 * by_name[name].batch
        assert wide[name].learning_rate == pytest.approx(1e-3 * 8**0.5)


def test_equal_runs_are_one_run():
    """Whatever an objective does not read is not part of its run."""
    tpo, ppo = (
        {run.spec.key for run in planned("experiment=terminal", "task.length=7", f"objective={name}", *extra)}
        for name, extra in (
            ("tpo", ["matching=prompt,interaction"]),
            ("ppo", ["candidates=4,8", "level=token,sequence"]),
        )
    )
    assert len(tpo) == len(ppo) == 1
    (first,) = settings("experiment=dg_epochs", "preset=paper", "epochs=1")
    (second,) = settings("experiment=terminal", "preset=paper", "objective=dg", "task.length=5", "matching=prompt")
    assert first == second


def test_a_dry_run_costs_what_its_size_says(command):
    result = command("experiment=terminal", *TINY, "objective=tpo", "cpu_milliseconds=1000", "dry_run=true")
    assert result.returncode == 0, result.stderr
    assert f"{2 * 6 / 3600:.3f} CPU-hours left in all" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("task.length=0", "task.length: 0 is not allowed; it must be at least 1"),
        ("task.vocabulary=1", "task.vocabulary: 1 is not allowed; it must be at least 2"),
        ("objective=tpo candidates=1", "candidates: 1 is not allowed; it must be at least 2"),
        ("level=token", "level: 'token' is not allowed with reward=terminal, which single tokens do not have"),
        ("objective=dg epochs=4", "epochs: 4 is not allowed; dg is meant for 1 (allow_unstable=true permits)"),
        ("matching=both", "matching: 'both' is not allowed; choose from prompt, interaction"),
        ("compile=maybe", "compile: 'maybe' is not allowed; choose auto, true or false"),
        ("matching=interaction objective=ppo batch=x", "batch: 'x' is not allowed; it must be a whole number"),
        ("epochs=0", "epochs: 0 is not allowed; it must be at least 1"),
        ("task.lenght=5", "task.lenght=5: unknown key 'task.lenght' (did you mean 'task.length'?)"),
        ("experiment=terminals", "experiment: 'terminals' is unknown (did you mean 'terminal'?)"),
    ],
)
def test_a_mistake_is_one_line(command, arguments, message):
    result = command(*arguments.split(), "dry_run=true")
    assert result.returncode == 2
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"error: {message}")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("level=nonsense", "level: 'nonsense' is not allowed; choose from sequence, token"),
        ("candidates=0", "candidates: 0 is not allowed; it must be at least 1"),
        ("candidates=x", "candidates: 'x' is not allowed; it must be a whole number"),
        ("batch=true matching=interaction", "batch: True is not allowed; it must be a whole number"),
        ("learning_rate=-1 matching=interaction", "learning_rate: -1.0 is not allowed; it must be greater than 0"),
        ("allow_unstable=maybe", "allow_unstable: 'maybe' is not allowed; it must be true or false"),
    ],
)
def test_what_an_objective_does_not_read_is_checked_as_typed(arguments, message):
    """PPO reads neither level nor candidates; with interactions matched its batch and rate are derived."""
    with pytest.raises(UserError, match=f"^{re.escape(message)}$"):
        planned("objective=ppo", *arguments.split())


def parquet(root: Path):
    return {path.relative_to(root): path.read_bytes() for path in sorted(root.rglob("*.parquet"))}


def test_killed_and_started_again_gives_the_same_bytes(command, tmp_path, environment):
    arguments = (
        "experiment=terminal",
        *TINY,
        "episodes=60",
        "objective=tpo,grpo",
        "checkpoint_seconds=0.2",
    )
    whole = command(*arguments, store="whole")
    assert whole.returncode == 0, whole.stderr
    line = [sys.executable, "-m", "sequence_tasks", *arguments, f"store={tmp_path / 'killed'}"]
    process = subprocess.Popen(
        line,
        cwd=tmp_path,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    until = time.monotonic() + 60
    while not list((tmp_path / "killed").rglob("checkpoint-*.pt")) and time.monotonic() < until:
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert len(parquet(tmp_path / "killed")) < 2  # it was in the middle
    again = command(*arguments, store="killed")
    assert again.returncode == 0, again.stderr
    assert "resumed at step" in again.stderr
    assert parquet(tmp_path / "killed") == parquet(tmp_path / "whole")


def test_one_failing_run_does_not_end_the_sweep(command):
    result = command(
        "experiment=dense_vocabulary", *TINY, "task.vocabulary=2", "objective=ppo", "learning_rate=1e38,0.001"
    )
    assert result.returncode == 1
    assert "1 of 2 runs done (1 computed now, 0 before)" in result.stdout
    assert "failed: sequences ppo reward=bag_of_tokens" in result.stdout
    assert "learning_rate=1e+38" in result.stdout
    assert "NonFiniteError: update of epoch 0: not finite at step 0 for seed 0, 1; no step before it" in result.stdout


def test_more_seeds_are_added_and_stacks_change_no_draw(command, tmp_path):
    arguments = ("experiment=terminal", *TINY, "objective=tpo", "task.reward=bag_of_tokens")
    for changes in (["seeds=1"], ["seeds=3", "stack=1"]):
        assert command(*arguments, *changes, store="apart").returncode == 0
    assert command(*arguments, "seeds=3", store="together").returncode == 0
    found = []
    for store, files in (("apart", 3), ("together", 1)):
        paths = sorted((tmp_path / store).rglob("*.parquet"))
        assert len(paths) == files
        found.append(pd.concat([pd.read_parquet(path) for path in paths]).sort_values(["seed", "step"]))
    first, second = (each[each["step"] == 0]["error"].to_numpy() for each in found)
    assert (first == second).all()
    assert found[0]["error"].to_numpy() == pytest.approx(found[1]["error"].to_numpy(), abs=0.1)
