import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from common import draws

KINDS = {
    "uniform": lambda seed, seeds, purpose, block, shape: draws.uniform(seed, seeds, purpose, block, shape),
    "normal": lambda seed, seeds, purpose, block, shape: draws.normal(seed, seeds, purpose, block, shape),
    "integers": lambda seed, seeds, purpose, block, shape: draws.integers(seed, seeds, purpose, block, 1000, shape),
}
WITH_WEIGHTS = {
    **KINDS,
    "truncated": lambda seed, seeds, purpose, block, shape: draws.truncated_normal(seed, seeds, purpose, shape, 0.02),
}


@pytest.mark.parametrize("kind", WITH_WEIGHTS)
@given(seeds=st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=6), position=st.integers(0, 5))
@settings(max_examples=25, deadline=None, derandomize=True, database=None)
def test_a_seeds_draws_do_not_depend_on_the_other_seeds(kind: str, seeds: list[int], position: int) -> None:
    draw = WITH_WEIGHTS[kind]
    position %= len(seeds)
    together = draw(3, seeds, "actions", 2, (2, 5))
    assert together.shape == (len(seeds), 2, 5)
    assert torch.equal(together[position], draw(3, [seeds[position]], "actions", 2, (2, 5))[0])
    assert torch.equal(together, draw(3, seeds, "actions", 2, (2, 5)))


@pytest.mark.parametrize("kind", KINDS)
def test_everything_they_depend_on_changes_them(kind: str) -> None:
    draw = KINDS[kind]
    seen = {
        tuple(draw(experiment_seed, [seed], purpose, block, (4,))[0].tolist())
        for experiment_seed in (0, 1, 2**32, 2**63)
        for seed in (0, 1, 2)
        for purpose in ("actions", "weights", "logits")
        for block in (0, 1, 2)
    }
    assert len(seen) == 4 * 3 * 3 * 3


@pytest.mark.parametrize("kind", WITH_WEIGHTS)
def test_no_global_state(kind: str) -> None:
    draw = WITH_WEIGHTS[kind]
    torch.manual_seed(1)
    np.random.seed(1)
    before = torch.rand(3), np.random.rand(3)
    torch.manual_seed(1)
    np.random.seed(1)
    first = draw(0, range(2), "actions", 0, (3,))
    assert torch.equal(torch.rand(3), before[0])
    assert np.array_equal(np.random.rand(3), before[1])
    assert torch.equal(draw(0, range(2), "actions", 0, (3,)), first)


def test_pinned() -> None:
    """These numbers are part of every stored run."""
    assert draws.STEPS_PER_BLOCK == 50
    assert draws.uniform(0, [0], "actions", 0, (2,))[0].tolist() == UNIFORM
    assert draws.normal(0, [3], "logits", 0, (2,))[0].tolist() == NORMAL
    assert draws.integers(1, [0], "images", 7, 60000, (3,))[0].tolist() == INTEGERS
    assert draws.truncated_normal(0, [0], "weights", (2,), 1.0)[0].tolist() == pytest.approx(TRUNCATED, rel=1e-14)


UNIFORM = [0.7832829640142479, 0.7774905678560892]
NORMAL = [-0.26537757620599944, 1.2191112329245841]
INTEGERS = [14099, 33353, 8864]
TRUNCATED = [0.7950110456323316, -0.09938707251706856]


@pytest.mark.parametrize("kind", ["uniform", "normal", "truncated"])
def test_float64(kind: str) -> None:
    assert WITH_WEIGHTS[kind](0, range(2), "actions", 0, (3,)).dtype == torch.float64


def test_integers_are_int64() -> None:
    assert draws.integers(0, [0], "images", 0, 10, (3,)).dtype == torch.int64
    assert (draws.integers(0, [0], "images", 0, 1, (100,)) == 0).all()


def test_shapes() -> None:
    assert draws.uniform(0, range(3), "a", 0, ()).shape == (3,)
    assert draws.normal(0, range(3), "a", 0, (2, 0)).shape == (3, 2, 0)


SEEDS = range(200)
COUNT = 500


def assert_moments(values: Tensor, mean: float, variance: float, kurtosis: float) -> None:
    """Mean and variance within five standard errors."""
    count = values.numel()
    assert abs(values.mean().item() - mean) < 5 * math.sqrt(variance / count)
    assert abs(values.var().item() / variance - 1) < 5 * math.sqrt((kurtosis - 1) / count)


def test_uniform() -> None:
    values = draws.uniform(0, SEEDS, "actions", 0, (COUNT,))
    assert_moments(values, 1 / 2, 1 / 12, 1.8)
    assert values.min() >= 0
    assert values.max() < 1
    counts = torch.histc(values, 10, 0, 1)
    expected = values.numel() / 10
    assert ((counts - expected) ** 2 / expected).sum() < 34  # χ², 9 degrees of freedom, p = 1e-4


def test_normal() -> None:
    values = draws.normal(0, SEEDS, "logits", 0, (COUNT,))
    assert_moments(values, 0, 1, 3)
    assert abs((values.abs() < 1).double().mean().item() - 0.682689) < 5 * 0.4654 / math.sqrt(values.numel())


def test_integers() -> None:
    values = draws.integers(0, SEEDS, "images", 0, 10, (COUNT,))
    counts = values.flatten().bincount(minlength=10).double()
    assert len(counts) == 10
    expected = values.numel() / 10
    assert ((counts - expected) ** 2 / expected).sum() < 34


@pytest.mark.parametrize("variance", [1.0, 1 / 784, 1e-8, 25.0])
def test_truncated_normal(variance: float) -> None:
    values = draws.truncated_normal(0, SEEDS, "weights", (COUNT,), variance)
    density = math.exp(-2) / math.sqrt(2 * math.pi)
    inside = math.erf(math.sqrt(2))
    truncated = 1 - 4 * density / inside  # variance of the standard normal truncated at ±2
    kurtosis = (3 - 4 * density * (8 + 6) / (2 * inside)) / truncated**2
    assert_moments(values, 0, variance, kurtosis)
    bound = 2 * math.sqrt(variance / truncated)
    assert values.abs().max() <= bound * (1 + 1e-12)
    assert values.abs().max() > 0.99 * bound


def test_seeds_and_blocks_are_uncorrelated() -> None:
    values = draws.normal(0, range(20), "logits", 0, (2000,))
    others = draws.normal(0, range(20), "logits", 1, (2000,))
    everything = torch.cat([values, others])
    correlations = torch.corrcoef(everything) - torch.eye(len(everything), dtype=torch.float64)
    assert correlations.abs().max() < 5 / math.sqrt(2000)


def test_similar_purposes_differ() -> None:
    purposes = ["actions", "action", "Actions", "actions ", "weights.0", "weights.1", "0", ""]
    assert len({draws.uniform(0, [0], purpose, 0, ()).item() for purpose in purposes}) == len(purposes)
