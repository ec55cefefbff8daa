"""Random draws that depend on (experiment seed, seed index, purpose, block of steps) and on nothing else.

Made on the CPU by a counter-based generator, so that every objective sees the same draws (comparisons are paired), and
neither the device, nor the seeds trained alongside, nor an interruption changes them.
"""

import zlib
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

STEPS_PER_BLOCK = 50
"""Steps whose draws are made together. Changing it changes every run."""


def generator(experiment_seed: int, seed: int, purpose: str, block: int = 0) -> np.random.Generator:
    """Return the generator for one seed, one purpose ("weights", "samples", ...) and one block of steps."""
    return np.random.Generator(np.random.Philox(np.random.SeedSequence([experiment_seed, seed, _code(purpose), block])))


def uniform(experiment_seed: int, seeds: Sequence[int], purpose: str, block: int, shape: tuple[int, ...]) -> Tensor:
    """Draw U[0, 1) in float64, [S, *shape]."""
    draws = [generator(experiment_seed, seed, purpose, block).random(shape) for seed in seeds]
    return torch.from_numpy(np.stack(draws))


def normal(experiment_seed: int, seeds: Sequence[int], purpose: str, block: int, shape: tuple[int, ...]) -> Tensor:
    """Draw N(0, 1) in float64, [S, *shape]."""
    draws = [generator(experiment_seed, seed, purpose, block).standard_normal(shape) for seed in seeds]
    return torch.from_numpy(np.stack(draws))


def integers(
    experiment_seed: int, seeds: Sequence[int], purpose: str, block: int, high: int, shape: tuple[int, ...]
) -> Tensor:
    """Draw uniform integers in [0, high) as int64, [S, *shape]."""
    draws = [generator(experiment_seed, seed, purpose, block).integers(high, size=shape) for seed in seeds]
    return torch.from_numpy(np.stack(draws))


def truncated_normal(
    experiment_seed: int, seeds: Sequence[int], purpose: str, shape: tuple[int, ...], variance: float
) -> Tensor:
    """Draw from a normal truncated at ±2 σ and rescaled to ``variance`` (LeCun's: 1 / fan-in), float64, [S, *shape]."""
    low, high = (torch.special.ndtr(torch.tensor(bound, dtype=torch.float64)) for bound in (-2.0, 2.0))
    quantiles = low + (high - low) * uniform(experiment_seed, seeds, purpose, 0, shape)
    return torch.special.ndtri(quantiles) * (variance**0.5 / _TRUNCATED_STD)


def categorical(logp: Tensor, noise: Tensor) -> Tensor:
    """Sample by inverting the distribution function at given noise, int64 [...].

    Args:
        logp: log π, [..., V].
        noise: uniform in [0, 1), [...].
    """
    return (logp.exp().cumsum(-1)[..., :-1] <= noise.unsqueeze(-1)).sum(-1)


_TRUNCATED_STD = 0.87962566103423978
"""Standard deviation of the standard normal truncated at ±2."""


def _code(purpose: str) -> int:
    return zlib.crc32(purpose.encode())
