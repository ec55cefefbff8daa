"""``python -m sequence_tasks.bench``: CPU time of an episode, fast against plain, at H = 10, B = 100, K = 8.

Both paths make the same episodes of one seed, in turns, on one thread: rollout, gradient epochs (4; DG 1), optimiser.
The learning rate is next to nothing, so that the policy stays what it is: *fresh*, or *solved*. Solved means that 95 %
of the groups are of identical completions; it is a fresh policy whose output weights were multiplied until that is so.

CPU-seconds of this process; even so, quote them from a quiet machine, and ratios rather than seconds. The *floor* is
what the products of the unique tokens alone would take at the machine's sgemm rate on the shapes of this model.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass

import torch
from rich.console import Console
from rich.table import Table

from common import objectives
from sequence_tasks import plain, shared
from sequence_tasks.episode import Engine, parts, trained_on
from sequence_tasks.policy import Architecture
from sequence_tasks.settings import SequenceTask
from sequence_tasks.training import SequenceTrainer

_CPU = torch.device("cpu")
_NEXT_TO_NOTHING = 1e-9
_SOLVED = 0.95
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
    cpu_seconds: float
    """Median over the rounds."""
    gigaflop: float
    """In the products of the unique tokens that take part: 2 a parameter and token forward, 4 backward."""
    sgemm_gflops: float
    """The machine's rate on products of this model's shapes, one thread."""

    @property
    def gflops(self) -> float:
        """The rate that was achieved."""
        return self.gigaflop / self.cpu_seconds

    @property
    def floor_seconds(self) -> float:
        """What the products alone would take."""
        return self.gigaflop / self.sgemm_gflops


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, return 0."""
    parser = argparse.ArgumentParser(prog="python -m sequence_tasks.bench", description=__doc__, allow_abbrev=False)
    parser.add_argument("--json", action="store_true", help="print a JSON list instead of a table")
    parser.add_argument("--rounds", type=int, default=5, help="episodes of each path, in turns (default: 5)")
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=list(CASES), help="which (default: all)")
    parser.add_argument("--batch", type=int, default=100, help="prompts an episode (default: 100)")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    rate = sgemm_gflops()
    timings = [
        timing
        for case in options.cases
        for policy in ("fresh", "solved")
        for timing in episode(case, policy, options.rounds, options.batch, rate)
    ]
    if options.json:
        derived = ("gflops", "floor_seconds")
        print(json.dumps([asdict(each) | {key: getattr(each, key) for key in derived} for each in timings], indent=1))
    else:
        Console(width=120).print(table(timings))
    return 0


def table(timings: Sequence[Timing]) -> Table:
    """Set the two paths side by side; ``timings`` holds them in pairs."""
    columns = Table(
        "episode", "policy", "plain, CPU-ms", "fast, CPU-ms", "ratio", "wanted", "fast, GFLOP/s", "floor, ms"
    )
    for fast, slow in zip(timings[::2], timings[1::2], strict=True):
        wanted = WANTED.get((fast.objective, fast.policy))
        columns.add_row(
            fast.objective,
            fast.policy,
            f"{1000 * slow.cpu_seconds:.1f}",
            f"{1000 * fast.cpu_seconds:.1f}",
            f"{slow.cpu_seconds / fast.cpu_seconds:.1f}",
            "" if wanted is None else f"≥ {wanted:g}",
            f"{fast.gflops:.0f} of {fast.sgemm_gflops:.0f}",
            f"{1000 * fast.floor_seconds:.1f}",
        )
    return columns


def episode(case: str, policy: str, rounds: int, batch: int, rate: float) -> list[Timing]:
    """Time one kind of episode on both paths, the fast one first."""
    settings = SequenceTask(learning_rate=_NEXT_TO_NOTHING, batch=batch, **CASES[case])  # type: ignore[arg-type]
    trainers = {"fast": _trainer(settings, shared, policy), "plain": _trainer(settings, plain, policy)}
    work = gigaflop(trainers["fast"])
    seconds: dict[str, list[float]] = {path: [] for path in trainers}
    for number in range(rounds + 1):
        for path, trainer in trainers.items():
            taken = cpu_seconds(lambda trainer=trainer: trainer.advance(trainer.step + 1))  # type: ignore[misc]
            if number:  # the first one warms up
                seconds[path].append(taken)
    return [Timing(case, policy, path, statistics.median(taken), work, rate) for path, taken in seconds.items()]


def _trainer(settings: SequenceTask, engine: Engine, policy: str) -> SequenceTrainer:
    trainer = SequenceTrainer(settings, [0], _CPU, engine)
    if policy == "solved":
        sharpen(trainer)
    return trainer


def sharpen(trainer: SequenceTrainer) -> None:
    """Multiply the output weights until 95 % of the groups are of identical completions (or of equal tokens).

    A trajectory counts as a group of two, its twin sampled from other noise.
    """
    state = trainer.state_dict()
    output = state["output.weight"].clone()
    low, high = 1.0, 1e6
    while high / low > 1.02:
        middle = (low * high) ** 0.5
        state["output.weight"].copy_(middle * output)
        enough = _most_likely_share(trainer) >= _SOLVED
        low, high = (low, middle) if enough else (middle, high)
    state["output.weight"].copy_(high * output)


def _most_likely_share(trainer: SequenceTrainer) -> float:
    """Return the share of groups whose candidates are all the same."""
    (rollout,) = trainer.rollouts()
    if rollout.kind == "next tokens":
        assert rollout.picked is not None
        same = (rollout.picked == rollout.picked[..., :1]).all(-1)
    elif rollout.kind == "completions":
        same = (rollout.tokens == rollout.tokens[:, :1]).flatten(1).all(1)
    else:  # as likely as K of its kind would be the same
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


def sgemm_gflops() -> float:
    """Measure float32 products of this model's feed-forward layer at 5,000 tokens, [5000 × 64]·[64 × 256] and back."""
    tokens, width, inner = 5000, 64, 256
    left, up, down = torch.randn(tokens, width), torch.randn(width, inner), torch.randn(inner, width)

    def both() -> None:
        torch.mm(torch.mm(left, up), down)

    both()
    seconds = statistics.median(cpu_seconds(both) for _ in range(30))
    return 4 * tokens * width * inner / seconds / 1e9


def cpu_seconds(action: Callable[[], object]) -> float:
    """Return the CPU time of an action."""
    started = time.process_time()
    action()
    return time.process_time() - started


if __name__ == "__main__":
    raise SystemExit(main())
