"""What the iteration does to singular values and vectors."""

import pytest
import torch

from common.optim import StackedMuon, newton_schulz


@pytest.mark.parametrize("shape", [(12, 40), (40, 12), (24, 24)], ids=["wide", "tall", "square"])
def test_update_of_a_well_conditioned_gradient_is_nearly_orthogonal(draw, dtype, momentum_form, shape):
    """Singular values that differ by a factor of 50 end within [0.68, 1.21] of the scale; the vectors stay."""
    u, _, v = torch.linalg.svd(draw(3, key=0, dtype=dtype, shapes={"w": shape})["w"], full_matrices=False)
    gradient = u * torch.linspace(1, 0.02, min(shape), dtype=dtype) @ v
    parameter = torch.zeros_like(gradient)
    StackedMuon({"w": parameter}, {"w"}, 1.0, momentum_form).step({"w": gradient})

    in_its_basis = -u.mT @ parameter @ v.mT / max(1, shape[1] / shape[0]) ** 0.5
    values = in_its_basis.diagonal(dim1=-2, dim2=-1)
    assert values.min() > 0.68 - 1e-3
    assert values.max() < 1.21
    assert values.max() - values.min() > 0.1  # nearly orthogonal, not orthogonal
    assert (in_its_basis - torch.diag_embed(values)).abs().max() < (1e-4 if dtype == torch.float32 else 1e-12)


@pytest.mark.parametrize(
    ("lowest", "highest", "at_least", "at_most"), [(0.002, 1, 0.68, 1.21), (0, 0.002, 0, 0.97)], ids=["most", "tiny"]
)
def test_singular_values_one_by_one(lowest, highest, at_least, at_most):
    sigma = torch.linspace(lowest, highest, 100_001, dtype=torch.float64)
    mapped = newton_schulz(sigma[:, None, None]).flatten()
    assert mapped.min() >= at_least
    assert mapped.max() <= at_most
    assert (mapped <= 3.4445**5 * sigma).all()


def test_zero_stays_zero(dtype):
    assert newton_schulz(torch.zeros(2, 3, 5, dtype=dtype)).eq(0).all()
