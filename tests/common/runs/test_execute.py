import json
import logging
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from fake_training import Interruption, Walk, WalkTrainer, stopping_at, work
from hypothesis import given, settings
from hypothesis import strategies as st

from common.errors import UserError
from common.runs.checkpoint import load_checkpoint, unfinished_blocks
from common.runs.execute import execute, plan_blocks
from common.runs.store import read_run
from common.runs.trainer import NonFiniteError, Records, require_finite

DONE = {"config.yaml", "record.json"}


def test_a_finished_run(place) -> None:
    assert execute(work(3, preset="smoke"), place.store) == [range(3)]
    assert place.names() == DONE | {"metrics-0-2.parquet"}
    (block,) = place.record()
    assert (block["first_seed"], block["last_seed"], block["steps"], block["preset"]) == (0, 2, 20, "smoke")
    assert block["resumed"] is False
    assert block["machine"].startswith("cpu: ")
    assert set(block["versions"]) == {"python", "torch", "numpy"}
    run = read_run(place.directory)
    assert (run.state, run.seeds, run.objective, run.settings["steps"]) == ("done", [0, 1, 2], "tpo", 20)
    frame = run.metrics()
    assert list(frame.columns) == ["seed", "step", "position", "sum"]
    assert frame["seed"].tolist() == [seed for seed in range(3) for _ in range(20)]
    assert frame["step"].tolist() == list(range(20)) * 3
    assert frame["sum"].isna().tolist() == [True, False] * 30


def test_done_is_skipped(place) -> None:
    execute(work(3), place.store)
    before = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in place.directory.glob("[!.]*")}
    trained: list[range] = []
    for seeds in (3, 2, 1):
        assert execute(work(seeds, trained=trained), place.store) == []
    assert trained == []
    assert before == {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in place.directory.glob("[!.]*")}


def test_more_seeds_train_only_those_that_are_missing(place, another) -> None:
    execute(work(5), place.store)
    first = place.metrics()
    trained: list[range] = []
    assert execute(work(10, trained=trained), place.store) == trained == [range(5, 10)]
    assert place.metrics().items() > first.items()
    execute(work(10), another.store)
    whole = read_run(another.directory).metrics()
    assert read_run(place.directory).metrics().equals(whole)
    assert read_run(place.directory).metrics(seeds=7).equals(whole[whole["seed"] < 7])


@pytest.mark.parametrize(
    ("seeds", "stack", "blocks"),
    [
        (5, None, [range(5)]),
        (5, 2, [range(2), range(2, 4), range(4, 5)]),
        (5, 1, [range(i, i + 1) for i in range(5)]),
        (5, 5, [range(5)]),
        (5, 100, [range(5)]),
        (1, None, [range(1)]),
    ],
)
def test_stacks(place, another, seeds: int, stack: int | None, blocks: list[range]) -> None:
    trained: list[range] = []
    assert execute(work(seeds, stack=stack, trained=trained), place.store) == trained == blocks
    execute(work(seeds), another.store)
    assert read_run(place.directory).metrics().equals(read_run(another.directory).metrics())
    assert read_run(place.directory).seeds == list(range(seeds))


@settings(deadline=None, derandomize=True, database=None)
@given(
    wanted=st.integers(1, 30),
    cuts=st.lists(st.integers(0, 30), unique=True).map(sorted),
    kinds=st.lists(st.sampled_from(["done", "unfinished", "nothing"]), min_size=31, max_size=31),
    stack=st.none() | st.integers(1, 8),
)
def test_blocks_cover_what_is_missing(wanted: int, cuts: list[int], kinds: list[str], stack: int | None) -> None:
    pieces = [range(first, last) for first, last in zip([0, *cuts], [*cuts, 31], strict=True) if first < last]
    done = {seed for piece, kind in zip(pieces, kinds, strict=False) if kind == "done" for seed in piece}
    unfinished = [piece for piece, kind in zip(pieces, kinds, strict=False) if kind == "unfinished"]
    missing = set(range(wanted)) - done
    blocks = plan_blocks(missing, unfinished, stack)
    seeds = [seed for block in blocks for seed in block]
    assert len(seeds) == len(set(seeds))
    assert missing <= set(seeds)
    assert done.isdisjoint(seeds)
    for block in blocks:
        resumed = block in unfinished
        assert resumed or stack is None or len(block) <= stack
        assert resumed or missing.issuperset(block)
        assert resumed or not any(set(block) & set(piece) for piece in unfinished)
    assert len(blocks) <= len(unfinished) + len(missing)


@pytest.mark.parametrize("seeds", [1, 3, 4, 5])
@pytest.mark.parametrize("stack", [None, 1])
def test_an_unfinished_block_is_resumed_whole(place, another, seeds: int, stack: int | None) -> None:
    with pytest.raises(Interruption):
        execute(work(4, before_step=stopping_at(9)), place.store)
    assert unfinished_blocks(place.directory) == [range(4)]
    assert read_run(place.directory).state == "unfinished"
    assert read_run(place.directory).seeds == []
    trained: list[range] = []
    execute(work(seeds, stack=stack, trained=trained), place.store)
    assert trained == [range(4), range(4, 5)][: 1 + (seeds > 4)]
    assert [block["resumed"] for block in place.record()] == [True, False][: len(trained)]
    execute(work(max(4, seeds), stack=None), another.store)
    assert read_run(place.directory).metrics().equals(read_run(another.directory).metrics())


def test_an_unfinished_block_beyond_what_is_wanted_is_left(place) -> None:
    execute(work(2), place.store)
    with pytest.raises(Interruption):
        execute(work(4, before_step=stopping_at(9)), place.store)
    trained: list[range] = []
    assert execute(work(2, trained=trained), place.store) == trained == []
    assert unfinished_blocks(place.directory) == [range(2, 4)]
    assert execute(work(6, trained=trained), place.store) == trained == [range(2, 4), range(4, 6)]
    assert place.names() == DONE | {f"metrics-{name}.parquet" for name in ("0-1", "2-3", "4-5")}


@pytest.mark.parametrize(("seconds", "saves"), [(0, True), (3600, False)])
def test_checkpoints_keep_their_distance(place, seconds: float, saves: bool) -> None:
    seen: list[int] = []

    def before_step(step: int) -> None:
        checkpoint = load_checkpoint(place.directory, range(2))
        if checkpoint is not None:
            seen.append(checkpoint.step)

    execute(work(before_step=before_step, checkpoint_seconds=seconds), place.store)
    assert bool(seen) == saves
    assert seen == sorted(seen)
    assert all(step < 20 for step in seen)


def test_checkpoints_and_progress_on_the_way(place, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a clock that every step moves on by 10 s, checkpoints come every 30 s."""
    clock = [0.0]
    monkeypatch.setattr("common.runs.execute.time.monotonic", lambda: clock[0])
    checkpoints, progress = set(), []

    def before_step(step: int) -> None:
        clock[0] += 10
        checkpoint = load_checkpoint(place.directory, range(3))
        checkpoints.add(None if checkpoint is None else checkpoint.step)
        path = place.directory / "progress.json"
        progress.append(json.loads(path.read_text()) if path.exists() else None)

    execute(work(3, before_step=before_step, checkpoint_seconds=30), place.store)
    assert checkpoints == {None, 3, 6, 9, 12, 15, 18}
    assert progress[0] is None
    assert [item["step"] for item in progress[1:]] == list(range(1, 20))
    assert all((item["first_seed"], item["last_seed"], item["steps"]) == (0, 2, 20) for item in progress[1:])
    assert "progress.json" not in place.names()


def test_a_failure_is_told_and_cleared(place) -> None:
    def break_down(step: int) -> float | None:
        return float("nan") if step == 7 else None

    with pytest.raises(NonFiniteError, match=r"^position: not finite at step 7 for seed 0, 1; last good step 6$"):
        execute(work(before_step=break_down), place.store)
    failure = json.loads((place.directory / "failure.json").read_text())
    assert failure["error"] == "NonFiniteError: position: not finite at step 7 for seed 0, 1; last good step 6"
    assert "Traceback" in failure["traceback"]
    assert read_run(place.directory).state == "failed"
    assert not place.metrics()
    assert "record.json" not in place.names()
    assert "progress.json" not in place.names()
    execute(work(), place.store)
    assert place.names() == DONE | {"metrics-0-1.parquet"}
    assert read_run(place.directory).state == "done"


def test_a_failure_keeps_the_blocks_before_it(place) -> None:
    def fail_late(step: int) -> None:
        if (place.directory / "metrics-0-1.parquet").exists() and step == 3:
            raise ValueError("several\nlines")

    with pytest.raises(ValueError, match="several"):
        execute(work(6, stack=2, before_step=fail_late), place.store)
    assert read_run(place.directory).seeds == [0, 1]
    assert json.loads((place.directory / "failure.json").read_text())["error"] == "ValueError: several"
    assert execute(work(2), place.store) == []
    assert read_run(place.directory).state == "unfinished"
    assert execute(work(6, stack=2), place.store) == [range(2, 4), range(4, 6)]


def test_an_old_failure_does_not_outlive_a_new_attempt(place) -> None:
    with pytest.raises(NonFiniteError):
        execute(work(before_step=lambda step: float("inf") if step == 12 else None), place.store)
    with pytest.raises(Interruption):
        execute(work(before_step=stopping_at(15)), place.store)
    assert read_run(place.directory).state == "unfinished"


def test_a_trainer_that_cannot_be_made_is_a_failure(place) -> None:
    def make_trainer(seeds: Any) -> WalkTrainer:
        raise MemoryError("no room")

    with pytest.raises(MemoryError):
        execute(replace(work(), make_trainer=make_trainer), place.store)
    assert read_run(place.directory).state == "failed"


def test_a_store_that_cannot_be_written(tmp_path: Path, place) -> None:
    (tmp_path / "runs").write_text("a file")
    with pytest.raises(UserError, match=rf"^{place.directory}.*: cannot be written \(.*\); choose a writable store=$"):
        execute(work(), place.store)


def test_a_full_disk_is_one_line_and_leaves_nothing_half_done(place, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(UserError, match=r"cannot be written \(No space left on device\)"):
        execute(work(), place.store)
    assert place.names() == set()
    monkeypatch.undo()
    execute(work(), place.store)
    assert place.names() == DONE | {"metrics-0-1.parquet"}


def test_metrics_are_logged_as_means_over_seeds(place) -> None:
    logged: list[tuple[int, dict[str, float]]] = []
    opened: list[tuple[str, range, Path]] = []

    class Log:
        def log(self, step: int, metrics: dict[str, float]) -> None:
            logged.append((step, metrics))

    @contextmanager
    def open_log(spec, seeds, directory):
        opened.append((spec.key, seeds, directory))
        yield Log()

    execute(work(3, open_log=open_log), place.store)
    assert opened == [(work().spec.key, range(3), place.directory)]
    assert [step for step, _ in logged] == list(range(20))
    frame = read_run(place.directory).metrics()
    for step, metrics in logged:
        now = frame[frame["step"] == step]
        assert metrics["position"] == pytest.approx(now["position"].mean(), rel=1e-12)
        assert metrics["position_se"] == pytest.approx(now["position"].std(ddof=0) / 3**0.5, rel=1e-12)
        assert ("sum" in metrics) == (step % 2 == 1)


def test_the_resumed_say_so(place, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with pytest.raises(Interruption):
        execute(work(before_step=stopping_at(2)), place.store)
    execute(work(), place.store)
    (message,) = caplog.messages
    assert message in ("walk tpo: seeds 0-1 resumed at step 1", "walk tpo: seeds 0-1 resumed at step 2")


def test_settings_with_other_numbers_live_elsewhere(place) -> None:
    execute(work(), place.store)
    execute(work(settings=Walk(scale=2.0)), place.store)
    first, second = sorted(place.store.runs(), key=lambda run: run.settings["scale"])
    assert first.directory == place.directory
    assert second.directory.name.startswith("tpo_scale_2.0-")
    assert not first.metrics()["position"].equals(second.metrics()["position"])


def test_joined_records_keep_the_order() -> None:
    parts = [Records(torch.arange(2), {"a": torch.ones(3, 2)}), Records(torch.arange(2, 5), {"a": torch.zeros(3, 3)})]
    joined = Records.join(parts)
    assert joined.steps.tolist() == [0, 1, 2, 3, 4]
    assert joined.metrics["a"].shape == (3, 5)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_what_is_not_finite_is_named(bad: float) -> None:
    values = torch.zeros(3, 2, 2)
    require_finite(values, "gradient", 4, (5, 6, 7))
    values[1, 0, 1] = bad
    with pytest.raises(NonFiniteError, match=r"^gradient: not finite at step 4 for seed 6; last good step 3$"):
        require_finite(values, "gradient", 4, (5, 6, 7))
    with pytest.raises(NonFiniteError, match=r"^gradient: not finite at step 0 for seed 6; no step before it$"):
        require_finite(values, "gradient", 0, (5, 6, 7))
