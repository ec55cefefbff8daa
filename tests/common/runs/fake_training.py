"""Training without learning: a state that depends on every step and draw, and ways to stop it at a chosen moment."""

import multiprocessing
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from common import draws
from common.runs.execute import Work, execute
from common.runs.identity import RunSpec
from common.runs.store import RunStore
from common.runs.trainer import Records, require_finite


@dataclass(frozen=True)
class Walk:
    """Settings."""

    objective: str = "tpo"
    options: Mapping[str, float | bool] = field(default_factory=dict)
    steps: int = 20
    scale: float = 1.0
    experiment_seed: int = 0


class WalkTrainer:
    """A damped random walk [S]; the noise of a step is counted, the sum of all positions depends on the history."""

    def __init__(self, settings: Walk, seeds: Sequence[int], before_step: Callable[[int], float | None]) -> None:
        self.settings = settings
        self.seeds = tuple(seeds)
        self.step = 0
        self.steps = settings.steps
        self._before_step = before_step
        self._position = torch.zeros(len(seeds), dtype=torch.float64)
        self._sum = torch.zeros(len(seeds), dtype=torch.float64)

    def advance(self, stop: int) -> Records:
        steps = torch.arange(self.step, stop)
        positions, sums = [], []
        for step in range(self.step, stop):
            factor = self._before_step(step)
            noise = draws.normal(self.settings.experiment_seed, self.seeds, "walk", step, ())
            self._position = 0.9 * self._position + self.settings.scale * noise * (1.0 if factor is None else factor)
            require_finite(self._position, "position", step, self.seeds)
            self._sum = self._sum + self._position
            positions.append(self._position)
            sums.append(self._sum if step % 2 else torch.full_like(self._sum, torch.nan))
            self.step = step + 1
        return Records(steps, {"position": torch.stack(positions, 1), "sum": torch.stack(sums, 1)})

    def state_dict(self) -> dict[str, Tensor]:
        return {"position": self._position, "sum": self._sum}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self._position, self._sum = state["position"], state["sum"]


class Interruption(BaseException):
    """The end of a process, as far as a test in the same process can have it."""


def work(
    seeds: int = 2,
    *,
    before_step: Callable[[int], float | None] = lambda step: None,
    trained: list[range] | None = None,
    settings: Walk | None = None,
    **options: Any,
) -> Work:
    """Return work on the walk; ``before_step`` may raise or return a factor, ``trained`` takes note of the blocks."""
    settings = settings or Walk()

    def make_trainer(seeds: Sequence[int]) -> WalkTrainer:
        if trained is not None:
            trained.append(range(seeds[0], seeds[-1] + 1))
        return WalkTrainer(settings, seeds, before_step)

    spec = RunSpec("tests", "walk", settings)
    return replace(Work(spec, seeds, make_trainer, torch.device("cpu"), checkpoint_seconds=0), **options)


def stopping_at(*steps: int) -> Callable[[int], None]:
    """Return a hook that interrupts at each of the steps once, in order."""
    left: Iterator[int] = iter(steps)
    following = [next(left, None)]

    def before_step(step: int) -> None:
        if step == following[0]:
            following[0] = next(left, None)
            raise Interruption

    return before_step


def in_process(target: Callable[..., None], *arguments: Any) -> BaseProcess:
    """Start a function of a module in a process of its own."""
    process = multiprocessing.get_context("forkserver").Process(target=target, args=arguments, daemon=True)
    process.start()
    return process


def walk_slowly(store: Path, seeds: int, steps: int, seconds: float) -> None:
    """Execute in a process that is to be killed: every step takes ``seconds``."""
    execute(work(seeds, before_step=lambda step: time.sleep(seconds), settings=Walk(steps=steps)), RunStore(store))


def walk_until(store: Path, gate: Path) -> None:
    """Execute, but halt before step 3 for as long as ``gate`` does not exist; ``gate.halted`` says that it does."""

    def before_step(step: int) -> None:
        if step == 3:
            gate.with_suffix(".halted").touch()
            while not gate.exists():
                time.sleep(0.01)

    execute(work(before_step=before_step), RunStore(store))
