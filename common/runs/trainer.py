"""What an experiment gives to the run store: training that can be stopped after any step and taken up again."""

from dataclasses import dataclass
from typing import Protocol

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
