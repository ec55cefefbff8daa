"""``python -m sequence_tasks.bench``: time of an episode, fast against plain, at H = 10, B = 100, K = 8.

Both paths make the same episodes of one seed, in turns, on one thread: rollout, gradient epochs (4; DG 1), optimiser.
The learning rate is next to nothing, so that the policy stays what it is: *fresh*, or *solved*. Solved means that 95 %
of the groups are of identical completions; it is a fresh policy whose output weights were multiplied until that is so.

CPU-seconds of this process; even so, quote them from a quiet machine, and ratios rather than seconds. The *floor* is
what the products of the distinct tokens alone would take at the machine's rate of products of this model's shapes.
With ``--device cuda`` the fast path is the compiled stacked engine with 20 seeds, and times are of the clock.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial

import torch
from rich.console import Console
from rich.table import Table

from common import objectives
from common.errors import UserError
from common.launch.plan import device_of
from sequence_tasks import plain, shared
from sequence_tasks.engines import engine_for
from sequence_tasks.episode import parts, trained_on
from sequence_tasks.policy import Architecture
from sequence_tasks.settings import SequenceTask
from sequence_tasks.training import SequenceTrainer

_CPU = torch.device("cpu")
_NEXT_TO_NOTHING = 1e-9
_SOLVED = 0.95
_CLOSE_ENOUGH = 1.02
_STACKED = 20
"""Seeds stacked on a GPU."""
_DENSE = {"level": "token", "reward": "bag_of_tokens"}
CASES: Mapping[str, Mapping[str, object]] = {
    "tpo": {"objective": "tpo"},
    "grpo": {"objective": "grpo"},
    "ppo": {"objective": "ppo"},
    "dg": {"objective": "dg", "epochs": 1},
    "tpo_token": {"objective": "tpo", **_DENSE},
    "grpo_token": {"objective": "grpo", **_DENSE},
    "tpo_token_v16": {"objective": "tpo", "vocabulary": 16, **_DENSE},
    "ppo_dense": {"objective": "ppo", "reward": "bag_of_tokens"},
    "dg_dense": {"objective": "dg", "epochs": 1, "reward": "bag_of_tokens"},
}
WANTED: Mapping[tuple[str, str], float] = {
    ("tpo", "fresh"): 4,
    ("grpo", "fresh"): 4,
    ("tpo_token_v16", "fresh"): 8,
    ("tpo", "solved"): 30,
    ("grpo", "solved"): 8,
}
"""How many times faster than plain an episode has to be."""


@dataclass(frozen=True)
class Timing:
    """An episode of one seed."""

    objective: str
    policy: str
    """``fresh`` or ``solved``."""
    path: str
    """``fast`` or ``plain``."""
    seconds: float
    """Median over the rounds: of CPU time, or of the clock on a GPU."""
    gigaflop: float
    """In the products of the distinct tokens that take part: 2 a parameter and token forward, 4 backward."""
    sgemm_gflops: float
    """The machine's rate on products of this model's shapes, one thread on a CPU."""

    @property
    def gflops(self) -> float:
        """The rate that was achieved."""
        return self.gigaflop / self.seconds

    @property
    def floor_seconds(self) -> float:
        """What the products alone would take."""
        return self.gigaflop / self.sgemm_gflops

    def as_json(self, device: torch.device) -> dict[str, object]:
        """Return the timing as plain JSON values."""
        values = asdict(self)
        seconds = values.pop("seconds")
        key = "cpu_seconds" if device.type == "cpu" else "gpu_seconds"
        return {**values, key: seconds, "gflops": self.gflops, "floor_seconds": self.floor_seconds}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, return 0, or 2 after a mistake."""
    parser = argparse.ArgumentParser(prog="python -m sequence_tasks.bench", description=__doc__, allow_abbrev=False)
    parser.add_argument("--json", action="store_true", help="print a JSON list instead of a table")
    parser.add_argument("--rounds", type=_number, default=5, help="episodes of each path, in turns (default: 5)")
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=list(CASES), help="which (default: all)")
    parser.add_argument("--batch", type=_number, default=100, help="prompts an episode (default: 100)")
    parser.add_argument("--device", default="cpu", help="cpu or cuda (default: cpu)")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    try:
        device = device_of(options.device)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    rate = sgemm_gflops(device)
    timings = [
        timing
        for case in options.cases
        for policy in ("fresh", "solved")
        for timing in episode(case, policy, options.rounds, options.batch, rate, device)
    ]
    if options.json:
        print(json.dumps([each.as_json(device) for each in timings], indent=1))
    else:
        Console(width=120).print(table(timings))
    return 0


def _number(word: str) -> int:
    """Read a whole number from 1 on."""
    if not word.isdecimal() or int(word) < 1:
        raise argparse.ArgumentTypeError(f"{word!r} is not allowed; it must be a whole number from 1 on")
    return int(word)


def table(timings: Sequence[Timing]) -> Table:
    """Set the two paths side by side; ``timings`` holds them in pairs, the fast one first."""
    columns = Table("episode", "policy", "plain, ms", "fast, ms", "ratio", "wanted", "fast, GFLOP/s", "floor, ms")
    for fast, slow in zip(timings[::2], timings[1::2], strict=True):
        wanted = WANTED.get((fast.objective, fast.policy))
        columns.add_row(
            fast.objective,
            fast.policy,
            f"{1000 * slow.seconds:.1f}",
            f"{1000 * fast.seconds:.1f}",
            f"{slow.seconds / fast.seconds:.1f}",
            "" if wanted is None else f"≥ {wanted:g}",
            f"{fast.gflops:.0f} of {fast.sgemm_gflops:.0f}",
            f"{1000 * fast.floor_seconds:.1f}",
        )
    return columns


def episode(case: str, policy: str, rounds: int, batch: int, rate: float, device: torch.device = _CPU) -> list[Timing]:
    """Time one kind of episode on both paths, the fast one first."""
    on_gpu = device.type != "cpu"
    settings = SequenceTask(learning_rate=_NEXT_TO_NOTHING, batch=batch, **CASES[case])  # type: ignore[arg-type]
    fast = engine_for(replace(settings, compile=on_gpu), device)
    trainers = {
        "fast": SequenceTrainer(settings, range(_STACKED if on_gpu else 1), device, fast),
        "plain": SequenceTrainer(settings, [0], device, plain),
    }
    counted = SequenceTrainer(settings, [0], _CPU, shared)
    if policy == "solved":
        for trainer in (*trainers.values(), counted):
            sharpen(trainer)
    work = gigaflop(counted)
    taken: dict[str, list[float]] = {path: [] for path in trainers}
    for number in range(rounds + 1):
        for path, trainer in trainers.items():
            seconds = seconds_of(partial(trainer.advance, trainer.step + 1), device) / len(trainer.seeds)
            if number:  # the first one warms up
                taken[path].append(seconds)
    return [Timing(case, policy, path, statistics.median(each), work, rate) for path, each in taken.items()]


def sharpen(trainer: SequenceTrainer) -> None:
    """Multiply the output weights until 95 % of the groups are of identical completions (or of equal tokens).

    A trajectory counts as a group of eight, which are alike as often as its probability says.
    """
    weights = trainer.state_dict()["output.weight"]
    fresh = weights.clone()
    low, high = 1.0, 1e6
    while high / low > _CLOSE_ENOUGH:
        middle = (low * high) ** 0.5
        weights.copy_(middle * fresh)
        enough = _share_of_identical(trainer) >= _SOLVED
        low, high = (low, middle) if enough else (middle, high)
    weights.copy_(high * fresh)


def _share_of_identical(trainer: SequenceTrainer) -> float:
    """Return the share of groups whose candidates are all the same."""
    rollout = trainer.rollouts()[0]
    if rollout.kind == "next tokens":
        assert rollout.picked is not None
        same = (rollout.picked == rollout.picked[..., :1]).all(-1)
    elif rollout.kind == "completions":
        same = (rollout.tokens == rollout.tokens[..., :1, :]).all(-1).all(-1)
    else:
        same = (8 * rollout.logp_old.sum(-1)).exp()
    return float(same.double().mean())


def gigaflop(trainer: SequenceTrainer) -> float:
    """Count the products of an episode: unique tokens, sampled once and then trained on in every epoch."""
    settings = trainer.settings
    shape = Architecture(settings.vocabulary, 2 * settings.length, heads=settings.heads)
    objective = objectives.get(settings.objective, settings.options)
    (rollout,) = trainer.rollouts()
    sampled = len(shared.lay_out(shape, rollout.prompts, rollout.tokens).trie.tokens)
    trained = 0
    for epoch in range(settings.epochs):
        laid_out = parts(shared, shape, rollout, trained_on(objective, rollout, snapshot=epoch == 0))
        trained += sum(len(part.sequences.trie.tokens) for part in laid_out)
    matrices = shape.matrices("standard") | {"output.weight"}
    parameters = sum(torch.Size(size).numel() for name, size in shape.shapes().items() if name in matrices)
    return parameters * (2 * sampled + 6 * trained) / 1e9


def sgemm_gflops(device: torch.device = _CPU) -> float:
    """Measure float32 products of this model's feed-forward layer at 5,000 tokens, [5000 × 64]·[64 × 256] and back."""
    tokens, width, inner = 5000, 64, 256
    shapes = ((tokens, width), (width, inner), (inner, width))
    left, up, down = (torch.randn(shape, device=device) for shape in shapes)

    def both() -> None:
        torch.mm(torch.mm(left, up), down)

    both()
    seconds = statistics.median(seconds_of(both, device) for _ in range(30))
    return 4 * tokens * width * inner / seconds / 1e9


def seconds_of(action: Callable[[], object], device: torch.device = _CPU) -> float:
    """Return an action's CPU time, or on a GPU its time by the clock until all is done."""
    if device.type == "cpu":
        started = time.process_time()
        action()
        return time.process_time() - started
    torch.cuda.synchronize(device)
    started = time.perf_counter()
    action()
    torch.cuda.synchronize(device)
    return time.perf_counter() - started


if __name__ == "__main__":
    raise SystemExit(main())
