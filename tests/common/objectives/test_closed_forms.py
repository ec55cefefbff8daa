"""What autograd through the objectives gives, against the paper's formulas (arXiv 2604.06159, sections 3 and 4).

With a correct action y and a policy π = softmax(logits), every expected logit update is written in v = e_y − π.
"""

import math

import pytest
import torch
from torch import Tensor

from common import objectives
from common.objectives import reduce

ACTIONS = [2, 4, 10, 100]
BETAS = {
    "ce": lambda p, lam, eta: torch.ones_like(p),
    "pg": lambda p, lam, eta: p,
    "ppo": lambda p, lam, eta: p,
    "dg": lambda p, lam, eta: p * torch.sigmoid(-p.log() / eta),
    "grpo": lambda p, lam, eta: (p / (1 - p)).sqrt(),
    "grpo_no_kl": lambda p, lam, eta: (p / (1 - p)).sqrt(),
    "tpo": lambda p, lam, eta: p * (lam - 1) / (1 - p + lam * p),
}


def options_of(name: str, eta: float) -> dict[str, float]:
    """Return η where there is one; the formula for GRPO leaves out its ε."""
    options = objectives.get(name).options
    return {key: value for key, value in {"eta": eta, "std_epsilon": 0.0}.items() if key in options}


def odds(actions: int, eta: float) -> float:
    """Return λ: the standardised score of the one rewarded action exceeds the others' by A / √(A − 1)."""
    return math.exp(actions / math.sqrt(actions - 1) / eta)


def drawn_logits(contexts: int, actions: int, dtype: torch.dtype, seed: int = 0) -> Tensor:
    return torch.randn(contexts, actions, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def update_of(loss: Tensor, logits: Tensor) -> Tensor:
    return -torch.autograd.grad(loss, logits)[0]


@pytest.mark.parametrize("eta", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("actions", ACTIONS)
@pytest.mark.parametrize("name", BETAS)
def test_exact_update_of_enumerated_actions(name, actions, eta, dtype, assert_close):
    objective = objectives.get(name, options_of(name, eta))
    logits = drawn_logits(20, actions, dtype).requires_grad_()
    logp = torch.log_softmax(logits, -1)
    policy = logp.detach().exp()
    correct = torch.zeros_like(policy)
    correct[torch.arange(20), torch.arange(20) % actions] = 1

    weights = None if objective.over_actions else policy
    signal = objective.signal(correct, logp.detach(), weights)
    update = update_of(reduce(objective.loss(logp, logp.detach(), signal), signal.weights), logits)

    beta = BETAS[name]((correct * policy).sum(-1, keepdim=True), odds(actions, eta), eta)
    assert_close(update, beta * (correct - policy))


class TestExpectationOverTheSampledAction:
    """One action a ~ π, its reward 1{a = y}, the baseline b = Σ π², and scores (r − b)·e_a over all actions."""

    @pytest.fixture(params=[2, 4, 10])
    def actions(self, request):
        return request.param

    @pytest.fixture(params=range(3))
    def logits(self, actions, dtype, request):
        return drawn_logits(1, actions, dtype, seed=request.param)[0].requires_grad_()

    @staticmethod
    def expected_update(name, eta, logits):
        """Return the mean over a of minus the gradient through the objective, given that a was sampled."""
        actions = len(logits)
        objective = objectives.get(name, options_of(name, eta))
        logp = torch.log_softmax(logits, -1).expand(actions, -1)
        policy = logp[0].detach().exp()
        sampled = torch.eye(actions, dtype=logits.dtype)
        reward = sampled[:, :1]
        scores = sampled * (reward - policy.square().sum())
        signal = objective.signal(scores, logp.detach())
        terms = objective.loss(logp, logp.detach(), signal)
        if objective.loss.follows == "advantage":
            terms = terms * sampled
        return update_of(reduce(terms.sum(-1), policy), logits), policy

    @pytest.mark.parametrize("eta", [0.5, 1.0, 2.0])
    def test_tpo(self, logits, actions, eta, assert_close):
        update, policy = self.expected_update("tpo", eta, logits)
        lam = odds(actions, eta)
        p, unit = policy[0], torch.eye(actions, dtype=policy.dtype)
        beta_plus = p * (lam - 1) / (1 - p + p * lam)
        gamma = policy * (lam - 1) / (lam * (1 - policy) + policy)
        pushed_away = (policy * gamma).unsqueeze(-1) * (policy - unit)
        assert_close(update, p * beta_plus * (unit[0] - policy) + pushed_away[1:].sum(0))

    @pytest.mark.parametrize("eta", [0.5, 1.0, 2.0])
    def test_dg(self, logits, actions, eta, assert_close):
        update, policy = self.expected_update("dg", eta, logits)
        p, unit = policy[0], torch.eye(actions, dtype=policy.dtype)
        b = policy.square().sum()
        gate = torch.sigmoid(b * policy.log() / eta)
        wrong = (policy * gate).unsqueeze(-1) * (unit - policy)
        right = p * (1 - b) * torch.sigmoid((b - 1) * p.log() / eta)
        assert_close(update, right * (unit[0] - policy) - b * wrong[1:].sum(0))

    @pytest.mark.parametrize("name", ["pg", "ppo"])
    def test_pg_whatever_the_baseline(self, name, logits, actions, assert_close):
        update, policy = self.expected_update(name, 1.0, logits)
        assert_close(update, policy[0] * (torch.eye(actions, dtype=policy.dtype)[0] - policy))

    def test_group_pg_sees_only_the_sign(self, logits, actions, assert_close):
        update, policy = self.expected_update("group_pg", 1.0, logits)
        factor = 2 * math.sqrt(actions - 1)  # 6 for ten actions
        assert_close(update, factor * policy[0] * (torch.eye(actions, dtype=policy.dtype)[0] - policy))
