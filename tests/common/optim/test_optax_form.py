"""The default form against a plain loop in NumPy, and the scale factors of the paper's model."""

import math

import numpy as np
import pytest
import torch

from common.optim import StackedMuon, newton_schulz

LEARNING_RATE = 1e-3


def orthogonalised(matrix):
    if matrix.shape[0] > matrix.shape[1]:
        return orthogonalised(matrix.T).T
    x = matrix / (np.sqrt((matrix**2).sum()) + 1e-8)
    for _ in range(5):
        a = x @ x.T
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return x


def muon_by_hand(gradients):
    """Return the change of a matrix [rows, columns] in each of the steps."""
    moment, changes = np.zeros_like(gradients[0]), []
    for t, gradient in enumerate(gradients, 1):
        moment = 0.95 * moment + 0.05 * gradient
        nesterov = 0.95 * moment / (1 - 0.95 ** (t + 1)) + 0.05 * gradient / (1 - 0.95**t)
        rows, columns = gradient.shape
        changes.append(-LEARNING_RATE * np.sqrt(max(1, columns / rows)) * orthogonalised(nesterov))
    return changes


def adam_by_hand(gradients):
    """Return the change of a parameter of any shape in each of the steps."""
    first, second, changes = np.zeros_like(gradients[0]), np.zeros_like(gradients[0]), []
    for t, gradient in enumerate(gradients, 1):
        first = 0.9 * first + 0.1 * gradient
        second = 0.999 * second + 0.001 * gradient**2
        nesterov = 0.9 * first / (1 - 0.9 ** (t + 1)) + 0.1 * gradient / (1 - 0.9**t)
        changes.append(-LEARNING_RATE * nesterov / (np.sqrt(second / (1 - 0.999**t)) + 1e-8))
    return changes


@pytest.mark.parametrize("size", [1.0, 1e-8], ids=["plain", "where the epsilons count"])
def test_three_steps_by_hand(draw, matrices, size):
    seeds, steps = 2, 3
    parameters = draw(seeds, key=0)
    optimiser = StackedMuon(parameters, matrices, LEARNING_RATE)
    drawn = [draw(seeds, key=1 + step) for step in range(steps)]
    gradients = [{name: size * value for name, value in step.items()} for step in drawn]

    for step in range(steps):
        before = {name: value.clone() for name, value in parameters.items()}
        optimiser.step(gradients[step])
        for name, value in parameters.items():
            by_hand = muon_by_hand if name in matrices else adam_by_hand
            for seed in range(seeds):
                change = by_hand([gradients[earlier][name][seed].numpy() for earlier in range(step + 1)])[-1]
                assert np.abs(change).max() > 1e-4
                np.testing.assert_allclose((value - before[name])[seed].numpy(), change, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize(
    ("shape", "scale"),
    [
        pytest.param((2, 64), 5.66, id="token embedding"),
        pytest.param((20, 64), 1.79, id="positions"),
        pytest.param((2, 32), 4, id="query, key and value biases"),
        pytest.param((64, 256), 2, id="feed-forward in"),
        pytest.param((256, 64), 1, id="feed-forward out"),
        pytest.param((64, 2), 1, id="output layer"),
    ],
)
def test_scale_factors_of_the_paper(draw, momentum_form, shape, scale):
    gradient = draw(1, key=0, shapes={"w": shape})["w"]
    parameter = torch.zeros_like(gradient)
    StackedMuon({"w": parameter}, {"w"}, LEARNING_RATE, momentum_form).step({"w": gradient})
    wide = gradient if shape[0] <= shape[1] else gradient.mT
    unscaled = newton_schulz(wide / torch.linalg.matrix_norm(wide))
    assert math.isclose(parameter.norm() / (LEARNING_RATE * unscaled.norm()), scale, abs_tol=0.005)
