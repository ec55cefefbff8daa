"""What an episode costs on a CPU, from rates measured with ``python -m sequence_tasks.bench`` (docs/performance.md)."""

import math

from common import objectives
from sequence_tasks.settings import SequenceTask

_PER_EPISODE, _PER_EPOCH = 15.0, 3.0
"""CPU-milliseconds besides the tokens: what every episode, and every gradient epoch with its update, costs."""
_SAMPLING, _TRAINING = 0.006, 0.0105
"""CPU-milliseconds a distinct token."""
_COUNTLESS = 2**100
"""From so many values on, no two draws are alike."""


def cpu_milliseconds(settings: SequenceTask) -> float:
    """Estimate the CPU-milliseconds of an episode and seed while the policy is fresh.

    A fresh policy is the dearest: the more alike its completions become, the fewer of their tokens are distinct, and
    the more of them provably have no gradient.
    """
    completions = objectives.get(settings.objective).grouped and settings.level == "sequence"
    tokens = distinct_tokens(settings, settings.candidates if completions else 1)
    return _PER_EPISODE + _SAMPLING * tokens + settings.epochs * (_PER_EPOCH + _TRAINING * tokens)


def distinct_tokens(settings: SequenceTask, candidates: int) -> float:
    """Return how many distinct prefixes B prompts with K uniform completions each are expected to have."""
    prompts = sum(_distinct(settings.batch, settings.vocabulary**depth) for depth in range(1, settings.length + 1))
    completions = sum(_distinct(candidates, settings.vocabulary**depth) for depth in range(1, settings.length))
    return prompts + _distinct(settings.batch, settings.vocabulary**settings.length) * completions


def _distinct(draws: int, values: int) -> float:
    """Return the expected number of distinct values among uniform draws, v·(1 − (1 − 1/v)ⁿ)."""
    if values > _COUNTLESS:
        return float(draws)
    return -values * math.expm1(draws * math.log1p(-1 / values))
