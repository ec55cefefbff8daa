"""However a run is stopped, it ends with the same bytes, and nothing half done passes for done."""

import itertools
import logging
import os
import random
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path

import filelock
import pytest
import torch
from fake_training import Interruption, Walk, in_process, stopping_at, walk_slowly, walk_until, work
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from common.errors import UserError
from common.runs.checkpoint import Checkpoint, load_checkpoint, save_checkpoint, unfinished_blocks
from common.runs.execute import execute
from common.runs.files import sha256
from common.runs.store import BusyError, RunStore, block_bytes, is_locked, lock, read_run

PROPERTY = settings(
    deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
NAMES = {"config.yaml", "record.json", "metrics-0-1.parquet", "metrics-2-2.parquet"}


def stacked(**options):
    """Three seeds in two blocks."""
    return work(3, stack=2, **options)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The bytes of the metrics of a run that nothing stopped, by file name."""
    store = RunStore(tmp_path_factory.mktemp("uninterrupted"))
    execute(stacked(), store)
    directory = store.directory(work().spec)
    return {path.name: path.read_bytes() for path in directory.glob("metrics-*")}


def assert_whole(place, uninterrupted: dict[str, bytes]) -> None:
    assert place.metrics() == uninterrupted
    assert place.names() == NAMES
    assert read_run(place.directory).state == "done"
    assert read_run(place.directory).seeds == [0, 1, 2]
    read_run(place.directory).metrics()


# Within training.


@pytest.mark.parametrize("seconds", [0, 3600])
@pytest.mark.parametrize("step", range(20))
def test_stopped_at_any_step(place, uninterrupted: dict[str, bytes], step: int, seconds: float) -> None:
    before_step = stopping_at(step, step)
    for _ in range(2):
        with pytest.raises(Interruption):
            execute(stacked(before_step=before_step, checkpoint_seconds=seconds), place.store)
    execute(stacked(), place.store)
    assert_whole(place, uninterrupted)


@settings(PROPERTY, max_examples=30)
@given(steps=st.lists(st.integers(0, 19), max_size=12))
def test_stopped_again_and_again(
    tmp_path_factory: pytest.TempPathFactory, uninterrupted: dict[str, bytes], steps: list[int]
) -> None:
    store = RunStore(tmp_path_factory.mktemp("runs"))
    before_step = stopping_at(*steps)
    for _ in range(len(steps) + 1):
        try:
            execute(stacked(before_step=before_step), store)
        except Interruption:
            continue
    directory = store.directory(work().spec)
    assert {path.name: path.read_bytes() for path in directory.glob("metrics-*")} == uninterrupted


# Between any two operations on files.


class Death:
    """After ``left`` more operations on files, none succeeds: the process is dead, the file it was writing is cut."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, left: int) -> None:
        self.left = left
        self.at: str | None = None
        real = {"fsync": os.fsync, "replace": Path.replace, "unlink": Path.unlink}

        def fsync(descriptor: int) -> None:
            if self.left == 0:
                os.ftruncate(descriptor, os.fstat(descriptor).st_size // 2)
            self._count("fsync")

        def replace(path: Path, target: Path) -> Path:
            self._count(f"replace {target.name}")
            return real["replace"](path, target)

        def unlink(path: Path, missing_ok: bool = False) -> None:
            self._count(f"unlink {path.name}")
            real["unlink"](path, missing_ok)

        monkeypatch.setattr(os, "fsync", fsync)
        monkeypatch.setattr(Path, "replace", replace)
        monkeypatch.setattr(Path, "unlink", unlink)

    def _count(self, operation: str) -> None:
        if self.left == 0:
            self.at = self.at or operation
            raise Interruption
        self.left -= 1


def die_after(place, left: int) -> str | None:
    """Execute with ``left`` operations on files; return the one that was not made, None where there was none."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        death = Death(monkeypatch, left)
        try:
            execute(stacked(checkpoint_seconds=0), place.store)
        except Interruption:
            return death.at
    return None


def test_stopped_at_any_operation_on_a_file(place, uninterrupted: dict[str, bytes], tmp_path: Path) -> None:
    seen = []
    for left in itertools.count():
        place = type(place)(tmp_path / str(left))
        died_at = die_after(place, left)
        if died_at is None:
            break
        seen.append(re.sub(r"fsync.*", "fsync", died_at))
        for block in read_run(place.directory).blocks if (place.directory / "config.yaml").exists() else ():
            assert (place.directory / block.file).read_bytes() == uninterrupted[block.file]
        execute(stacked(), place.store)
        assert_whole(place, uninterrupted)
    for operation in (
        "fsync",  # a temporary file is left over
        "replace config.yaml",
        "replace checkpoint-0-1.pt",
        "replace checkpoint-previous-0-1.pt",
        "replace metrics-0-1.parquet",
        "replace record.json",  # between the metrics and their record
        "unlink checkpoint-0-1.pt",  # between the record and the end of the checkpoint
        "unlink checkpoint-previous-2-2.pt",
        "unlink progress.json",
    ):
        assert operation in seen


@settings(PROPERTY, max_examples=20)
@given(lives=st.lists(st.integers(0, 40), max_size=8))
def test_stopped_at_operations_on_files_again_and_again(
    place, tmp_path_factory: pytest.TempPathFactory, uninterrupted: dict[str, bytes], lives: list[int]
) -> None:
    place = type(place)(tmp_path_factory.mktemp("runs"))
    for left in lives:
        die_after(place, left)
    execute(stacked(), place.store)
    assert_whole(place, uninterrupted)


def test_a_half_written_file_is_removed_and_never_read(place, uninterrupted: dict[str, bytes]) -> None:
    with pytest.raises(Interruption):
        execute(stacked(before_step=stopping_at(12)), place.store)
    names = (".checkpoint-0-1.pt.0123456789abcdef", ".metrics-0-1.parquet.abc", ".record.json.0", ".config.yaml.1")
    for name in names:
        (place.directory / name).write_bytes(b"half")
    assert read_run(place.directory).blocks == ()
    assert unfinished_blocks(place.directory) == [range(2)]
    execute(stacked(), place.store)
    assert_whole(place, uninterrupted)


def test_metrics_without_record_do_not_count(place, uninterrupted: dict[str, bytes]) -> None:
    execute(stacked(), place.store)
    (place.directory / "record.json").unlink()
    (place.directory / "metrics-0-1.parquet").write_bytes(b"of unknown origin")
    assert read_run(place.directory).state == "empty"
    assert execute(stacked(), place.store) == [range(2), range(2, 3)]
    assert_whole(place, uninterrupted)


def test_a_checkpoint_beside_a_record_is_removed(place, uninterrupted: dict[str, bytes]) -> None:
    execute(stacked(), place.store)
    nothing = Checkpoint(3, {"position": torch.zeros(2), "sum": torch.zeros(2)}, None, 1.0)
    save_checkpoint(place.directory, range(2), nothing)
    save_checkpoint(place.directory, range(2), nothing)
    assert execute(stacked(), place.store) == []
    assert_whole(place, uninterrupted)


# Killed by the system.


def test_killed_at_random_moments(place, another) -> None:
    rng = random.Random(0)
    seeds, steps, kills = 3, 300, 0
    spec = work(settings=Walk(steps=steps)).spec
    directory = place.store.directory(spec)
    for _ in range(200):
        process = in_process(walk_slowly, place.store.root, seeds, steps, 0.002)
        finished = wait_for(lambda process=process: not process.is_alive(), rng.uniform(0.05, 0.45))
        if finished:
            assert process.exitcode == 0
            break
        process.kill()
        process.join()
        kills += 1
        assert wait_for(lambda: not is_locked(directory), 10)  # a child that was being forked may be dying still
        if (directory / "record.json").exists():  # killed between the last write and the end of the process
            assert all(block_bytes(directory, block) is not None for block in read_run(directory).blocks)
    else:
        pytest.fail("no progress is made between kills")
    assert kills >= 2
    execute(work(seeds, settings=Walk(steps=steps)), another.store)
    name = "metrics-0-2.parquet"
    assert (directory / name).read_bytes() == (another.store.directory(spec) / name).read_bytes()
    assert {path.name for path in directory.iterdir()} == {".lock", "config.yaml", "record.json", name}
    assert read_run(directory).blocks[0].resumed


def wait_for(condition: Callable[[], bool], seconds: float = 60) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.01)
    return condition()


# Damaged checkpoints.


def halve(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip_a_bit(path: Path, position: float) -> None:
    content = bytearray(path.read_bytes())
    content[int(position * (len(content) - 1))] ^= 1
    path.write_bytes(content)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "cut in half": halve,
    "empty": lambda path: path.write_bytes(b""),
    "digest only": lambda path: path.write_bytes(path.read_bytes()[:64]),
    "last byte missing": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "one byte more": lambda path: path.write_bytes(path.read_bytes() + b"\0"),
    "bit flipped in the digest": lambda path: flip_a_bit(path, 0),
    "bit flipped in the middle": lambda path: flip_a_bit(path, 0.5),
    "bit flipped at the end": lambda path: flip_a_bit(path, 1),
    "text": lambda path: path.write_text("not a checkpoint\n" * 20),
}


@pytest.fixture
def interrupted(place):
    """Two checkpoints of the first block."""
    with pytest.raises(Interruption):
        execute(stacked(before_step=stopping_at(15)), place.store)
    return place


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_the_previous_checkpoint_stands_in_for_a_damaged_one(
    interrupted, uninterrupted: dict[str, bytes], damage: Callable[[Path], object], caplog: pytest.LogCaptureFixture
) -> None:
    latest = interrupted.directory / "checkpoint-0-1.pt"
    previous = interrupted.directory / "checkpoint-previous-0-1.pt"
    step = load_checkpoint(interrupted.directory, range(2)).step
    damage(latest)
    previous_bytes = previous.read_bytes()
    caplog.set_level(logging.INFO)
    loaded = load_checkpoint(interrupted.directory, range(2))
    assert 0 < loaded.step < step
    assert caplog.messages == [f"{latest} is damaged and is not used; an earlier one is looked for"]
    assert previous.read_bytes() == previous_bytes
    execute(stacked(), interrupted.store)
    assert_whole(interrupted, uninterrupted)


def test_both_checkpoints_damaged_start_anew(
    interrupted, uninterrupted: dict[str, bytes], caplog: pytest.LogCaptureFixture
) -> None:
    for path in interrupted.directory.glob("checkpoint*.pt"):
        halve(path)
    trained: list[range] = []
    execute(stacked(trained=trained), interrupted.store)
    assert trained == [range(2), range(2, 3)]
    assert sum("is damaged and is not used" in message for message in caplog.messages) == 2
    assert not any("resumed" in message for message in caplog.messages)
    assert_whole(interrupted, uninterrupted)


def test_a_damaged_checkpoint_does_not_replace_the_good_one(interrupted) -> None:
    """Killed while the next checkpoint is saved, the one before must still be there."""
    halve(interrupted.directory / "checkpoint-0-1.pt")
    good = load_checkpoint(interrupted.directory, range(2))
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(os, "fsync", lambda descriptor: (_ for _ in ()).throw(Interruption))
        with pytest.raises(Interruption):
            save_checkpoint(interrupted.directory, range(2), good)
    assert load_checkpoint(interrupted.directory, range(2)).step == good.step


def test_a_foreign_pickle_in_a_checkpoint_is_not_run(interrupted, tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "pwned",))

    torch.save(Evil(), tmp_path / "evil.pt")
    body = (tmp_path / "evil.pt").read_bytes()
    (interrupted.directory / "checkpoint-0-1.pt").write_bytes(sha256(body).encode() + body)
    with pytest.raises(Exception, match=r"(?i)weights.only"):
        load_checkpoint(interrupted.directory, range(2))
    assert not (tmp_path / "pwned").exists()


def test_a_checkpoint_holds_what_was_saved(tmp_path: Path) -> None:
    state = {"a": torch.tensor([[1.5, float("nan")]], dtype=torch.float64), "b": torch.arange(3)}
    save_checkpoint(tmp_path, range(4, 6), Checkpoint(17, state, None, 2.25))
    loaded = load_checkpoint(tmp_path, range(4, 6))
    assert (loaded.step, loaded.records, loaded.cpu_seconds) == (17, None, 2.25)
    assert all(torch.equal(loaded.state[key].nan_to_num(), state[key].nan_to_num()) for key in state)
    assert {key: value.dtype for key, value in loaded.state.items()} == {"a": torch.float64, "b": torch.int64}
    assert load_checkpoint(tmp_path, range(4, 7)) is None
    assert unfinished_blocks(tmp_path) == [range(4, 6)]


# Damaged metrics.


@pytest.mark.parametrize("damage", [*DAMAGES.values(), Path.unlink], ids=[*DAMAGES, "missing"])
def test_damaged_metrics_are_computed_anew(
    place, uninterrupted: dict[str, bytes], damage: Callable[[Path], object], caplog: pytest.LogCaptureFixture
) -> None:
    execute(stacked(), place.store)
    path = place.directory / "metrics-0-1.parquet"
    damage(path)
    assert execute(stacked(), place.store) == [range(2)]
    assert caplog.messages == [f"{path} is damaged or missing; seeds 0-1 are computed anew"]
    assert_whole(place, uninterrupted)


# Two at once.


def test_two_processes_at_the_same_run(place, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    process = in_process(walk_until, place.store.root, gate)
    assert wait_for(gate.with_suffix(".halted").exists)
    assert is_locked(place.directory)
    assert read_run(place.directory).state == "running"
    before = place.names()
    with pytest.raises(BusyError, match=rf"^{place.directory}: another process \(process {process.pid}\) is at work"):
        execute(work(), place.store)
    assert place.names() == before
    gate.touch()
    process.join(60)
    assert process.exitcode == 0
    assert not is_locked(place.directory)
    assert read_run(place.directory).state == "done"
    assert execute(work(), place.store) == []


def test_a_killed_process_holds_no_lock(place, another, tmp_path: Path) -> None:
    process = in_process(walk_until, place.store.root, tmp_path / "gate")
    assert wait_for((tmp_path / "gate.halted").exists)
    process.kill()
    process.join()
    assert not is_locked(place.directory)
    assert execute(work(), place.store) == [range(2)]
    execute(work(), another.store)
    assert place.metrics() == another.metrics()


def test_the_lock_ends_with_its_context(tmp_path: Path) -> None:
    held = lock(tmp_path)
    with held:
        assert is_locked(tmp_path)
        with pytest.raises(BusyError):
            lock(tmp_path)
    assert not is_locked(tmp_path)


def test_looking_at_a_run_does_not_keep_others_from_it(tmp_path: Path) -> None:
    """``is_locked`` takes the lock for a moment; whoever comes in that moment must not give up."""
    held = threading.Event()

    def look() -> None:
        with lock(tmp_path):
            held.set()
            time.sleep(0.1)

    thread = threading.Thread(target=look)
    thread.start()
    held.wait()
    with lock(tmp_path):
        pass
    thread.join()


def test_looking_at_a_run_writes_nothing(tmp_path: Path) -> None:
    assert not is_locked(tmp_path)
    assert not is_locked(tmp_path / "missing")
    assert list(tmp_path.iterdir()) == []


def test_a_store_for_reading_only(place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever may not write there may still read."""
    execute(work(), place.store)

    def refuse(lock: filelock.BaseFileLock, *arguments: object, **options: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(filelock.FileLock, "acquire", refuse)
    assert read_run(place.directory).state == "done"
    with pytest.raises(UserError, match=r"cannot be written \(Permission denied\); choose a writable store=$"):
        execute(work(3), place.store)


def test_many_at_once_end_with_one_result(place, another) -> None:
    """Whoever comes first works; the others are turned away or find it done; nothing is damaged."""
    steps = 60
    processes = [in_process(walk_slowly, place.store.root, 2, steps, 0.005) for _ in range(4)]
    for process in processes:
        process.join(60)
    assert sorted(process.exitcode for process in processes)[0] == 0
    execute(work(2, settings=Walk(steps=steps)), another.store)
    spec = work(settings=Walk(steps=steps)).spec
    directory = place.store.directory(spec)
    name = "metrics-0-1.parquet"
    assert {path.name for path in directory.iterdir()} == {".lock", "config.yaml", "record.json", name}
    assert (directory / name).read_bytes() == (another.store.directory(spec) / name).read_bytes()
