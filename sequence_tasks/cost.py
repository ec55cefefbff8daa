"""What an episode costs on a CPU, from rates measured with ``python -m sequence_tasks.bench`` (docs/performance.md)."""

import math

from common import objectives
from sequence_tasks.settings import SequenceTask

_PER_EPISODE, _PER_EPOCH = 3.0, 5.8
"""CPU-milliseconds besides the tokens: what every episode, and every gradient epoch with its update, costs."""
_SAMPLING = 0.0052
"""CPU-milliseconds of an episode, for each distinct token and for each token of a distinct sequence."""
_TRAINING, _ATTENTION = 0.0025, 0.0077
"""CPU-milliseconds of a gradient epoch, for each distinct token and for each token of a distinct sequence."""
_COUNTLESS = 2**100
"""From so many values on, no two draws are alike."""


def cpu_milliseconds(settings: SequenceTask) -> float:
    """Estimate the CPU-milliseconds of an episode and seed while the policy is fresh.

    A fresh policy is the dearest: the more alike its completions become, the fewer of their tokens are distinct, and
    the more of them provably have no gradient.
    """
    grouped = objectives.get(settings.objective).grouped and settings.level == "sequence"
    candidates = settings.candidates if grouped else 1
    nodes, rows = distinct_tokens(settings, candidates), distinct_sequence_tokens(settings, candidates)
    sampling = _PER_EPISODE + _SAMPLING * (nodes + rows)
    return sampling + settings.epochs * (_PER_EPOCH + _TRAINING * nodes + _ATTENTION * rows)


def distinct_tokens(settings: SequenceTask, candidates: int) -> float:
    """Return how many distinct prefixes B prompts with K uniform completions each are expected to have."""
    prompts = sum(_distinct(settings.batch, settings.vocabulary**depth) for depth in range(1, settings.length + 1))
    return prompts + sum(_distinct_completions(settings, candidates, depth) for depth in range(1, settings.length))


def distinct_sequence_tokens(settings: SequenceTask, candidates: int) -> float:
    """Return the tokens of the distinct prompts and of their distinct completions, which attention goes through."""
    prompts = _distinct(settings.batch, settings.vocabulary**settings.length)
    written = settings.length - 1
    return prompts * settings.length + _distinct_completions(settings, candidates, written) * written


def _distinct_completions(settings: SequenceTask, candidates: int, depth: int) -> float:
    """Return the expected number of distinct prompts with ``depth`` tokens of a completion.

    Among n = V^H prompts, h is the chance that one of the K completions of a prompt begins so: n·V^d·(1 − (1 − h/n)^B).
    """
    beginnings = _distinct(candidates, settings.vocabulary**depth)
    prompts = settings.vocabulary**settings.length
    if prompts > _COUNTLESS:
        return settings.batch * beginnings
    chance = beginnings / settings.vocabulary**depth / prompts
    return -math.expm1(settings.batch * math.log1p(-chance)) * beginnings / chance if chance else 0.0


def _distinct(draws: int, values: int) -> float:
    """Return the expected number of distinct values among uniform draws, v·(1 − (1 − 1/v)ⁿ)."""
    if values > _COUNTLESS:
        return float(draws)
    return 1.0 if values == 1 else -values * math.expm1(draws * math.log1p(-1 / values))
