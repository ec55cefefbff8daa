"""The mechanism study's expected updates, by autograd, against the closed forms of the paper (section 4)."""

import math

import pytest
import torch

from bandits.mnist.feedback import sampled_loss
from bandits.mnist.mechanism import expected_update, has_expected_update, surplus, surplus_by_confusion
from common import draws, objectives

CLASSES = 10
LAMBDA = math.exp(10 / 3)


@pytest.fixture
def policies():
    generator = torch.Generator().manual_seed(3)
    return (3 * torch.randn(40, CLASSES, generator=generator, dtype=torch.float64)).softmax(-1)


@pytest.fixture
def labels():
    return torch.randint(CLASSES, (40,), generator=torch.Generator().manual_seed(4))


def _gamma(r):
    return r * (LAMBDA - 1) / (LAMBDA * (1 - r) + r)


def _beta_plus(p):
    return p * (LAMBDA - 1) / (1 - p + LAMBDA * p)


def _delight(advantage, probability):
    return 1 / (1 + math.exp(advantage * math.log(probability)))


def _closed_form(name, policy, y):
    """Expected logit update of one image, straight from the paper's formulas."""
    p, b = policy[y].item(), policy.square().sum().item()
    unit = torch.eye(CLASSES, dtype=torch.float64)
    v = unit[y] - policy
    wrong = [j for j in range(CLASSES) if j != y]
    if name == "tpo":
        away = sum(policy[j] * _gamma(policy[j].item()) * (policy - unit[j]) for j in wrong)
        return p * _beta_plus(p) * v + away
    if name == "dg":
        towards = p * (1 - b) * _delight(1 - b, p) * v
        return towards - b * sum(policy[j] * _delight(-b, policy[j].item()) * (unit[j] - policy) for j in wrong)
    return {"pg": 1.0, "group_pg": 6.0}[name] * p * v


def _closed_form_beta(name, p):
    q = (1 - p) / (CLASSES - 1)
    if name == "tpo":
        return p * _beta_plus(p) + p * _gamma(q)
    if name == "dg":
        b = p**2 + 9 * q**2
        return p * (1 - b) * _delight(1 - b, p) + p * b * _delight(-b, q)
    return {"pg": 1.0, "group_pg": 6.0}[name] * p


@pytest.mark.parametrize("name", ["tpo", "dg", "pg", "group_pg"])
def test_expected_update_is_the_closed_form(name, policies, labels):
    updates = expected_update(objectives.get(name), policies, labels)
    for policy, y, update in zip(policies, labels, updates, strict=True):
        torch.testing.assert_close(update, _closed_form(name, policy, y), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ["tpo", "dg", "pg", "group_pg"])
def test_surplus_is_measured_against_the_symmetric_closed_form(name, policies, labels):
    measured = surplus(objectives.get(name), policies, labels)
    for policy, y, value in zip(policies, labels, measured, strict=True):
        p = policy[y]
        direction = torch.eye(CLASSES, dtype=torch.float64)[y] - policy
        gain = p * (direction @ _closed_form(name, policy, y))
        expected = gain - p * _closed_form_beta(name, p.item()) * (direction @ direction)
        torch.testing.assert_close(value, expected, rtol=1e-9, atol=1e-12)


def test_surplus_vanishes_on_a_symmetric_policy():
    policy = torch.full((1, CLASSES), 0.7 / 9, dtype=torch.float64)
    policy[0, 3] = 0.3
    for name in ("tpo", "dg", "pg", "group_pg"):
        assert surplus(objectives.get(name), policy, torch.tensor([3])).abs().item() < 1e-15


def test_bins_hold_the_misclassified_images_by_their_confusion():
    def policy(correct, confused):
        rest = (1 - correct - confused) / 8
        return [correct, confused, *[rest] * 8]

    rows = torch.tensor(
        [
            policy(0.12, 0.14),
            policy(0.2, 0.3),
            policy(0.1, 0.6),
            policy(0.05, 0.9),
            policy(0.3, 0.65),
            policy(0.6, 0.3),
        ],
        dtype=torch.float64,
    )
    objective = objectives.get("tpo")
    labels = torch.zeros(len(rows), dtype=torch.int64)
    means, counts = surplus_by_confusion(objective, rows, labels)
    assert counts.tolist() == [1, 1, 1, 2]  # the last row is classified correctly
    single = surplus(objective, rows, labels)
    torch.testing.assert_close(means, torch.stack([single[0], single[1], single[2], single[3:5].mean()]))


def test_empty_bins_are_nan():
    policy = torch.tensor([[0.05, 0.9, *[0.05 / 8] * 8]], dtype=torch.float64)
    means, counts = surplus_by_confusion(objectives.get("dg"), policy, torch.tensor([0]))
    assert counts.tolist() == [0, 0, 0, 1]
    assert means.isnan().tolist() == [True, True, True, False]


def test_only_image_wise_objectives_that_learn_from_reward_have_an_expected_update():
    having = {name for name in objectives.names() if has_expected_update(objectives.get(name))}
    assert having == {"pg", "dg", "ppo", "group_pg", "tpo", "tpo_no_anchor"}


def test_grpo_is_standardised_over_the_minibatch_then_policy_gradient():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(2, 30, CLASSES, generator=generator, dtype=torch.float64, requires_grad=True)
    labels = torch.randint(CLASSES, (2, 30), generator=generator)
    actions = draws.categorical(logits.detach().log_softmax(-1), torch.rand(2, 30, generator=generator).double())
    loss = sampled_loss(objectives.get("grpo"), logits.log_softmax(-1), actions, labels).mean(-1).sum()
    (gradient,) = torch.autograd.grad(loss, logits)
    rewards = (actions == labels).double()
    advantage = (rewards - rewards.mean(-1, keepdim=True)) / (rewards.std(-1, correction=0, keepdim=True) + 1e-8)
    one_hot = torch.nn.functional.one_hot(actions, CLASSES)
    expected = -advantage[..., None] * (one_hot - logits.detach().softmax(-1)) / 30
    torch.testing.assert_close(gradient, expected, rtol=1e-9, atol=1e-12)


def test_tpo_uses_only_the_sign_of_the_advantage():
    logp = torch.tensor([[0.5, 0.3, *[0.2 / 8] * 8]], dtype=torch.float64).log().requires_grad_()
    (gradient,) = torch.autograd.grad(
        sampled_loss(objectives.get("tpo"), logp, torch.tensor([1]), torch.tensor([0])).sum(), logp
    )
    u = torch.full((10,), 1 / 3, dtype=torch.float64)
    u[1] = -3
    target = (logp.detach()[0] + u).softmax(-1)
    torch.testing.assert_close(gradient[0], logp.detach()[0].exp() - target)


def test_sampled_classes_follow_the_policy():
    policy = torch.tensor([0.5, 0.0, 0.3, 0.2])
    noise = torch.arange(1000) / 1000
    counts = torch.bincount(draws.categorical(policy.log().expand(1000, 4), noise), minlength=4)
    assert (counts - torch.tensor([500, 0, 300, 200])).abs().max() <= 1
    assert counts[1] == 0
    assert draws.categorical(policy.log(), torch.tensor(1 - 2**-24)).item() == 3
