"""What an experiment gives to the run store: training that can be stopped after any step and taken up again."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from common.errors import UserError


class NonFiniteError(UserError):
    """A loss, gradient or parameter stopped being a finite number; the run stops and nothing is written as done."""


@dataclass(frozen=True)
class Records:
    """Metrics measured at some steps, for each seed."""

    steps: Tensor
    """int64 [n]."""
    metrics: dict[str, Tensor]
    """By name, [S, n]; NaN where a metric is not defined."""

    @staticmethod
    def join(parts: "list[Records]") -> "Records":
        """Concatenate along the steps."""
        return Records(
            torch.cat([part.steps for part in parts]),
            {name: torch.cat([part.metrics[name] for part in parts], 1) for name in parts[0].metrics},
        )


class Trainer(Protocol):
    """A block of seeds trained together.

    ``advance`` must give the same numbers however the way is cut: training to 100 at once, or to 40, saving, loading
    and on to 100.
    """

    step: int
    """Updates done."""
    steps: int
    """Updates in all."""

    def advance(self, stop: int) -> Records:
        """Train until ``stop`` updates are done and return what was measured on the way."""
        ...

    def state_dict(self) -> dict[str, Tensor]:
        """Return everything that ``advance`` depends on, ``step`` excepted."""
        ...

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Take up a saved state."""
        ...


@runtime_checkable
class SelfPacedTrainer(Protocol):
    """A block of seeds trained by a library that runs its own loop and writes its own checkpoints."""

    steps: int
    """Updates in all."""

    def train(self, folder: Path, checkpoint_seconds: float, report: "Report") -> "Outcome":
        """Train to the end, taking up the newest whole checkpoint in ``folder``.

        Args:
            folder: of its checkpoints alone; a subfolder counts as a checkpoint once it holds ``complete.json``.
            checkpoint_seconds: about how often to save.
            report: called with the updates done and what was measured since the last call.
        """
        ...


Report = Callable[[int, Records], None]


@dataclass(frozen=True)
class Outcome:
    """What a self-paced training came to."""

    records: Records
    """All of them, those before a resumption included."""
    resumed: bool
    cpu_seconds_before: float
    """Spent by earlier attempts up to the checkpoint that was taken up."""


def require_finite(value: Tensor, what: str, step: int, seeds: tuple[int, ...]) -> None:
    """Raise NonFiniteError naming the seeds, the step and what is not finite.

    Args:
        value: [S, ...].
        what: its name in the message.
        step: the update that is being made, from 0.
        seeds: the seeds on the leading axis.
    """
    if bool(value.isfinite().all()):
        return
    bad = ~value.isfinite().reshape(len(seeds), -1).all(-1)
    where = ", ".join(str(seed) for seed, is_bad in zip(seeds, bad.tolist(), strict=True) if is_bad)
    last = f"last good step {step - 1}" if step else "no step before it"
    raise NonFiniteError(f"{what}: not finite at step {step} for seed {where}; {last}")
