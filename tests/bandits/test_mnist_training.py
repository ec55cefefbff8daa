"""The MNIST trainer on a small synthetic set: weights, pairing, evaluation, stopping and resuming."""

import re

import pytest
import torch

from bandits.mnist.data import DigitImages
from bandits.mnist.feedback import sampled_loss
from bandits.mnist.policy import StackedMLP
from bandits.mnist.training import Mnist, MnistTrainer
from common import draws, objectives
from common.runs.trainer import NonFiniteError

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def digits():
    """Ten classes, told apart by which rows of the image are bright."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(400) % 10
    images = torch.randint(0, 40, (400, 28, 28), generator=generator)
    for index, label in enumerate(labels.tolist()):
        images[index, 2 * label + 2 : 2 * label + 4] += 200
    images = images.reshape(400, 784).to(torch.uint8)
    return DigitImages(images[:300], labels[:300], images[300:], labels[300:], digest="synthetic")


def trainer(digits, seeds=range(3), **changes):
    settings = Mnist(**({"steps": 40, "eval_every": 10, "batch": 20, "images": "synthetic"} | changes))
    return MnistTrainer(settings, seeds, CPU, digits)


@pytest.mark.parametrize("objective", objectives.names())
def test_every_objective_trains(digits, objective):
    records = trainer(digits, objective=objective, learning_rate=5e-3, steps=100, eval_every=50).advance(100)
    assert records.steps.tolist() == [0, 50, 100]
    error = records.metrics["error"]
    assert error.shape == (3, 3)
    assert error[:, -1].mean() < error[:, 0].mean()


def test_the_oracle_learns_the_set(digits):
    records = trainer(digits, objective="ce", learning_rate=5e-3, steps=200, eval_every=100).advance(200)
    assert (records.metrics["error"][:, -1] < 0.02).all()


def test_initial_weights_are_lecun_truncated_normal_and_paired():
    first = StackedMLP(50, 0, range(4), CPU).parameters
    second = StackedMLP(50, 0, [2], CPU).parameters
    for layer, fan_in in enumerate((784, 50, 50)):
        weights = first[f"weight{layer}"].detach()
        assert torch.equal(weights[2], second[f"weight{layer}"].detach()[0])
        assert weights.abs().max() <= 2 / 0.8796 * fan_in**-0.5 + 1e-6
        assert weights.var().item() == pytest.approx(1 / fan_in, rel=4 * (2 / weights.numel()) ** 0.5)
        assert not first[f"bias{layer}"].any()


def test_the_stacked_network_is_each_seeds_network(digits):
    policy = StackedMLP(50, 0, range(3), CPU)
    pixels = torch.rand(3, 7, 784)
    stacked = policy.logits(pixels)
    for seed in range(3):
        torch.testing.assert_close(stacked[seed], policy.logits_of_seed(seed, pixels[seed]), rtol=1e-5, atol=1e-6)
        weights = [value.detach()[seed] for value in policy.parameters.values()]
        hidden = torch.relu(torch.relu(pixels[seed] @ weights[0] + weights[1]) @ weights[2] + weights[3])
        torch.testing.assert_close(stacked[seed], hidden @ weights[4] + weights[5], rtol=1e-5, atol=1e-6)


def test_a_stacked_seed_trains_like_a_plain_network_under_torchs_adam(digits):
    stacked = trainer(digits, objective="tpo")
    parameters = stacked._policy.parameters
    plain = [torch.nn.Linear(*shape) for shape in ((784, 50), (50, 50), (50, 10))]
    for layer, linear in enumerate(plain):
        linear.weight.data = parameters[f"weight{layer}"].detach()[1].T.clone()
        linear.bias.data = parameters[f"bias{layer}"].detach()[1, 0].clone()
    network = torch.nn.Sequential(plain[0], torch.nn.ReLU(), plain[1], torch.nn.ReLU(), plain[2])
    adam = torch.optim.Adam(network.parameters(), lr=1e-3)
    for _ in range(3):
        chosen, noise = (drawn[1] for drawn in stacked._draw())
        logp = network(digits.train_images[chosen] / 255).log_softmax(-1)
        actions = draws.categorical(logp.detach(), noise)
        loss = sampled_loss(objectives.get("tpo"), logp, actions, digits.train_labels[chosen]).mean()
        adam.zero_grad()
        loss.backward()
        adam.step()
        stacked.advance(stacked.step + 1)
    # Adam divides by the gradient's size, so rounding near zero gradients can move a weight by a part of a step.
    torch.testing.assert_close(parameters["weight2"].detach()[1], plain[2].weight.detach().T, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(parameters["bias1"].detach()[1, 0], plain[1].bias.detach(), rtol=1e-4, atol=1e-4)
    moved = (parameters["weight2"].detach()[1] - trainer(digits)._policy.parameters["weight2"].detach()[1]).abs().mean()
    assert moved > 1e-3


def test_stopping_and_resuming_changes_no_bit(digits):
    whole = trainer(digits)
    expected = whole.advance(40)
    for cut in (1, 9, 10, 11, 39):
        first = trainer(digits)
        before = first.advance(cut)
        second = trainer(digits)
        second.load_state_dict({name: value.clone() for name, value in first.state_dict().items()})
        second.step = first.step
        after = second.advance(40)
        assert torch.cat([before.steps, after.steps]).tolist() == expected.steps.tolist()
        for name, values in expected.metrics.items():
            assert torch.equal(
                torch.cat([before.metrics[name], after.metrics[name]], 1).nan_to_num(-1), values.nan_to_num(-1)
            )
        for name, value in whole.state_dict().items():
            assert torch.equal(value, second.state_dict()[name]), (cut, name)


def test_objectives_see_the_same_images_and_noise(digits):
    first, second = trainer(digits, objective="pg"), trainer(digits, objective="tpo")
    for drawn, other in zip(first._draw(), second._draw(), strict=True):
        assert torch.equal(drawn, other)


def test_evaluation_is_the_share_of_test_images_missed(digits):
    made = trainer(digits)
    error = made.advance(10).metrics["error"][:, 0]
    fresh = trainer(digits)
    logits = fresh._policy.logits((digits.test_images / 255).expand(3, -1, -1))
    assert error.tolist() == [(row.argmax(-1) != digits.test_labels).double().mean().item() for row in logits]


def test_numbers_that_are_not_finite_stop_the_run(digits):
    made = trainer(digits, learning_rate=1e30)
    with pytest.raises(NonFiniteError, match=r"loss: not finite at step \d+ for seed 0, 1, 2; last good step \d+"):
        made.advance(40)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"steps": 1000, "eval_every": 300}, "eval_every: 300 does not divide steps=1000; e.g. 250 does"),
        ({"eval_every": 0}, "eval_every: 0 is not allowed; it must be at least 1"),
        ({"steps": -5}, "steps: -5 is not allowed; it must be at least 1"),
        ({"learning_rate": 0.0}, "learning_rate: 0.0 is not allowed; it must be greater than 0"),
        ({"batch": 0}, "batch: 0 is not allowed; it must be at least 1"),
        ({"hidden": 0}, "hidden: 0 is not allowed; it must be at least 1"),
        ({"batch": 1, "objective": "grpo"}, "batch: 1 is not allowed; grpo's group is the minibatch of 2 or more"),
    ],
)
def test_settings_that_make_no_sense_are_refused_by_key(changes, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        Mnist(**changes)
