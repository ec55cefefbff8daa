"""What the tests of the objectives share: precisions, one gradient evaluation, drawn batches of groups."""

from collections.abc import Callable
from typing import NamedTuple

import pytest
import torch
from hypothesis import strategies as st
from torch import Tensor

from common.objectives import Objective, Signal, reduce

TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5}


class Step(NamedTuple):
    """One gradient evaluation."""

    loss: Tensor
    gradient: Tensor
    """∂L/∂ℓ, of the shape of ℓ."""
    signal: Signal


class Groups(NamedTuple):
    """A drawn batch, each [B, K]."""

    scores: Tensor
    """Multiples of ¼ in ±2, so that σ is either 0 or far above the cut-off."""
    logp_old: Tensor
    logp: Tensor
    """Up to 3 nats away from ``logp_old``: within, at and beyond the clip range."""
    multiplicities: Tensor
    """0, 1, 2 or 3."""


@pytest.fixture(scope="session", params=TOLERANCE, ids=["float64", "float32"])
def dtype(request: pytest.FixtureRequest) -> torch.dtype:
    return request.param


@pytest.fixture(scope="session")
def assert_close(dtype: torch.dtype) -> Callable[..., None]:
    """Compare within the rounding of ``dtype``: relatively, and absolutely for values below ``scale``."""

    def check(actual: Tensor, expected: Tensor | list | float, scale: float = 1.0) -> None:
        assert actual.dtype == dtype
        expected = torch.as_tensor(expected, dtype=dtype)
        tolerance = TOLERANCE[dtype]
        torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance * scale)

    return check


@pytest.fixture(scope="session")
def step() -> Callable[..., Step]:
    """Return a function that takes an objective through one gradient evaluation at ``logp``."""

    def evaluate(
        objective: Objective,
        scores: Tensor,
        logp: Tensor,
        logp_old: Tensor | None = None,
        *,
        weights: Tensor | None = None,
        baseline: Tensor | float | None = None,
        normaliser: Tensor | float = 1.0,
    ) -> Step:
        leaf = logp.detach().clone().requires_grad_()
        logp_old = leaf.detach().clone() if logp_old is None else logp_old
        signal = objective.signal(scores, logp_old, weights, baseline)
        loss = reduce(objective.loss(leaf, logp_old, signal), signal.weights, normaliser=normaliser)
        (gradient,) = torch.autograd.grad(loss, leaf)
        return Step(loss.detach(), gradient, signal)

    return evaluate


@pytest.fixture(scope="session")
def groups(dtype: torch.dtype) -> Callable[..., st.SearchStrategy[Groups]]:
    """Return a strategy of batches of groups."""

    @st.composite
    def batches(draw: st.DrawFn, batch: int | None = None) -> Groups:
        rows = draw(st.integers(1, 3)) if batch is None else batch
        columns = draw(st.integers(2, 6))
        size = rows * columns
        raw = torch.tensor(list(draw(st.binary(min_size=4 * size, max_size=4 * size)))).view(4, rows, columns)
        scores = raw[0] % 2 if draw(st.booleans()) else (raw[0] % 17 - 8) / 4
        logp_old = -20 / 255 * raw[1].to(dtype)
        return Groups(scores.to(dtype), logp_old, logp_old + 3 / 128 * (raw[2] - 128), (raw[3] % 4).to(dtype))

    return batches
