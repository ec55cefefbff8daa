"""Bringing a run to the wanted seeds: skip what is done, resume what is half done, train what is missing."""

import logging
import os
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

import torch

from common.runs.checkpoint import (
    Checkpoint,
    block_name,
    checkpoint_folder,
    load_checkpoint,
    remove_checkpoint,
    save_checkpoint,
    unfinished_blocks,
)
from common.runs.files import remove_leftovers, sha256, write_bytes, write_json
from common.runs.identity import RunSpec
from common.runs.provenance import commit, machine, versions
from common.runs.store import Block, RunStore, block_bytes, lock, parquet_bytes, read_run, write_record
from common.runs.trainer import Outcome, Records, SelfPacedTrainer, Trainer

log = logging.getLogger(__name__)

_STRIDE_SECONDS = 0.5
"""How long training goes on, about, between two looks at the clock."""


class MetricsLog(Protocol):
    """Where seed-mean metrics are sent on the way, e.g. W&B."""

    def log(self, step: int, metrics: dict[str, float]) -> None:
        """Take the metrics of one step."""
        ...


@dataclass(frozen=True)
class Work:
    """What is to be done and how; nothing here changes a number."""

    spec: RunSpec
    seeds: int
    """Seeds 0 .. seeds − 1 are wanted."""
    make_trainer: Callable[[Sequence[int]], Trainer | SelfPacedTrainer]
    device: torch.device
    preset: str = "custom"
    stack: int | None = None
    """Seeds trained together; all that are missing where None."""
    checkpoint_seconds: float = 30.0
    open_log: Callable[[RunSpec, Sequence[int], Path], AbstractContextManager[MetricsLog]] | None = None


def execute(work: Work, store: RunStore) -> list[range]:
    """Train the missing seeds, block by block, and return the blocks that were trained.

    Raises:
        BusyError: another process is at work on the run.
        UserError: the store cannot be written, or training met a number that is not finite.
    """
    directory = store.directory(work.spec)
    with lock(directory):
        remove_leftovers(directory)
        store.prepare(work.spec)
        (directory / "failure.json").unlink(missing_ok=True)
        finished = _intact_blocks(directory)
        done = {seed for block in finished for seed in block.seeds}
        resumable = []
        for block in unfinished_blocks(directory):
            if done.isdisjoint(block):
                resumable.append(block)
            else:  # the process was killed between writing the record and removing the checkpoint
                remove_checkpoint(directory, block)
        pending = plan_blocks(set(range(work.seeds)) - done, resumable, work.stack)
        try:
            for seeds in pending:
                finished = [*finished, _train_block(work, seeds, directory)]
                write_record(directory, finished)
                remove_checkpoint(directory, seeds)
        except Exception as error:
            write_json(directory / "failure.json", _failure(error))
            raise
        finally:
            (directory / "progress.json").unlink(missing_ok=True)
    return pending


def plan_blocks(missing: Iterable[int], unfinished: Sequence[range], stack: int | None) -> list[range]:
    """Cut the missing seeds into blocks of consecutive seeds.

    An unfinished block that holds a missing seed is taken up whole, as it was cut; the rest is cut into blocks of at
    most ``stack`` seeds.
    """
    left = set(missing)
    blocks = []
    for block in unfinished:
        if not left.isdisjoint(block):
            blocks.append(block)
            left -= set(block)
    while left:
        first = min(left)
        stop = first
        while stop in left and (stack is None or stop - first < stack):
            stop += 1
        blocks.append(range(first, stop))
        left -= set(range(first, stop))
    return blocks


def _intact_blocks(directory: Path) -> list[Block]:
    intact = []
    for block in read_run(directory).blocks:
        if block_bytes(directory, block) is None:
            log.warning(
                "%s is damaged or missing; seeds %s are computed anew", directory / block.file, block_name(block.seeds)
            )
        else:
            intact.append(block)
    return intact


def _train_block(work: Work, seeds: range, directory: Path) -> Block:
    wall_start, cpu_start = time.monotonic(), time.process_time()
    trainer = work.make_trainer(seeds)
    with _opened_log(work, seeds, directory) as metrics_log:
        if isinstance(trainer, SelfPacedTrainer):
            outcome = _train_self_paced(work, trainer, seeds, directory, metrics_log)
        else:
            outcome = _train_in_strides(work, trainer, seeds, directory, metrics_log, cpu_start)
    content = parquet_bytes(outcome.records, seeds)
    name = f"metrics-{block_name(seeds)}.parquet"
    write_bytes(directory / name, content)
    return Block(
        file=name,
        sha256=sha256(content),
        first_seed=seeds[0],
        last_seed=seeds[-1],
        steps=trainer.steps,
        preset=work.preset,
        commit=commit(),
        machine=machine(work.device),
        versions=versions(),
        finished=datetime.now(UTC).isoformat(timespec="seconds"),
        wall_seconds=round(time.monotonic() - wall_start, 3),
        cpu_seconds=round(outcome.cpu_seconds_before + time.process_time() - cpu_start, 3),
        resumed=outcome.resumed,
    )


def _train_in_strides(
    work: Work, trainer: Trainer, seeds: range, directory: Path, metrics_log: MetricsLog | None, cpu_start: float
) -> Outcome:
    checkpoint = load_checkpoint(directory, seeds)
    parts: list[Records] = []
    cpu_before = 0.0
    if checkpoint is not None:
        trainer.load_state_dict(checkpoint.state)
        trainer.step = checkpoint.step
        parts = [checkpoint.records] if checkpoint.records is not None else []
        cpu_before = checkpoint.cpu_seconds
        log.info("%s: seeds %s resumed at step %d", work.spec.title, block_name(seeds), checkpoint.step)

    def save() -> None:
        joined = Records.join(parts) if parts else None
        spent = cpu_before + time.process_time() - cpu_start
        save_checkpoint(directory, seeds, Checkpoint(trainer.step, trainer.state_dict(), joined, spent))

    for records in _strides(trainer, work.checkpoint_seconds, save, seeds, directory):
        parts.append(records)
        _send(records, metrics_log)
    return Outcome(Records.join(parts), checkpoint is not None, cpu_before)


def _train_self_paced(
    work: Work, trainer: SelfPacedTrainer, seeds: range, directory: Path, metrics_log: MetricsLog | None
) -> Outcome:
    def report(step: int, records: Records) -> None:
        _send(records, metrics_log)
        _report_progress(directory, seeds, step, trainer.steps)

    return trainer.train(checkpoint_folder(directory, seeds), work.checkpoint_seconds, report)


def _strides(
    trainer: Trainer, checkpoint_seconds: float, save: Callable[[], None], seeds: range, directory: Path
) -> Iterator[Records]:
    """Train to the end in strides of about half a second, with a checkpoint whenever enough time has passed."""
    stride, saved_at = 1, time.monotonic()
    while trainer.step < trainer.steps:
        started = time.monotonic()
        yield trainer.advance(min(trainer.step + stride, trainer.steps))
        now = time.monotonic()
        stride = max(1, min(2 * stride, int(stride * _STRIDE_SECONDS / max(now - started, 1e-6))))
        if now - saved_at >= checkpoint_seconds and trainer.step < trainer.steps:
            save()
            saved_at = time.monotonic()
        _report_progress(directory, seeds, trainer.step, trainer.steps)


def _report_progress(directory: Path, seeds: range, step: int, steps: int) -> None:
    progress = {
        "pid": os.getpid(),
        "first_seed": seeds[0],
        "last_seed": seeds[-1],
        "step": step,
        "steps": steps,
    }
    write_json(directory / "progress.json", progress)


def _send(records: Records, metrics_log: MetricsLog | None) -> None:
    """Send mean and standard error over the block's seeds, step by step."""
    if metrics_log is None:
        return
    for column, step in enumerate(records.steps.tolist()):
        summary = {}
        for name, values in records.metrics.items():
            now = values[:, column].double()
            now = now[~now.isnan()]
            if len(now):
                summary[name] = now.mean().item()
                summary[f"{name}_se"] = now.std(correction=0).item() / len(now) ** 0.5
        metrics_log.log(step, summary)


def _opened_log(work: Work, seeds: range, directory: Path) -> AbstractContextManager[MetricsLog | None]:
    return nullcontext() if work.open_log is None else work.open_log(work.spec, seeds, directory)


def _failure(error: Exception) -> dict[str, str]:
    return {
        "error": f"{type(error).__name__}: {error}".splitlines()[0],
        "traceback": traceback.format_exc(),
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
    }
