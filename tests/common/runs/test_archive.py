"""Export and import: what arrives is what left, and nothing half-way."""

import zipfile
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch

from common.errors import UserError
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
    """Metric ``value`` is 100·seed + step."""

    def __init__(self, seeds, steps):
        self.seeds, self.steps, self.step = list(seeds), steps, 0

    def advance(self, stop):
        steps = torch.arange(self.step, stop)
        self.step = stop
        return Records(steps, {"value": 100.0 * torch.tensor(self.seeds)[:, None] + steps})

    def state_dict(self):
        return {}

    def load_state_dict(self, state):
        pass


def fill(root: Path, seeds: int, stack: int | None = None) -> RunStore:
    store = RunStore(root)
    spec = RunSpec("tests", "counting", Counting())
    make = lambda wanted: CountingTrainer(wanted, 3)  # noqa: E731
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
    assert metrics["value"].tolist() == [100.0 * seed + step for seed in range(5) for step in range(3)]
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


def test_an_export_of_nothing_and_of_damage_is_refused(tmp_path):
    with pytest.raises(UserError, match="nothing to export"):
        export_runs([], tmp_path / "runs.zip")
    store = fill(tmp_path / "store", 2)
    run = only_run(store)
    (run.directory / "metrics-0-1.parquet").unlink()
    with pytest.raises(UserError, match=r"metrics-0-1\.parquet: damaged or missing"):
        export_runs([run], tmp_path / "runs.zip")
    assert not (tmp_path / "runs.zip").exists()
