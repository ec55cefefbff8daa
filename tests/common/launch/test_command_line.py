"""``python -m bandits``: mistakes in one line, help, dry runs, skipping, and the same bytes every time."""

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
import torch

from common.launch.plan import plan_runs
from common.runs.checkpoint import Checkpoint, save_checkpoint
from common.runs.store import RunStore

MISTAKES = [
    # Keys.
    ("stepz=5", "unknown key 'stepz' (did you mean 'steps'?)"),
    ("objektive=tpo", "(did you mean 'objective'?)"),
    ("eta=2", "(did you mean 'options.eta'?)"),
    ("options.etta=2", "(did you mean 'options.eta'?)"),
    ("foo.bar=1", "unknown key 'foo.bar'"),
    ("+stepz=5", "(did you mean 'steps'?)"),
    ("++stepz=5", "(did you mean 'steps'?)"),
    ("+steps=5", "steps"),
    ("~steps", "~steps: a key cannot be taken out"),
    ("~seeds", "~seeds"),
    ("~options", "~options"),
    ("~store", "~store"),
    ("~experiment", "experiment"),
    ("hydra.nope=5", "nope"),
    ("hydra/launcher=nope", "hydra/launcher/nope"),
    ("track=sequence_tasks", "track: 'sequence_tasks' is not allowed"),
    # Names.
    ("objective=tpoo", "objective: 'tpoo' is unknown (did you mean 'tpo'?)"),
    ("objective=null", "objective: None"),
    ("objective=[tpo,pg]", "objective: ['tpo', 'pg']"),
    ("objective=no_such_module:TPO", "No module named 'no_such_module'"),
    ("objective=os:getcwd", "expected a common.objectives.Objective"),
    ("preset=papr", "preset: 'papr' is unknown (did you mean 'paper'?)"),
    ("experiment=singel_context", "(did you mean 'single_context'?); choose from"),
    ("experiment=single_context,multi_context", "one experiment at a time"),
    ("experiment=", "experiment: '' is unknown"),
    # Options.
    ("objective=tpo options.eta=0", "eta: 0 is not allowed; it must be greater than 0"),
    ("objective=tpo options.eta=nan", "eta: nan"),
    ("objective=tpo options.eta=soft", "eta: 'soft' is not allowed; tpo takes a number"),
    ("objective=tpo options.eta=true", "eta: True is not allowed; tpo takes a number"),
    ("objective=tpo options.anchored=1", "anchored: 1 is not allowed; tpo takes true or false"),
    ("objective=grpo options.eta=1", "eta: grpo has no such option (did you mean 'beta'?); it has beta, clip"),
    ("objective=grpo options.clip=1", "clip: 1 is not allowed"),
    ("objective=tpo +options.etta=1", "etta: tpo has no such option (did you mean 'eta'?)"),
    ("options=null", "options: None is not allowed; set options.NAME=value"),
    ("options=5", "options: 5 is not allowed"),
    # Values.
    ("steps=-5", "steps: -5 is not allowed; it must be at least 1"),
    ("steps=0", "steps: 0"),
    ("steps=abc", "steps: 'abc' is not allowed; it must be a whole number"),
    ("steps=1.5", "steps: 1.5 is not allowed; it must be a whole number"),
    ("steps=true", "steps: True"),
    ("steps=null", "steps: None"),
    ("steps=", "steps: ''"),
    ("actions=1", "actions: 1"),
    ("step_size=0", "step_size: 0.0 is not allowed; it must be greater than 0"),
    ("step_size=nan", "step_size: nan"),
    ("step_size=inf", "step_size: inf"),
    ("dtype=float16", "dtype: 'float16' is not allowed; choose from float32, float64"),
    ("experiment_seed=-1", "experiment_seed: -1"),
    ("seeds=0", "seeds: 0 is not allowed"),
    ("seeds=1.5", "seeds: 1.5"),
    ("seeds=true", "seeds: True"),
    ("stack=0", "stack: 0"),
    ("stack=true", "stack: True"),
    ("stack=many", "stack: 'many'"),
    ("device=nonsense", "device: 'nonsense' is not allowed; choose from auto, cpu, cuda"),
    ("device=null", "device: None"),
    ("device=cuda:99", "device: 'cuda:99' cannot be used"),
    ("workers=0", "workers: 0"),
    ("workers=two", "workers: 'two'"),
    ("checkpoint_seconds=soon", "checkpoint_seconds: 'soon' is not allowed; it must be a number"),
    ("checkpoint_seconds=-1", "checkpoint_seconds: -1"),
    ("cpu_milliseconds=x", "cpu_milliseconds: 'x'"),
    ("dry_run=maybe", "dry_run: 'maybe' is not allowed; it must be true or false"),
    ("store=null", "store: None"),
    ("store=", "store: ''"),
    ("store=5", "store: 5"),
    # Sweeps over what makes no run.
    ("seeds=2,4", "seeds: 2 and 4: it cannot be swept"),
    ("store=a,b", "store: 'a' and 'b'"),
    ("device=cpu,auto", "device"),
    ("dry_run=true,false", "dry_run"),
    # Words that are no overrides.
    ("steps", "expected key=value"),
    ("=5", "5"),
    ("steps=[1,2", "expected key=value"),
    ("steps=5,", "expected key=value"),
    # Data.
    ("experiment=mnist data.source=nope", "data.source=nope"),
    ("experiment=mnist data.source=dir data.dir=/no/such/folder", "data.dir=/no/such/folder"),
    ("experiment=mnist data=null", "data: None is not allowed; set data.NAME=value"),
]


@pytest.mark.parametrize(("arguments", "message"), MISTAKES, ids=[arguments for arguments, _ in MISTAKES])
def test_a_mistake_is_one_line(bandits, tmp_path: Path, arguments: str, message: str) -> None:
    ended = bandits(*arguments.split(), *([] if "objective" in arguments else ["objective=tpo"]))
    assert ended.status == 2
    assert ended.stdout == ""
    (line,) = ended.stderr.splitlines()
    assert line.startswith("error: ")
    assert message in line
    assert not (tmp_path / "runs").exists()
    assert sorted(path.name for path in (tmp_path / "command-0").iterdir()) == ["stderr", "stdout"]


@pytest.mark.parametrize("folder", ["file", "file/below", "file/below/it"])
def test_a_store_that_cannot_be_written(bandits, tmp_path: Path, folder: str) -> None:
    (tmp_path / "file").write_text("a regular file")
    ended = bandits("objective=tpo", "preset=smoke", f"store={tmp_path / folder}")
    assert ended.status == 2
    (line,) = ended.stderr.splitlines()
    assert re.fullmatch(
        rf"error: ({tmp_path}/file/.*: cannot be written \(.*\); choose a writable store="
        rf"|store={tmp_path}/file: is a file; give a directory)",
        line,
    )
    assert (tmp_path / "file").read_text() == "a regular file"


@pytest.mark.parametrize(
    ("arguments", "status"),
    [(["stepz=5"], 2), (["preset=smoke", "objective=tpo", "workers=1"], 0), (["dry_run=true"], 0)],
    ids=["mistake", "run", "dry run"],
)
def test_as_a_user_types_it(popen, tmp_path: Path, arguments: list[str], status: int) -> None:
    process = popen(*arguments, f"store={tmp_path / 'runs'}")
    stdout, stderr = process.communicate(timeout=120)
    assert process.returncode == status, stderr
    assert "Traceback" not in stderr
    assert len(stderr.splitlines()) <= 1
    assert list((tmp_path / "work").iterdir()) == []
    if status == 0:
        assert stdout


def test_at_a_terminal_nothing_is_asked(tmp_path: Path, environment: dict[str, str]) -> None:
    """A terminal where nobody answers gets a bar and no question."""
    controller, terminal = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "bandits", "preset=smoke", "objective=tpo", "workers=1", f"store={tmp_path / 'runs'}"],
        cwd=tmp_path,
        env=environment | {"TERM": "xterm", "PYTHONPATH": str(tmp_path)},
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
    )
    os.close(terminal)
    shown = b""
    while True:
        try:
            shown += os.read(controller, 4096)
        except OSError:
            break
    assert process.wait(120) == 0
    os.close(controller)
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode())
    assert "seed-steps" in text
    assert "1 of 1 runs done (1 computed now, 0 before)" in text
    assert "Traceback" not in text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--help"], ["experiment: ", "preset: paper, quick, smoke", "objective: tpo"]),
        (["--cfg", "job"], ["objective: tpo", "seeds: 100", "store: "]),
        (["-c", "job", "experiment=multi_context", "preset=smoke"], ["experiment: multi_context", "steps: 60"]),
        (["--cfg", "job", "--resolve"], ["objective: tpo"]),
    ],
)
def test_hydras_own_commands(bandits, tmp_path: Path, arguments: list[str], words: list[str]) -> None:
    ended = bandits(*arguments)
    assert (ended.status, ended.stderr) == (0, "")
    assert all(word in ended.stdout for word in words)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    "arguments",
    [["--dry-run"], ["--cfg", "jobb"], ["--cfg", "job", "stepz=5"], ["--cfg", "job", "experiment=nonsense"]],
    ids=" ".join,
)
def test_mistakes_beside_hydras_own_commands(bandits, tmp_path: Path, arguments: list[str]) -> None:
    ended = bandits(*arguments)
    assert ended.status == 2
    assert ended.stdout == ""
    assert ended.stderr
    assert "Traceback" not in ended.stderr
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("flag", ["-m", "--multirun"])
def test_hydras_flag_for_sweeps_changes_nothing(bandits, flag: str) -> None:
    assert bandits(flag, "objective=tpo,pg", "preset=smoke").stdout == "2 of 2 runs done (2 computed now, 0 before)\n"
    assert bandits(flag, "objective=tpoo").status == 2


# What is done, and what would be.


def snapshot(folder: Path) -> dict[Path, tuple[int, bytes | None]]:
    return {
        path: (path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else None)
        for path in [folder, *folder.rglob("*")]
    }


def test_a_dry_run_lists_and_writes_nothing(bandits, store: Path) -> None:
    arguments = ("preset=smoke", "objective=pg,dg,tpo,grpo")
    assert bandits("objective=pg", "preset=smoke").status == 0
    assert bandits("objective=tpo", "preset=smoke", "seeds=2").status == 0
    (dg,) = plan_runs("bandits", ["objective=dg", "preset=smoke"])
    runs = RunStore(store)
    directory = runs.directory(dg.spec)
    directory.mkdir()
    runs.prepare(dg.spec)
    save_checkpoint(directory, range(4), Checkpoint(3, {"logits": torch.zeros(4, 100).double()}, None, 0.1))
    before = snapshot(store)
    ended = bandits(*arguments, "dry_run=true", f"store={store}")
    assert (ended.status, ended.stderr) == (0, "")
    assert snapshot(store) == before
    rows = re.findall(r"single_context (\w+) steps=30\s+│\s+(\w+)\s+│\s+(\d/\d)\s+│\s+(\d+\.\d{3})\s+│", ended.stdout)
    assert [row[:3] for row in rows] == [
        ("pg", "done", "4/4"),
        ("dg", "resumable", "0/4"),
        ("tpo", "missing", "2/4"),
        ("grpo", "missing", "0/4"),
    ]
    assert re.search(r"^\d+\.\d{3} CPU-hours left in all", ended.stdout, re.MULTILINE)


def test_a_dry_run_makes_no_store(bandits, store: Path, tmp_path: Path) -> None:
    assert bandits("dry_run=true").status == 0
    assert not store.exists()
    (tmp_path / "file").write_text("")
    ended = bandits("dry_run=true", f"store={tmp_path / 'file'}")
    assert ended.status == 2
    (line,) = ended.stderr.splitlines()
    assert "is a file; give a directory" in line


def test_cpu_hours_are_as_measured(bandits, store: Path) -> None:
    """Before anything was measured, at the configured rate; then at the measured one."""
    arguments = ("objective=tpo", "steps=1000", "seeds=9", "dry_run=true")
    assert "9.000 CPU-hours left in all" in bandits(*arguments, "cpu_milliseconds=3600").stdout
    assert bandits("objective=tpo", "preset=smoke").status == 0
    (record,) = store.glob("bandits/*/*/record.json")
    record.write_text(re.sub(r'"cpu_seconds": [\d.]+', '"cpu_seconds": 480.0', record.read_text()))
    hours = 480 / (4 * 30) * 9000 / 3600
    assert f"{hours:.3f} CPU-hours left in all" in bandits(*arguments).stdout


def test_paths_are_shown_as_they_are(bandits, tmp_path: Path) -> None:
    """Neither markup nor the table's width takes anything away."""
    folder = tmp_path / "results[bold]" / ("long" * 20)
    stdout = bandits("objective=tpo", "dry_run=true", f'store="{folder}"').stdout
    cells = [line.rsplit("│", 2)[-2].strip() for line in stdout.splitlines() if line.startswith("│")]
    assert "".join(cells) == f"{folder}/bandits/single_context/tpo-cbcff1826e"


def test_done_is_skipped_and_seeds_are_added(bandits, store: Path, tmp_path: Path) -> None:
    arguments = ("preset=smoke", "objective=tpo,grpo", "steps=10")
    first = bandits(*arguments, "seeds=2")
    assert first.stdout == "2 of 2 runs done (2 computed now, 0 before)\n"
    assert first.stderr == "W&B off: no key found; set WANDB_API_KEY or WANDB_MODE=offline\n"
    before = {path: content for path, (_, content) in snapshot(store / "bandits").items()}
    again = bandits(*arguments, "seeds=2")
    assert again.stdout == "2 of 2 runs done (0 computed now, 2 before)\n"
    assert again.stderr == ""
    assert {path: content for path, (_, content) in snapshot(store / "bandits").items()} == before
    assert bandits(*arguments, "seeds=5", "stack=2").status == 0
    assert bandits(*arguments, "seeds=5", f"store={tmp_path / 'other'}").status == 0
    for run, other in zip(RunStore(store).runs(), RunStore(tmp_path / "other").runs(), strict=True):
        assert [block.seeds for block in run.blocks] == [range(2), range(2, 4), range(4, 5)]
        assert [block.seeds for block in other.blocks] == [range(5)]
        pd.testing.assert_frame_equal(run.metrics(), other.metrics(), rtol=1e-9, atol=1e-12)
        assert (run.directory / "metrics-0-1.parquet").read_bytes() == before[run.directory / "metrics-0-1.parquet"]


@pytest.mark.parametrize("experiment", ["single_context", "multi_context"])
def test_the_same_seed_gives_the_same_bytes(bandits, tmp_path: Path, experiment: str) -> None:
    """Twice, with the objectives in another order, and beside others or alone."""
    results = []
    for number, objectives in enumerate(("tpo,grpo,pg", "pg,tpo", "grpo")):
        root = tmp_path / str(number)
        arguments = (f"experiment={experiment}", "preset=smoke", f"objective={objectives}", f"store={root}")
        assert bandits(*arguments).status == 0
        results.append({path.relative_to(root): path.read_bytes() for path in root.glob("bandits/*/*/metrics-*")})
    everything, *others = results
    assert len(everything) == 3
    assert [len(other) for other in others] == [2, 1]
    for other in others:
        assert other.items() <= everything.items()


def test_nothing_is_left_beside_the_runs(bandits, store: Path) -> None:
    assert bandits("preset=smoke", "checkpoint_seconds=0").status == 0
    names = {path.name for path in store.glob("bandits/single_context/*/*")}
    assert names == {".lock", "config.yaml", "record.json", "metrics-0-3.parquet"}
    assert {path.name for path in store.iterdir()} == {"bandits", ".hydra"}
    assert not (store / ".hydra" / "writable").exists()
    assert len(list(RunStore(store).runs())) == 4


def test_the_same_run_twice_in_a_sweep(bandits) -> None:
    ended = bandits("preset=smoke", "objective=tpo,tpo", "options.eta=1,null")
    assert ended.status == 0
    assert ended.stdout == "1 of 1 runs done (1 computed now, 0 before)\n"


def test_wandb_mode_is_checked(bandits, environment: dict[str, str]) -> None:
    environment["WANDB_MODE"] = "onlin"
    ended = bandits("preset=smoke", "objective=tpo")
    assert ended.status == 2
    assert ended.stderr == "error: WANDB_MODE: found 'onlin'; allowed: online, offline, disabled\n"
