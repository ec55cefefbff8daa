"""Export and import: what arrives is what left, and nothing half-way."""

import zipfile
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch

from bandits.single_context import SingleContext, SingleContextTrainer
from common.errors import UserError
from common.runs.__main__ import main
from common.runs.archive import export_runs, import_runs
from common.runs.execute import Work, execute
from common.runs.identity import RunSpec
from common.runs.store import RunStore
from common.runs.trainer import Records


@dataclass(frozen=True)
class Counting:
    objective: str = "tpo"
    options: dict = field(default_factory=dict)
    steps: int = 3


class CountingTrainer:
    """Metric ``value`` is scale·(seed + 1) + step."""

    def __init__(self, seeds, steps, scale):
        self.seeds, self.steps, self.scale, self.step = list(seeds), steps, scale, 0

    def advance(self, stop):
        steps = torch.arange(self.step, stop)
        self.step = stop
        return Records(steps, {"value": self.scale * (torch.tensor(self.seeds)[:, None] + 1) + steps})

    def state_dict(self):
        return {}

    def load_state_dict(self, state):
        pass


def fill(root: Path, seeds: int, stack: int | None = None, scale: float = 100.0, objective: str = "tpo") -> RunStore:
    store = RunStore(root)
    spec = RunSpec("tests", "counting", Counting(objective))
    make = lambda wanted: CountingTrainer(wanted, 3, scale)  # noqa: E731
    execute(Work(spec, seeds, make, torch.device("cpu"), preset="paper", stack=stack), store)
    return store


def only_run(store):
    (run,) = store.runs()
    return run


def test_what_arrives_is_what_left(tmp_path):
    source = fill(tmp_path / "source", 4, stack=2)
    assert export_runs(source.runs(), tmp_path / "runs.zip") == 1
    target = RunStore(tmp_path / "target")
    assert import_runs(tmp_path / "runs.zip", target) == (1, 4)
    sent, received = only_run(source), only_run(target)
    assert received.blocks == sent.blocks
    assert received.settings == sent.settings
    assert received.metrics().equals(sent.metrics())
    assert import_runs(tmp_path / "runs.zip", target) == (1, 0)


def test_the_same_runs_give_the_same_file(tmp_path):
    store = fill(tmp_path / "store", 2)
    for name in ("one.zip", "two.zip"):
        export_runs(store.runs(), tmp_path / name)
    assert (tmp_path / "one.zip").read_bytes() == (tmp_path / "two.zip").read_bytes()


def test_only_missing_seeds_are_taken_and_the_run_can_go_on(tmp_path):
    export_runs(fill(tmp_path / "source", 5).runs(), tmp_path / "runs.zip")
    target = fill(tmp_path / "target", 2)
    before = list(only_run(target).blocks)
    assert import_runs(tmp_path / "runs.zip", target) == (1, 3)
    run = only_run(target)
    assert run.seeds == [0, 1, 2, 3, 4]
    assert run.blocks[0] == before[0]
    metrics = run.metrics()
    assert metrics["value"].tolist() == [100.0 * (seed + 1) + step for seed in range(5) for step in range(3)]
    fill(tmp_path / "target", 6)
    assert only_run(target).seeds == [0, 1, 2, 3, 4, 5]


def test_a_damaged_block_in_the_store_is_replaced(tmp_path):
    export_runs(fill(tmp_path / "source", 2).runs(), tmp_path / "runs.zip")
    target = fill(tmp_path / "target", 2)
    file = only_run(target).directory / "metrics-0-1.parquet"
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    assert import_runs(tmp_path / "runs.zip", target) == (1, 2)
    assert file.read_bytes() == whole


def test_other_numbers_for_a_seed_are_refused_with_both_records_and_nothing_is_written(tmp_path):
    source = fill(tmp_path / "source", 4)
    export_runs(source.runs(), tmp_path / "runs.zip")
    target = fill(tmp_path / "target", 2, scale=101.0)
    before = only_run(target)
    with pytest.raises(UserError, match="other numbers than the store's for seeds 0 to 1") as caught:
        import_runs(tmp_path / "runs.zip", target)
    assert "\n" not in str(caught.value)
    for run in (source, target):
        (block,) = only_run(run).blocks
        assert f"sha256={block.sha256}" in str(caught.value)
        assert f"finished={block.finished}" in str(caught.value)
    assert only_run(target).blocks == before.blocks
    assert only_run(target).metrics().equals(before.metrics())


def test_the_same_numbers_in_other_blocks_are_no_contradiction(tmp_path):
    export_runs(fill(tmp_path / "source", 4, stack=1).runs(), tmp_path / "runs.zip")
    target = fill(tmp_path / "target", 3, stack=3)
    assert import_runs(tmp_path / "runs.zip", target) == (1, 1)


def test_one_run_that_contradicts_keeps_the_whole_file_out(tmp_path):
    source = fill(tmp_path / "source", 2)
    fill(tmp_path / "source", 2, objective="grpo")
    export_runs(source.runs(), tmp_path / "runs.zip")
    target = fill(tmp_path / "target", 2, scale=101.0)
    with pytest.raises(UserError, match="other numbers"):
        import_runs(tmp_path / "runs.zip", target)
    assert only_run(target).objective == "tpo"


def test_the_command_line_refuses_a_contradiction_in_one_line(tmp_path, capsys):
    export_runs(fill(tmp_path / "source", 2).runs(), tmp_path / "runs.zip")
    fill(tmp_path / "target", 2, scale=101.0)
    assert main(["import", str(tmp_path / "runs.zip"), "--store", str(tmp_path / "target")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error:")
    assert "the file's record" in line
    assert "the store's:" in line


def rewritten(source: Path, target: Path, change) -> Path:
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for name in old.namelist():
            found = change(name, old.read(name))
            if found is not None:
                new.writestr(*found)
    return target


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda name, data: (name, data[: len(data) // 2] if name.endswith("parquet") else data), "checksum"),
        (lambda name, data: (name, b"[" if name.endswith("json") else data), "damaged"),
        (lambda name, data: None if name.endswith("parquet") else (name, data), "damaged"),
        (lambda name, data: (name.replace("counting", "walking"), data), "not a run"),
        (lambda name, data: ("../../" + name.rpartition("/")[2], data), "not a run's place"),
        (lambda name, data: ("a/../" + "/".join(name.split("/")[2:]), data), "not a run's place"),
        (lambda name, data: (name, data.replace(b"schema: 1", b"schema: 9")), "schema"),
        (lambda name, data: (name, data.replace(b'"last_seed": 1', b'"last_seed": 2')), "its seeds are not"),
    ],
)
def test_what_is_not_an_export_is_refused_and_leaves_nothing(tmp_path, change, words):
    export_runs(fill(tmp_path / "source", 2).runs(), tmp_path / "runs.zip")
    broken = rewritten(tmp_path / "runs.zip", tmp_path / "broken.zip", change)
    target = RunStore(tmp_path / "target")
    with pytest.raises(UserError, match=words) as caught:
        import_runs(broken, target)
    assert "\n" not in str(caught.value)
    assert list(target.runs()) == []
    assert not (tmp_path / "config.yaml").exists()


def finished_bandit(store: RunStore) -> RunStore:
    """Write a run of a track that there is: two steps of the single-context bandit."""
    settings = SingleContext(steps=2)
    make = lambda seeds: SingleContextTrainer(settings, seeds, torch.device("cpu"))  # noqa: E731
    execute(Work(RunSpec("bandits", "single_context", settings), 1, make, torch.device("cpu")), store)
    return store


def test_settings_that_are_not_those_of_the_key_are_refused(tmp_path):
    export_runs(finished_bandit(RunStore(tmp_path / "source")).runs(), tmp_path / "runs.zip")
    assert import_runs(tmp_path / "runs.zip", RunStore(tmp_path / "whole")) == (1, 1)
    longer = rewritten(
        tmp_path / "runs.zip",
        tmp_path / "longer.zip",
        lambda name, data: (name, data.replace(b"steps: 2", b"steps: 150")),
    )
    with pytest.raises(UserError, match="its settings have the key"):
        import_runs(longer, RunStore(tmp_path / "target"))
    assert list(RunStore(tmp_path / "target").runs()) == []


def test_an_export_of_nothing_and_of_damage_is_refused(tmp_path):
    with pytest.raises(UserError, match="nothing to export"):
        export_runs([], tmp_path / "runs.zip")
    store = fill(tmp_path / "store", 2)
    run = only_run(store)
    (run.directory / "metrics-0-1.parquet").unlink()
    with pytest.raises(UserError, match=r"metrics-0-1\.parquet: damaged or missing"):
        export_runs([run], tmp_path / "runs.zip")
    assert not (tmp_path / "runs.zip").exists()
