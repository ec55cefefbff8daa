"""The torch form against torch.optim, seed by seed."""

import pytest
import torch
from torch.optim import _muon

from common.optim import StackedMuon

STEPS = 5


def newton_schulz_unrounded(grad, ns_coefficients, ns_steps, eps):
    """PyTorch's iteration without its bfloat16."""
    a, b, c = ns_coefficients
    x = grad.T if grad.shape[0] > grad.shape[1] else grad
    x = x / x.norm().clamp(min=eps)
    for _ in range(ns_steps):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.T if grad.shape[0] > grad.shape[1] else x


def assert_close(actual, expected, dtype):
    tolerance = 1e-5 if dtype == torch.float32 else 1e-12
    assert (actual - expected).norm() <= tolerance * expected.norm()
    assert expected.norm() > 0


@pytest.mark.parametrize("size", [1.0, 1e-8], ids=["plain", "where the epsilons count"])
@pytest.mark.parametrize("shape", [(8, 24), (24, 8), (16, 16)], ids=["wide", "tall", "square"])
def test_matrices_follow_torch_muon(draw, dtype, shape, size, monkeypatch):
    """PyTorch's rows are the outputs, ours the inputs, so its matrices are the transposes of ours."""
    monkeypatch.setattr(_muon, "_zeropower_via_newtonschulz", newton_schulz_unrounded)
    seeds, shapes = 2, {"w": shape}
    parameter = torch.zeros(seeds, *shape, dtype=dtype)
    stacked = StackedMuon({"w": parameter}, {"w"}, learning_rate=1e-3, momentum_form="torch")
    separate = [torch.nn.Parameter(torch.zeros(shape[::-1], dtype=dtype)) for _ in range(seeds)]
    reference = torch.optim.Muon(separate, lr=1e-3, weight_decay=0, momentum=0.95, nesterov=True)

    for step in range(STEPS):
        gradient = size * draw(seeds, key=step, dtype=dtype, shapes=shapes)["w"]
        for matrix, its_gradient in zip(separate, gradient, strict=True):
            matrix.grad = its_gradient.T.contiguous()
        before = parameter.clone(), [matrix.detach().clone() for matrix in separate]
        stacked.step({"w": gradient})
        reference.step()
        for seed, matrix in enumerate(separate):
            assert_close(parameter[seed] - before[0][seed], (matrix.detach() - before[1][seed]).T, dtype)


@pytest.mark.parametrize("size", [1.0, 1e-8], ids=["plain", "where the epsilon counts"])
def test_others_follow_torch_adam(draw, dtype, size):
    seeds = 2
    parameters = {name: torch.zeros_like(value) for name, value in draw(seeds, key=0, dtype=dtype).items()}
    stacked = StackedMuon(parameters, (), learning_rate=1e-3, momentum_form="torch")
    copies = {name: torch.nn.Parameter(value.clone()) for name, value in parameters.items()}
    reference = torch.optim.Adam(copies.values(), lr=1e-3)

    for step in range(STEPS):
        gradients = {name: size * value for name, value in draw(seeds, key=1 + step, dtype=dtype).items()}
        for name, copy in copies.items():
            copy.grad = gradients[name].clone()
        stacked.step(gradients)
        reference.step()
        for name, copy in copies.items():
            assert_close(parameters[name], copy.detach(), dtype)
