"""Losses: values against textbook forms and torch's own, gradients against what they should be."""

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from common import objectives
from common.objectives import (
    ClippedSurrogate,
    CrossEntropy,
    DelightfulGradient,
    PolicyGradient,
    Signal,
    clipped,
    sequence_logp,
)

PROPERTY = settings(deadline=None, derandomize=True, database=None, max_examples=40)
FOLLOWING_ADVANTAGES = [PolicyGradient(), DelightfulGradient(), ClippedSurrogate(), ClippedSurrogate(beta=0.04)]


def gradient_of(loss, logp, logp_old, signal):
    """Return the terms and ∂(Σ terms)/∂ℓ."""
    leaf = logp.clone().requires_grad_()
    terms = loss(leaf, logp_old, signal)
    return terms.detach(), torch.autograd.grad(terms.sum(), leaf)[0]


class TestCrossEntropy:
    @pytest.mark.parametrize("name", ["tpo", "tpo_no_anchor", "ce"])
    @PROPERTY
    @given(st.data())
    def test_gradient_is_policy_less_target(self, groups, step, assert_close, name, data):
        scores, logp_old, logp, _ = data.draw(groups())
        if name == "ce":
            scores = scores == scores.amax(-1, keepdim=True)
        _, gradient, signal = step(objectives.get(name), scores.to(logp), logp, logp_old)
        assert_close(gradient, torch.softmax(logp, -1) - signal.target)

    @PROPERTY
    @given(st.data())
    def test_gradient_of_a_copied_candidate_is_as_many_times_that(self, groups, step, assert_close, data):
        scores, logp_old, logp, multiplicities = data.draw(groups())
        _, gradient, signal = step(objectives.get("tpo"), scores, logp, logp_old, weights=multiplicities)
        total = (multiplicities * logp.exp()).sum(-1, keepdim=True)
        single = torch.where(total > 0, logp.exp() / total, 0)
        assert_close(gradient, multiplicities * (single - signal.target))
        assert_close((multiplicities * signal.target).sum(-1), (multiplicities.sum(-1) > 0).to(logp))

    @PROPERTY
    @given(st.data())
    def test_gradient_vanishes_at_the_target(self, groups, step, assert_close, data):
        scores, logp_old, _, multiplicities = data.draw(groups())
        q = objectives.get("tpo").signal(scores, logp_old, multiplicities).target
        reached = step(objectives.get("tpo"), scores, q.log(), logp_old, weights=multiplicities)
        assert_close(reached.gradient, torch.zeros_like(q))

    @PROPERTY
    @given(st.data(), st.sampled_from(["tpo", "tpo_no_anchor", "ce"]))
    def test_agrees_with_torch(self, groups, assert_close, data, name):
        scores, logp_old, logp, _ = data.draw(groups())
        if name == "ce":
            scores = (scores > 0).to(logp)
        objective = objectives.get(name)
        signal = objective.signal(scores, logp_old)
        terms, gradient = gradient_of(objective.loss, logp, None, signal)
        leaf = logp.clone().requires_grad_()
        theirs = F.cross_entropy(leaf, signal.target, reduction="none")
        assert_close(terms.sum(-1), theirs.detach())
        assert_close(gradient, torch.autograd.grad(theirs.sum(), leaf)[0])

    def test_refuses_log_probabilities_per_token(self):
        signal = Signal(target=torch.ones(2, 3) / 3)
        with pytest.raises(ValueError, match=r"^logp: shape \(2, 3, 5\) does not match the target's \(2, 3\)"):
            CrossEntropy()(torch.zeros(2, 3, 5), None, signal)

    def test_refuses_advantages(self):
        with pytest.raises(ValueError, match=r"^signal: cross-entropy follows a target"):
            CrossEntropy()(torch.zeros(2), None, Signal(advantage=torch.zeros(2)))


class TestPolicyGradient:
    def test_gradient_is_minus_the_advantage(self, dtype):
        advantage = torch.tensor([0.7, -0.3, 0.0], dtype=dtype)
        logp = torch.tensor([-1.0, -5.0, -0.1], dtype=dtype)
        terms, gradient = gradient_of(PolicyGradient(), logp, None, Signal(advantage=advantage))
        assert terms.equal(-advantage * logp)
        assert gradient.equal(-advantage)


class TestDelightfulGradient:
    @pytest.mark.parametrize("eta", [1e-6, 0.5, 1.0, 1e6])
    def test_the_gate_has_no_gradient_of_its_own(self, dtype, assert_close, eta):
        advantage = torch.tensor([0.7, -0.3, 0.0, 2.0], dtype=dtype)
        logp = torch.tensor([-1.0, -5.0, -0.1, -3.0], dtype=dtype)
        gate = torch.sigmoid(advantage * -logp / eta)
        terms, gradient = gradient_of(DelightfulGradient(eta), logp, None, Signal(advantage=advantage))
        assert_close(terms, -gate * advantage * logp)
        assert_close(gradient, -gate * advantage)

    def test_a_cold_gate_lets_only_delight_pass(self, dtype):
        advantage = torch.tensor([0.5, -0.5], dtype=dtype)
        logp = torch.tensor([-2.0, -2.0], dtype=dtype)
        _, gradient = gradient_of(DelightfulGradient(1e-6), logp, None, Signal(advantage=advantage))
        assert gradient.tolist() == [-0.5, 0.0]

    def test_is_meant_for_one_epoch(self):
        assert {name for name in objectives.names() if objectives.get(name).single_epoch} == {"dg"}


class TestClippedSurrogate:
    @staticmethod
    def textbook(logp, logp_old, advantage, clip, beta):
        difference = (logp - logp_old).clamp(-20, 20)
        ratio = difference.exp()
        surrogate = torch.minimum(ratio * advantage, ratio.clamp(1 - clip, 1 + clip) * advantage)
        return -(surrogate - beta * ((-difference).exp() + difference - 1))

    @pytest.mark.parametrize("beta", [0.0, 0.04, 1.0])
    @PROPERTY
    @given(st.data(), st.sampled_from([0.1, 0.2, 0.9]), st.sampled_from([1, 10]))
    def test_is_the_textbook_form(self, groups, assert_close, beta, data, clip, stretch):
        """Drifts of up to 30 nats: the log-ratio's own limit is passed too."""
        advantage, logp_old, logp, _ = data.draw(groups())
        logp = logp_old + stretch * (logp - logp_old)
        terms, gradient = gradient_of(ClippedSurrogate(clip, beta), logp, logp_old, Signal(advantage=advantage))
        assert_close(terms, self.textbook(logp, logp_old, advantage, clip, beta))
        leaf = logp.clone().requires_grad_()
        (expected,) = torch.autograd.grad(self.textbook(leaf, logp_old, advantage, clip, beta).sum(), leaf)
        assert_close(gradient, expected)

    @pytest.mark.parametrize("beta", [0.0, 0.04])
    @PROPERTY
    @given(st.data())
    def test_is_the_policy_gradient_on_the_snapshot(self, groups, beta, data):
        """There the ratio is 1 and the KL term is flat, both exactly."""
        advantage, logp_old, _, _ = data.draw(groups())
        signal = Signal(advantage=advantage)
        terms, gradient = gradient_of(ClippedSurrogate(beta=beta), logp_old, logp_old.clone(), signal)
        assert gradient.equal(-advantage)
        # −A = (ε|A| − ε|A|) − A up to one rounding.
        torch.testing.assert_close(terms, -advantage, rtol=2 * torch.finfo(terms.dtype).eps, atol=0)

    @pytest.mark.parametrize("name", ["grpo", "grpo_no_kl", "grpo_zv_masked", "ppo"])
    def test_registered_ones_start_as_policy_gradient(self, name, step, dtype):
        objective = objectives.get(name)
        scores = torch.tensor([[1.0, 0.0, 0.0], [0.5, 0.0, 1.0]], dtype=dtype)
        logp = torch.tensor([[-1.0, -7.3, -0.2], [-3.0, -3.1, -19.0]], dtype=dtype)
        assert step(objective, scores, logp).gradient.equal(-objective.signal(scores).advantage)

    @PROPERTY
    @given(st.data(), st.sampled_from([0.1, 0.2, 0.9]))
    def test_passes_no_gradient_exactly_where_it_says_so(self, groups, data, clip):
        advantage, logp_old, logp, _ = data.draw(groups())
        advantage = torch.where(advantage == 0, 1, advantage)
        loss, signal = ClippedSurrogate(clip), Signal(advantage=advantage)
        _, gradient = gradient_of(loss, logp, logp_old, signal)
        assert (gradient == 0).equal(clipped(loss, logp, logp_old, signal))

    def test_snapshot_gets_no_gradient(self, dtype):
        logp, logp_old = (torch.tensor([-1.0, -2.0], dtype=dtype, requires_grad=True) for _ in range(2))
        terms = ClippedSurrogate(beta=0.04)(logp, logp_old, Signal(advantage=torch.ones(2, dtype=dtype)))
        assert torch.autograd.grad(terms.sum(), logp_old, allow_unused=True) == (None,)

    def test_divergence_is_positive_and_pulls_back(self, dtype):
        logp_old = torch.full((4,), -5.0, dtype=dtype)
        logp = logp_old + torch.tensor([-2.0, -0.1, 0.1, 2.0], dtype=dtype)
        terms, gradient = gradient_of(ClippedSurrogate(beta=1.0), logp, logp_old, Signal(advantage=torch.zeros(4)))
        assert (terms > 0).all()
        assert gradient.sign().tolist() == [-1, -1, 1, 1]

    def test_needs_the_behaviour_policy(self):
        with pytest.raises(ValueError, match=r"^logp_old: the clipped surrogate needs"):
            ClippedSurrogate()(torch.zeros(2), None, Signal(advantage=torch.zeros(2)))


@pytest.mark.parametrize("loss", FOLLOWING_ADVANTAGES, ids=repr)
class TestEveryLossThatFollowsAdvantages:
    @pytest.mark.parametrize("tokens", [1, 3, 4])
    def test_an_advantage_per_candidate_applies_to_each_of_its_tokens(self, loss, tokens, dtype):
        """Also where batch, candidates and tokens are equally many, so that a wrong alignment would go unnoticed."""
        generator = torch.Generator().manual_seed(0)
        advantage = torch.randn(3, 3, dtype=dtype, generator=generator)
        logp = -torch.rand(3, 3, tokens, dtype=dtype, generator=generator)
        logp_old = logp + 0.3 * torch.randn(3, 3, tokens, dtype=dtype, generator=generator)
        terms, gradient = gradient_of(loss, logp, logp_old, Signal(advantage=advantage))
        full = Signal(advantage=advantage.unsqueeze(-1).expand(3, 3, tokens))
        expected_terms, expected_gradient = gradient_of(loss, logp, logp_old, full)
        assert terms.shape == logp.shape
        assert terms.equal(expected_terms)
        assert gradient.equal(expected_gradient)

    def test_refuses_a_target(self, loss):
        with pytest.raises(ValueError, match=r"^signal: this loss follows advantages, but the signal holds a target$"):
            loss(torch.zeros(2), torch.zeros(2), Signal(target=torch.ones(2) / 2))


@pytest.mark.parametrize("name", objectives.names())
class TestExtremes:
    def test_log_probabilities_10000_nats_apart_stay_finite(self, name, step, dtype):
        scores = torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, 1.0, 0.0]], dtype=dtype)
        logp = torch.tensor([[-1e4, 0.0, -2e4], [0.0, -1e4, -1e4], [-1e4, -1e4, -1e4]], dtype=dtype)
        for logp_old in (logp, logp.flip(-1), logp - 1e4, logp + 1e4):
            loss, gradient, _ = step(objectives.get(name), scores, logp, logp_old)
            assert loss.isfinite()
            assert gradient.isfinite().all()

    def test_what_is_not_finite_is_not_hidden(self, name, step):
        """A score or log-probability that counts and is not a number makes the loss or the gradient not a number."""
        scores, logp = torch.tensor([1.0, 0.0, 0.0]), torch.tensor([-1.0, -2.0, -3.0])
        bad = torch.tensor([0.0, math.nan, 0.0])
        assert step(objectives.get(name), scores + bad, logp).loss.isnan()
        assert step(objectives.get(name), scores, logp + bad).loss.isnan()


@pytest.mark.parametrize("eta", [1e-6, 1e6])
@pytest.mark.parametrize("name", ["tpo", "tpo_no_anchor", "dg"])
def test_extreme_temperatures_stay_finite(name, eta, step, dtype):
    logp = torch.tensor([-1.0, -50.0, -1e4], dtype=dtype)
    scores = torch.tensor([0.0, 0.0, 1.0], dtype=dtype)
    loss, gradient, _ = step(objectives.get(name, {"eta": eta}), scores, logp)
    assert loss.isfinite()
    assert gradient.isfinite().all()


class TestSequenceLogp:
    def test_sum_and_mean(self, assert_close, dtype):
        tokens = torch.tensor([[-1.0, -2.0, -6.0], [-0.5, 0.0, -1.0]], dtype=dtype)
        assert_close(sequence_logp(tokens), [-9.0, -1.5])
        assert_close(sequence_logp(tokens, how="mean"), [-3.0, -0.5])

    @pytest.mark.parametrize("kind", [torch.bool, torch.int64, torch.float32])
    @pytest.mark.parametrize("poison", [math.nan, -math.inf, 1e30])
    def test_padding_leaves_value_and_gradient(self, kind, poison, assert_close, dtype):
        tokens = torch.tensor([[-1.0, -2.0, poison], [-0.5, poison, poison]], dtype=dtype).requires_grad_()
        mask = torch.tensor([[1, 1, 0], [1, 0, 0]]).to(kind)
        assert_close(sequence_logp(tokens, mask).detach(), [-3.0, -0.5])
        mean = sequence_logp(tokens, mask, "mean")
        assert_close(mean.detach(), [-1.5, -0.5])
        mean.sum().backward()
        assert tokens.grad.tolist() == [[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]]

    @pytest.mark.parametrize("how", ["sum", "mean"])
    def test_a_sequence_without_tokens_gets_zero(self, how):
        assert sequence_logp(torch.tensor([[-1.0, -2.0]]), torch.zeros(1, 2), how).tolist() == [0.0]
        assert sequence_logp(torch.zeros(2, 0), None, how).tolist() == [0.0, 0.0]
        assert sequence_logp(torch.zeros(2, 0), torch.zeros(2, 0), how).tolist() == [0.0, 0.0]

    def test_refuses_other_ways(self):
        with pytest.raises(ValueError, match=r"^how: 'max' is not allowed; choose sum or mean$"):
            sequence_logp(torch.zeros(2), how="max")
