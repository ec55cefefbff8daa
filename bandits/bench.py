"""``python -m bandits.bench``: CPU time of the experiments on one thread; imports, set-up and evaluation apart.

CPU-seconds of this process, so that other processes disturb them less than wall time; still, quote them from a quiet
machine.
"""

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import torch
from rich.console import Console
from rich.table import Table

from bandits.mnist.data import load_digits
from bandits.mnist.training import Mnist, MnistTrainer
from bandits.multi_context import MultiContext, MultiContextTrainer
from bandits.single_context import SingleContext, SingleContextTrainer
from common.runs.trainer import Trainer

_CPU = torch.device("cpu")
_TABULAR_SEEDS = range(100)
_MNIST_SEEDS = range(20)
_MNIST_STEPS = 199
"""Between two evaluations."""


@dataclass(frozen=True)
class Timing:
    """One measured figure."""

    what: str
    measured: float
    wanted: float
    """At most."""
    unit: str


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, return 0."""
    parser = argparse.ArgumentParser(prog="python -m bandits.bench", description=__doc__, allow_abbrev=False)
    parser.add_argument("--json", action="store_true", help="print a JSON list instead of a table")
    parser.add_argument("--skip-mnist", action="store_true", help="leave out what needs the MNIST images")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    timings = [single_context(), multi_context()] + ([] if options.skip_mnist else mnist())
    if options.json:
        print(json.dumps([asdict(timing) for timing in timings], indent=1))
        return 0
    table = Table("what", "measured", "wanted", "unit")
    for timing in timings:
        table.add_row(timing.what, f"{timing.measured:.3g}", f"≤ {timing.wanted:g}", timing.unit)
    Console(width=120).print(table)
    return 0


def single_context() -> Timing:
    """Time Fig. 2 at the paper's settings."""
    names = ("pg", "dg", "tpo", "grpo")
    trainers = [SingleContextTrainer(SingleContext(objective=name), _TABULAR_SEEDS, _CPU) for name in names]
    seconds = sum(cpu_seconds(trainer, trainer.steps) for trainer in trainers)
    return Timing(f"single context: 100 seeds x 150 steps x {len(names)} methods", seconds, 1.5, "CPU-seconds")


def multi_context() -> Timing:
    """Time Fig. 3 at the paper's settings."""
    names = ("pg", "dg", "tpo", "grpo", "ce")
    trainers = [MultiContextTrainer(MultiContext(objective=name), _TABULAR_SEEDS, _CPU) for name in names]
    seconds = sum(cpu_seconds(trainer, trainer.steps) for trainer in trainers)
    return Timing(f"multi context: 100 seeds x 1,000 steps x {len(names)} methods", seconds, 6, "CPU-seconds")


def mnist() -> list[Timing]:
    """Time Fig. 4's training steps, all seeds stacked."""
    digits = load_digits()
    timings = []
    for name in ("pg", "dg", "tpo", "grpo", "group_pg", "ce"):
        trainer = MnistTrainer(Mnist(objective=name), _MNIST_SEEDS, _CPU, digits)
        trainer.advance(1)
        milliseconds = 1000 * cpu_seconds(trainer, _MNIST_STEPS) / (_MNIST_STEPS - 1) / len(_MNIST_SEEDS)
        timings.append(Timing(f"MNIST, {name}: training step, a seed", milliseconds, 0.5, "CPU-milliseconds"))
    return timings


def cpu_seconds(trainer: Trainer, stop: int) -> float:
    """Return the CPU time of training until ``stop`` updates are done."""
    started = time.process_time()
    trainer.advance(stop)
    return time.process_time() - started


if __name__ == "__main__":
    raise SystemExit(main())
