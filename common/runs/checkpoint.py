"""Checkpoints of unfinished blocks: state and metrics so far, with a checksum; the one before is kept until the next.

A file is the SHA-256 of its body followed by the body, a ``torch.save`` of tensors that is read with
``weights_only=True``. A self-paced trainer has a folder in place of the file, with checkpoints of its library's making.
"""

import io
import logging
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from common.runs.files import sha256, write_bytes
from common.runs.trainer import Records

log = logging.getLogger(__name__)

_DIGEST_LENGTH = 64


@dataclass(frozen=True)
class Checkpoint:
    """Where an unfinished block stands."""

    step: int
    state: dict[str, Tensor]
    records: Records | None
    cpu_seconds: float
    """Spent on the block so far."""


def block_name(seeds: Sequence[int]) -> str:
    """Name a block of consecutive seeds, e.g. ``0-19``."""
    return f"{seeds[0]}-{seeds[-1]}"


def save_checkpoint(directory: Path, seeds: Sequence[int], checkpoint: Checkpoint) -> None:
    """Write the block's checkpoint and keep its predecessor.

    Raises:
        UserError: the file cannot be written.
    """
    body = io.BytesIO()
    records = checkpoint.records
    content = {
        "step": torch.tensor(checkpoint.step),
        "cpu_seconds": torch.tensor(checkpoint.cpu_seconds, dtype=torch.float64),
        "state": checkpoint.state,
        "record_steps": torch.empty(0, dtype=torch.int64) if records is None else records.steps,
        "metrics": {} if records is None else records.metrics,
    }
    torch.save(content, body)
    data = body.getvalue()
    latest, previous = _paths(directory, seeds)
    if latest.exists():
        latest.replace(previous)
    write_bytes(latest, sha256(data).encode() + data)


def load_checkpoint(directory: Path, seeds: Sequence[int]) -> Checkpoint | None:
    """Return the block's newest whole checkpoint, or None; a damaged one is removed with a warning."""
    for path in _paths(directory, seeds):
        if not path.exists():
            continue
        data = path.read_bytes()
        digest, body = data[:_DIGEST_LENGTH], data[_DIGEST_LENGTH:]
        if sha256(body).encode() != digest:
            log.warning("%s is damaged and is not used; an earlier one is looked for", path)
            path.unlink()  # or it would take the earlier one's place when the next is saved
            continue
        content = torch.load(io.BytesIO(body), weights_only=True)
        steps = content["record_steps"]
        return Checkpoint(
            step=int(content["step"]),
            state=content["state"],
            records=Records(steps, content["metrics"]) if len(steps) else None,
            cpu_seconds=float(content["cpu_seconds"]),
        )
    return None


def checkpoint_folder(directory: Path, seeds: Sequence[int]) -> Path:
    """Return where a self-paced trainer keeps the block's checkpoints."""
    return directory / f"checkpoint-{block_name(seeds)}"


def remove_checkpoint(directory: Path, seeds: Sequence[int]) -> None:
    """Remove the block's checkpoints."""
    shutil.rmtree(checkpoint_folder(directory, seeds), ignore_errors=True)
    for path in _paths(directory, seeds):
        path.unlink(missing_ok=True)


def unfinished_blocks(directory: Path) -> list[range]:
    """Return the blocks of seeds that have a checkpoint."""
    blocks = set()
    for path in directory.glob("checkpoint*"):
        match = re.fullmatch(r"checkpoint(?:-previous)?-(\d+)-(\d+)(?:\.pt)?", path.name)
        if match and (path.suffix or any(path.glob("*/complete.json"))):
            blocks.add(range(int(match[1]), int(match[2]) + 1))
    return sorted(blocks, key=lambda block: block.start)


def _paths(directory: Path, seeds: Sequence[int]) -> tuple[Path, Path]:
    name = block_name(seeds)
    return directory / f"checkpoint-{name}.pt", directory / f"checkpoint-previous-{name}.pt"
