"""What the tests of the optimiser share: precisions, momentum forms, and drawn gradients."""

from collections.abc import Callable, Mapping

import pytest
import torch
from torch import Tensor

from common.optim import MOMENTUM_FORMS

SHAPES = {"wide": (4, 7), "bias": (7,), "tall": (9, 4), "square": (5, 5), "kernel": (3, 2, 4), "wide too": (4, 7)}
MATRICES = ("wide", "tall", "square", "wide too")


@pytest.fixture(scope="session", params=[torch.float64, torch.float32], ids=["float64", "float32"])
def dtype(request: pytest.FixtureRequest) -> torch.dtype:
    return request.param


@pytest.fixture(scope="session", params=MOMENTUM_FORMS)
def momentum_form(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="session")
def matrices() -> tuple[str, ...]:
    return MATRICES


@pytest.fixture(scope="session")
def draw() -> Callable[..., dict[str, Tensor]]:
    """Return a function that draws standard normal tensors [S, *shape] by name; same key, same numbers."""

    def normal(
        seeds: int, key: int, dtype: torch.dtype = torch.float64, shapes: Mapping[str, tuple[int, ...]] = SHAPES
    ) -> dict[str, Tensor]:
        generator = torch.Generator().manual_seed(key)
        return {
            name: torch.randn(seeds, *shape, generator=generator, dtype=torch.float64).to(dtype)
            for name, shape in shapes.items()
        }

    return normal
