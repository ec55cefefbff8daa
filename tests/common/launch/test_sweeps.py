"""Sweeps in which something goes wrong: runs that fail, processes that are killed, stores that are damaged."""

import json
import os
import random
import re
import shutil
import signal
import time
from pathlib import Path

import pytest
from command_line import Command, Ended, wait_for

from common.launch.plan import plan_runs
from common.runs.store import RunStore, is_locked

OWN = """
import os
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from common.objectives import Advantage, Objective, PolicyGradient

CALLS = 0

@dataclass(frozen=True)
class Odd(PolicyGradient):
    def __call__(self, logp, logp_old, signal):
        global CALLS
        CALLS += 1
        terms = super().__call__(logp, logp_old, signal)
        if CALLS == 6:
            {at_the_sixth_call}
        return terms

ODD = Objective("odd", "Odd", Advantage(), Odd())
"""


def own_objective(tmp_path: Path, name: str, at_the_sixth_call: str) -> str:
    """Write a module with an objective that does something at its sixth step; return its name for ``objective=``."""
    (tmp_path / f"{name}.py").write_text(OWN.replace("{at_the_sixth_call}", at_the_sixth_call))
    return f"{name}:ODD"


def metrics(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.glob("bandits/*/*/metrics-*"))}


def names(root: Path) -> set[str]:
    return {path.name for path in root.glob("bandits/*/*/*")} - {".lock", "config.yaml", "record.json"}


def alone(root: Path, *arguments: str) -> Ended:
    """Run a command that fills the store ``root / "runs"``."""
    environment = {"HOME": str(root), "OMP_NUM_THREADS": "1", "PATH": os.environ["PATH"]}
    return Command((*arguments, "workers=1", f"store={root / 'runs'}"), root, environment).end()


# Runs that fail.

FAILURES = {
    "not finite": ("terms = terms * torch.nan", "gradient: not finite at step 5 for seed 0, 1, 2, 3; last good step 4"),
    "a gradient not finite": (
        "terms.register_hook(lambda gradient: gradient * torch.nan)",
        "gradient: not finite at step 5 for seed 0, 1, 2, 3; last good step 4",
    ),
    "raises": ('raise ZeroDivisionError("several\\nlines")', "ZeroDivisionError: several"),
    "a wrong shape": ("terms = terms[..., :1, None].expand(5, 7, 9)", "RuntimeError: "),
}


def test_a_failing_run_does_not_stop_the_others(bandits, store: Path, tmp_path: Path) -> None:
    own = {
        name: own_objective(tmp_path, f"own_{number}", code)
        for number, (name, (code, _)) in enumerate(FAILURES.items())
    }
    arguments = ("preset=smoke", f"objective=pg,{','.join(own.values())},tpo")
    ended = bandits(*arguments)
    assert ended.status == 1
    assert ended.stdout.startswith("2 of 6 runs done (2 computed now, 0 before)\n")
    assert "Traceback" not in ended.stdout + ended.stderr
    done = {run.objective: run for run in RunStore(store).runs()}
    assert done["pg"].state == done["tpo"].state == "done"
    for failure, name in own.items():
        reason = FAILURES[failure][1]
        run = done[name]
        assert run.state == "failed"
        assert {path.name for path in run.directory.iterdir()} == {".lock", "config.yaml", "failure.json"}
        told = re.search(
            rf"^failed: single_context {name} steps=30\n  (.*)\n  in {run.directory}$", ended.stdout, re.MULTILINE
        )
        assert told is not None
        assert reason in told[1]
        assert f"single_context {name} steps=30: " in ended.stderr
        assert "Traceback" in json.loads((run.directory / "failure.json").read_text())["traceback"]
    # Mended, the same command computes what is missing.
    for number in range(len(FAILURES)):
        own_objective(tmp_path, f"own_{number}", "pass")
    ended = bandits(*arguments)
    assert (ended.status, ended.stdout) == (0, "6 of 6 runs done (4 computed now, 2 before)\n")
    assert not list(store.glob("bandits/*/*/failure.json"))
    frames = [run.metrics() for run in RunStore(store).runs() if run.objective in ("pg", *own.values())]
    assert len(frames) == 1 + len(FAILURES)
    assert all(frame.equals(frames[0]) for frame in frames)


def test_a_dry_run_shows_what_failed(bandits, tmp_path: Path) -> None:
    own = own_objective(tmp_path, "own_failing", "terms = terms * torch.inf")
    assert bandits("preset=smoke", f"objective={own}").status == 1
    assert re.search(r"steps=30\s+│ failed\s+│ 0/4", bandits("preset=smoke", f"objective={own}", "dry_run=true").stdout)


# Processes that are killed.


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The bytes of the metrics of what ``LONG`` asks for, when nothing stops it."""
    root = tmp_path_factory.mktemp("uninterrupted")
    assert alone(root, *LONG).status == 0
    return metrics(root / "runs")


LONG = ("experiment=multi_context", "objective=tpo,pg", "steps=1500", "seeds=2", "checkpoint_seconds=0")


def under_way(root: Path) -> float:
    """Return when a checkpoint was last written, 0 where there is none."""
    times = [0.0]
    for path in root.glob("bandits/*/*/checkpoint-*.pt"):
        try:
            times.append(path.stat().st_mtime)
        except FileNotFoundError:
            continue
    return max(times)


def test_killed_at_random_moments(start, store: Path, uninterrupted: dict[str, bytes]) -> None:
    rng = random.Random(1)
    kills = 0
    for _ in range(60):
        before = time.time()
        command = start(*LONG)
        wait_for(lambda command=command, before=before: under_way(store) >= before or not command.running)
        time.sleep(rng.uniform(0, 0.4))
        if not command.running:
            break
        command.kill()
        command.end()
        kills += 1
        for run in RunStore(store).runs():
            # A child that was just being forked (git, for the record) may hold the lock for some milliseconds more.
            assert wait_for(lambda run=run: not is_locked(run.directory), 10)
            if run.blocks:
                run.metrics()
    ended = start(*LONG).end()
    assert ended.status == 0
    assert ended.stdout.startswith("2 of 2 runs done")
    assert kills >= 1
    assert metrics(store) == uninterrupted
    assert names(store) == {"metrics-0-1.parquet"}


def test_a_killed_process_group_with_workers(popen, store: Path, uninterrupted: dict[str, bytes]) -> None:
    """As a user types it, with two workers; all processes are killed at once."""
    arguments = (*LONG, "workers=2", f"store={store}")
    process = popen(*arguments)
    assert wait_for(lambda: under_way(store))
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    process = popen(*arguments)
    _, stderr = process.communicate(timeout=120)
    assert process.returncode == 0, stderr
    assert "resumed at step" in stderr
    assert metrics(store) == uninterrupted
    assert names(store) == {"metrics-0-1.parquet"}


def test_a_worker_that_dies_is_told(popen, store: Path, tmp_path: Path) -> None:
    """As the system does when memory runs out."""
    own = own_objective(tmp_path, "own_dying", "os.kill(os.getpid(), 9)")
    process = popen("preset=smoke", f"objective={own}", "steps=30,31", "workers=2", f"store={store}")
    stdout, stderr = process.communicate(timeout=120)
    assert process.returncode == 1
    assert "the sweep was cut short" in stderr
    assert stdout.startswith("0 of 2 runs done")
    assert stdout.count(f"  in {store}") == 2
    assert not names(store) & {"metrics-0-3.parquet"}


def test_interrupted_by_hand(start, store: Path, uninterrupted: dict[str, bytes]) -> None:
    command = start(*LONG)
    assert wait_for(lambda: under_way(store))
    command.kill(signal.SIGINT)
    ended = command.end()
    assert ended.status == 130
    assert ended.stderr.splitlines()[-1] == "interrupted; the same command takes up where it stopped"
    assert "Traceback" not in ended.stderr
    assert not list(store.glob("bandits/*/*/failure.json"))
    assert start(*LONG).end().status == 0
    assert metrics(store) == uninterrupted


# Two at once.


def test_two_processes_at_the_same_run(start, bandits, store: Path, tmp_path: Path) -> None:
    gate, halted = tmp_path / "gate", tmp_path / "halted"
    code = f"Path({str(halted)!r}).touch()\n            while not Path({str(gate)!r}).exists(): time.sleep(0.01)"
    own = own_objective(tmp_path, "own_waiting", code)
    arguments = ("preset=smoke", f"objective={own}")
    first = start(*arguments)
    assert wait_for(halted.exists)
    (tmp_path / "own_waiting.py").write_text((tmp_path / "own_waiting.py").read_text().replace("== 6", "== -1"))
    (directory,) = store.glob("bandits/single_context/*")
    before = {path.name for path in directory.iterdir()}
    second = bandits(*arguments)
    assert second.status == 1
    told = [line for line in second.stderr.splitlines() if "W&B off" not in line]
    assert told == [
        f"single_context {own} steps=30: {directory}: another process (process {first.pid}) is at work on this run;"
        " it was left to it"
    ]
    assert second.stdout.splitlines() == [
        "0 of 1 runs done (0 computed now, 0 before)",
        f"busy: single_context {own} steps=30",
        "  another process is at work on this run; it was left to it",
        f"  in {directory}",
    ]
    assert {path.name for path in directory.iterdir()} == before
    assert "busy" in bandits(*arguments, "dry_run=true").stdout
    gate.touch()
    assert first.end().status == 0
    assert bandits(*arguments).stdout == "1 of 1 runs done (0 computed now, 1 before)\n"
    assert names(store) == {"metrics-0-3.parquet"}


def test_a_lock_of_the_dead_is_free(start, bandits, store: Path, tmp_path: Path) -> None:
    halted = tmp_path / "halted"
    code = f"Path({str(halted)!r}).touch(); time.sleep(0 if Path('gate').exists() else 600)"
    own = own_objective(tmp_path, "own_sleeping", code)
    arguments = ("preset=smoke", f"objective={own}", "checkpoint_seconds=0")
    first = start(*arguments)
    assert wait_for(halted.exists)
    first.kill()
    first.end()
    (run,) = RunStore(store).runs()
    assert run.state == "unfinished"
    own_objective(tmp_path, "own_sleeping", "pass")
    ended = bandits(*arguments)
    assert ended.status == 0
    assert "resumed at step" in ended.stderr
    assert names(store) == {"metrics-0-3.parquet"}
    assert bandits("preset=smoke", "objective=pg").status == 0
    resumed, uninterrupted = metrics(store).values()
    assert resumed == uninterrupted


# Stores that are damaged.


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a finished run."""
    root = tmp_path_factory.mktemp("finished")
    assert alone(root, "preset=smoke", "objective=tpo").status == 0
    return root / "runs"


@pytest.fixture
def smoke(finished: Path, store: Path) -> Path:
    """The directory of a finished run in a store of the test's own."""
    shutil.copytree(finished, store)
    (run,) = RunStore(store).runs()
    return run.directory


def test_metrics_cut_in_half_are_computed_anew(bandits, store: Path, smoke: Path) -> None:
    path = smoke / "metrics-0-3.parquet"
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    assert "missing" in bandits("preset=smoke", "objective=tpo", "dry_run=true").stdout
    ended = bandits("preset=smoke", "objective=tpo")
    assert ended.status == 0
    assert f"{path} is damaged or missing; seeds 0-3 are computed anew" in ended.stderr.splitlines()
    assert path.read_bytes() == whole


@pytest.mark.parametrize("dry_run", ["true", "false"])
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("record.json", b"garbage"),
        ("record.json", b'{"blocks": [{"file": "metr'),
        ("record.json", b"[]"),
        ("record.json", b"\xff\xfe"),
        ("config.yaml", b"garbage"),
        ("config.yaml", b"\x89PNG\x00\xff"),
        ("config.yaml", b"{unclosed: ["),
        ("config.yaml", None),
        ("failure.json", b"{"),
    ],
)
def test_garbage_is_one_line(bandits, smoke: Path, name: str, content: bytes | None, dry_run: str) -> None:
    path = smoke / name
    path.write_bytes(path.read_bytes().replace(b"schema: 1", b"schema: 99") if content is None else content)
    ended = bandits("preset=smoke", "objective=tpo", f"dry_run={dry_run}")
    assert ended.status == 2
    assert ended.stdout == ""
    (line,) = ended.stderr.splitlines()
    assert line.startswith(f"error: {smoke}")
    assert content is None or name in line
    assert content is not None or "schema 99; this version reads schema 1" in line


def test_a_damaged_checkpoint_is_told(start, bandits, store: Path, uninterrupted: dict[str, bytes]) -> None:
    arguments = tuple(argument.replace("tpo,pg", "tpo") for argument in LONG)
    command = start(*arguments)
    assert wait_for(lambda: list(store.glob("bandits/*/*/checkpoint-previous-0-1.pt")) or not command.running)
    command.kill()
    command.end()
    (previous,) = store.glob("bandits/*/*/checkpoint-previous-0-1.pt")
    path = previous.with_name("checkpoint-0-1.pt")
    path.write_bytes(previous.read_bytes()[:1000])
    ended = bandits(*arguments)
    assert ended.status == 0
    told = [line for line in ended.stderr.splitlines() if "damaged" in line]
    assert told == [f"{path} is damaged and is not used; an earlier one is looked for"]
    assert "resumed at step" in ended.stderr
    assert metrics(store).items() <= uninterrupted.items()


def test_every_run_is_planned_where_it_is_stored(smoke: Path, store: Path) -> None:
    (run,) = plan_runs("bandits", ["preset=smoke", "objective=tpo"])
    assert RunStore(store).directory(run.spec) == smoke


def test_files_left_by_a_kill_after_the_last_record_are_removed(bandits, store: Path) -> None:
    """Nothing is left to compute then, and still the next command tidies up."""
    arguments = ("experiment=single_context", "preset=smoke", "objective=tpo")
    assert bandits(*arguments).status == 0
    (directory,) = store.glob("bandits/single_context/*")
    for name in ("checkpoint-0-3.pt", "checkpoint-previous-0-3.pt"):
        (directory / name).touch()
    (directory / "progress.json").write_text('{"pid": 1, "first_seed": 0, "last_seed": 3, "step": 3, "steps": 30}')
    ended = bandits(*arguments)
    assert ended.status == 0
    assert ended.stdout.startswith("1 of 1 runs done (0 computed now, 1 before)")
    assert {path.name for path in directory.iterdir()} - {".lock"} == {
        "config.yaml",
        "record.json",
        "metrics-0-3.parquet",
    }
