import io
import json
import os
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest
import torch
import yaml
from fake_training import Interruption, Walk, stopping_at, work

from common.errors import UserError
from common.runs.execute import execute
from common.runs.files import read_json, remove_leftovers, write_bytes, write_json
from common.runs.identity import SCHEMA
from common.runs.provenance import commit, machine, versions
from common.runs.settings import require, require_choice
from common.runs.store import Block, RunStore, block_bytes, is_locked, parquet_bytes, read_run, write_record
from common.runs.trainer import Records


def message_of(error: pytest.ExceptionInfo[UserError]) -> str:
    """Return the message, which must be one line."""
    text = str(error.value)
    assert len(text.splitlines()) == 1
    return text


@pytest.fixture
def done(place):
    execute(work(4, stack=2), place.store)
    return place


# Reading.


def test_find(place) -> None:
    assert place.store.find(work().spec) is None
    execute(work(), place.store)
    run = place.store.find(work().spec)
    assert (run.directory, run.track, run.experiment, run.key) == (
        place.directory,
        "tests",
        "walk",
        work().spec.key,
    )
    assert place.store.find(work(settings=Walk(steps=5)).spec) is None


@pytest.mark.parametrize("damage", ["half", "empty", "missing", "another's"])
def test_damaged_metrics_are_never_read(done, damage: str) -> None:
    path = done.directory / "metrics-2-3.parquet"
    content = {
        "half": path.read_bytes()[: path.stat().st_size // 2],
        "empty": b"",
        "another's": (done.directory / "metrics-0-1.parquet").read_bytes(),
    }
    if damage in content:
        path.write_bytes(content[damage])
    else:
        path.unlink()
    run = read_run(done.directory)
    for seeds in (None, 4, 3):
        with pytest.raises(UserError, match="run the experiment again") as error:
            run.metrics(seeds)
        assert message_of(error).startswith(f"{path}: damaged or missing")
    assert sorted(set(run.metrics(seeds=2)["seed"])) == [0, 1]


def test_seeds_that_are_not_there(place, done) -> None:
    assert sorted(set(read_run(done.directory).metrics(seeds=100)["seed"])) == [0, 1, 2, 3]
    assert read_run(done.directory).metrics(seeds=3)["seed"].max() == 2
    (done.directory / "record.json").unlink()
    with pytest.raises(UserError, match="holds no finished seeds") as error:
        read_run(done.directory).metrics()
    assert str(done.directory) in message_of(error)


RECORDS = {
    "cut": lambda text: text[: len(text) // 2],
    "empty": lambda text: "",
    "text": lambda text: "no record",
    "list": lambda text: "[]",
    "number": lambda text: "7",
    "string": lambda text: '"blocks"',
    "false": lambda text: "false",
    "no blocks": lambda text: "{}",
    "blocks of another kind": lambda text: '{"blocks": 5}',
    "a block of another kind": lambda text: '{"blocks": [5]}',
    "a block without file": lambda text: text.replace('"file"', '"name"'),
    "a key of a later version": lambda text: text.replace('"preset"', '"energy": 3, "preset"'),
    "a null byte": lambda text: text.replace("{", "{\x00", 1),
}


@pytest.mark.parametrize("spoil", RECORDS.values(), ids=RECORDS)
def test_a_spoilt_record_is_one_line(done, spoil: Callable[[str], str]) -> None:
    path = done.directory / "record.json"
    path.write_text(spoil(path.read_text()))
    for read in (
        lambda: read_run(done.directory),
        lambda: list(done.store.runs()),
        lambda: done.store.find(work().spec),
        lambda: execute(work(4), done.store),
    ):
        with pytest.raises(UserError) as error:
            read()
        assert message_of(error).startswith(f"{path}: ")
        assert "remove it" in message_of(error)
    assert not is_locked(done.directory)


def test_a_record_that_is_no_text(done) -> None:
    (done.directory / "record.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match="cannot be read") as error:
        read_run(done.directory)
    message_of(error)
    (done.directory / "record.json").unlink()
    (done.directory / "record.json").mkdir()
    with pytest.raises(UserError, match="cannot be read") as error:
        read_run(done.directory)
    message_of(error)


CONFIGS = {
    "cut": lambda content: content[:40],
    "empty": lambda content: b"",
    "text": lambda content: b"just a word",
    "list": lambda content: b"- 1\n- 2\n",
    "number": lambda content: b"7",
    "binary": lambda content: b"\x89PNG\r\n\x1a\n\x00\xff\xfe",
    "latin-1": lambda content: "schema: \xe4".encode("latin-1"),
    "unclosed": lambda content: b"schema: [1, 2\nsettings: {",
    "tabs": lambda content: b"schema:\n\t- 1",
    "python": lambda content: b"!!python/object/apply:os.system ['touch pwned']",
    "without schema": lambda content: content.replace(b"schema: 1\n", b""),
    "without settings": lambda content: content[: content.index(b"settings")],
}


@pytest.mark.parametrize("spoil", CONFIGS.values(), ids=CONFIGS)
def test_spoilt_settings_are_one_line(done, spoil: Callable[[bytes], bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(done.directory)
    path = done.directory / "config.yaml"
    path.write_bytes(spoil(path.read_bytes()))
    for read in (lambda: read_run(done.directory), lambda: list(done.store.runs())):
        with pytest.raises(UserError, match="not a run's settings") as error:
            read()
        assert message_of(error).startswith(f"{path}: ")
    assert not Path("pwned").exists()


@pytest.mark.parametrize("schema", [SCHEMA + 1, 0, "two", None])
def test_another_version_of_the_store(done, schema: object) -> None:
    path = done.directory / "config.yaml"
    path.write_text(yaml.safe_dump({**yaml.safe_load(path.read_text()), "schema": schema}))
    with pytest.raises(UserError) as error:
        read_run(done.directory)
    assert message_of(error) == (
        f"{done.directory}: written with store schema {schema}; this version reads schema {SCHEMA}"
    )


def test_states(place) -> None:
    states = []

    def note(step: int) -> None:
        states.append(read_run(place.directory).state)

    place.directory.mkdir(parents=True)
    place.store.prepare(work().spec)
    assert read_run(place.directory).state == "empty"
    execute(work(before_step=note), place.store)
    assert set(states) == {"running"}
    assert read_run(place.directory).state == "done"
    with pytest.raises(Interruption):
        execute(work(4, before_step=stopping_at(8)), place.store)
    assert read_run(place.directory).state == "unfinished"


# Finding runs.


def test_runs_are_found_in_order_and_by_name(tmp_path: Path) -> None:
    store = RunStore(tmp_path / "runs")
    for steps in (3, 5):
        execute(work(settings=Walk(steps=steps)), store)
    assert [run.settings["steps"] for run in store.runs()] == [3, 5]
    assert [run.settings["steps"] for run in store.runs("tests", "walk")] == [3, 5]
    assert list(store.runs("bandits")) == []
    assert list(store.runs("tests", "run")) == []


def test_what_is_no_run_is_passed_over(done) -> None:
    root = done.store.root
    for path in (
        ".hydra/multirun.yaml",
        ".hydra/config.yaml",
        ".hydra/0/config.yaml",
        "tests/config.yaml",
        "tests/walk/config.yaml",
        "tests/walk/notes.txt",
        "tests/walk/empty/nothing",
        f"tests/walk/{done.directory.name}/wandb/offline-run/files/config.yaml",
        "tests/walk/.DS_Store",
        "README.md",
    ):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text("hydra: {}\n")
    assert [run.directory for run in RunStore(root).runs()] == [done.directory]


def test_hydras_folder_is_never_a_track(done) -> None:
    path = done.store.root / ".hydra" / "sweep" / "0" / "config.yaml"
    path.parent.mkdir(parents=True)
    path.write_text("hydra: {}\n")
    assert [run.directory for run in done.store.runs()] == [done.directory]


def test_stores_that_are_none(tmp_path: Path) -> None:
    assert list(RunStore(tmp_path / "missing").runs()) == []
    assert not (tmp_path / "missing").exists()
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="is a file; give a directory") as error:
        list(RunStore(tmp_path / "file").runs())
    message_of(error)


# Files.


def test_writing_is_all_or_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "deep" / "er" / "file"
    write_bytes(path, b"old")

    def fail(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    for broken in ("fsync", "replace"):
        with monkeypatch.context() as context:
            context.setattr(os if broken == "fsync" else Path, broken, fail)
            with pytest.raises(UserError, match="No space left on device") as error:
                write_bytes(path, b"new")
            assert str(path) in message_of(error)
        assert path.read_bytes() == b"old"
        assert [item.name for item in path.parent.iterdir()] == ["file"]


def test_writing_below_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"choose a writable store=$") as error:
        write_json(tmp_path / "file" / "record.json", {})
    message_of(error)


def test_reading_json(tmp_path: Path) -> None:
    assert read_json(tmp_path / "missing" / "file") is None
    write_json(tmp_path / "file", {"a": [1, None, "ü"]})
    assert read_json(tmp_path / "file") == {"a": [1, None, "ü"]}
    assert read_json(tmp_path / "file" / "below") is None
    (tmp_path / "file").write_text('{"a": ')
    with pytest.raises(UserError, match="cannot be read") as error:
        read_json(tmp_path / "file")
    message_of(error)


def test_only_leftovers_are_removed(tmp_path: Path) -> None:
    kept = [".lock", "config.yaml", "record.json", "metrics-0-1.parquet", "checkpoint-0-1.pt", ".hidden"]
    for name in [*kept, ".record.json.x7", ".checkpoint-0-1.pt.0f"]:
        (tmp_path / name).touch()
    (tmp_path / ".a.directory").mkdir()
    remove_leftovers(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*kept, ".a.directory"])


# The record and the metrics.


def test_the_record_lists_blocks_in_order(done) -> None:
    blocks = read_run(done.directory).blocks
    assert [block.seeds for block in blocks] == [range(2), range(2, 4)]
    write_record(done.directory, blocks[::-1])
    assert read_run(done.directory).blocks == blocks
    assert json.loads((done.directory / "record.json").read_text())["schema"] == SCHEMA
    assert all(isinstance(block, Block) and block_bytes(done.directory, block) for block in blocks)


def test_metrics_are_tidy() -> None:
    values = torch.tensor([[1.0, 2.0], [3.0, float("nan")], [5.0, 6.0]], dtype=torch.float64)
    records = Records(torch.tensor([0, 200]), {"error": values, "count": values.nan_to_num().float()})
    content = parquet_bytes(records, range(4, 7))
    assert content == parquet_bytes(records, range(4, 7))
    table = pq.read_table(io.BytesIO(content))
    assert {name: str(kind) for name, kind in zip(table.schema.names, table.schema.types, strict=True)} == {
        "seed": "int32",
        "step": "int32",
        "error": "double",
        "count": "float",
    }
    expected = pd.DataFrame({"seed": [4, 4, 5, 5, 6, 6], "step": [0, 200] * 3, "error": [1, 2, 3, float("nan"), 5, 6]})
    pd.testing.assert_frame_equal(table.to_pandas()[["seed", "step", "error"]], expected, check_dtype=False)


def test_metrics_of_every_memory_layout() -> None:
    values = torch.arange(6.0).reshape(2, 3)
    turned = values.T.contiguous().T
    assert not turned.is_contiguous()
    steps = torch.arange(3)
    assert parquet_bytes(Records(steps, {"a": turned}), range(2)) == parquet_bytes(
        Records(steps, {"a": values}), range(2)
    )


def test_provenance() -> None:
    assert set(versions()) == {"python", "torch", "numpy"}
    assert machine(torch.device("cpu")).startswith("cpu: ")
    assert len(commit().removesuffix("+changes")) == 12 or commit() == "unknown"


# Settings.


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 0, -1, -1e-300])
def test_what_is_not_above_the_bound_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match=rf"^step_size: {value} is not allowed; it must be"):
        require("step_size", value, above=0)


def test_bounds_belong_to_what_is_at_least(tmp_path: Path) -> None:
    require("steps", 1, at_least=1)
    require("step_size", 1e-300, above=0)
    require("baseline", -5.0)
    with pytest.raises(ValueError, match=r"^steps: 0 is not allowed; it must be at least 1$"):
        require("steps", 0, at_least=1)


def test_choices() -> None:
    require_choice("dtype", "a", ("a", "b"))
    with pytest.raises(ValueError, match=r"^dtype: 'c' is not allowed; choose from a, b$"):
        require_choice("dtype", "c", ("a", "b"))
