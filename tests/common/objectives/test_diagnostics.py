"""Diagnostics against torch.distributions and direct counts."""

import math

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch.distributions import Categorical, kl_divergence

from common import objectives
from common.objectives import ClippedSurrogate, Signal, clipped, reduce, score_diagnostics, target_diagnostics

PROPERTY = settings(deadline=None, derandomize=True, database=None, max_examples=40)


def categorical(logits):
    # By logits: given probabilities, torch.distributions clamps them at the precision of the type.
    return Categorical(logits=logits, validate_args=False)


class TestTarget:
    @pytest.mark.parametrize("name", ["tpo", "tpo_no_anchor"])
    @PROPERTY
    @given(st.data())
    def test_agrees_with_torch_distributions(self, groups, assert_close, name, data):
        scores, logp_old, logp, _ = data.draw(groups())
        signal = objectives.get(name).signal(scores, logp_old)
        values = target_diagnostics(logp, signal)
        q, p = categorical(signal.target.log()), categorical(logp)
        # KL and entropies are differences or sums of terms of up to 40 nats.
        assert_close(values["kl_q_p"], kl_divergence(q, p), scale=40)
        assert_close(values["entropy_p"], p.entropy(), scale=40)
        assert_close(values["entropy_q"], q.entropy(), scale=40)
        assert_close(values["total_variation"], (q.probs - p.probs).abs().sum(-1) / 2)

    @PROPERTY
    @given(st.data())
    def test_loss_is_divergence_plus_floor(self, groups, assert_close, data):
        scores, logp_old, logp, weights = data.draw(groups())
        objective = objectives.get("tpo")
        signal = objective.signal(scores, logp_old, weights)
        loss = reduce(objective.loss(logp, logp_old, signal), signal.weights, dims=-1)
        values = target_diagnostics(logp, signal)
        assert_close(values["kl_q_p"] + values["entropy_q"], loss, scale=40)
        assert (values["kl_q_p"] >= -40 * torch.finfo(loss.dtype).eps).all()

    @PROPERTY
    @given(st.data())
    def test_multiplicities_are_copies(self, groups, assert_close, data):
        scores, logp_old, logp, multiplicities = (rows[0] for rows in data.draw(groups(batch=1)))
        owner = [candidate for candidate, copies in enumerate(multiplicities.int()) for _ in range(copies)]
        assume(len(owner) >= 2)
        objective = objectives.get("tpo")
        merged = target_diagnostics(logp, objective.signal(scores, logp_old, multiplicities))
        repeated = target_diagnostics(logp[owner], objective.signal(scores[owner], logp_old[owner]))
        for key, value in merged.items():
            assert_close(value, repeated[key], scale=40)

    @pytest.mark.parametrize("name", ["tpo", "tpo_no_anchor", "ce"])
    @pytest.mark.parametrize("poison", [math.nan, math.inf, -math.inf])
    def test_masked_candidates_and_groups_leave(self, name, poison, dtype, assert_close):
        scores = torch.tensor([[1.0, 0.0, poison], [poison] * 3], dtype=dtype)
        logp = torch.tensor([[-1.0, -2.0, poison], [poison] * 3], dtype=dtype)
        weights = torch.tensor([[1.0, 1.0, 0.0], [0.0, 0.0, 0.0]], dtype=dtype)
        rule = objectives.get(name).signal
        values = target_diagnostics(logp - 0.5, rule(scores, logp, weights))
        alone = target_diagnostics(logp[0, :2] - 0.5, rule(scores[0, :2], logp[0, :2]))
        for key, value in values.items():
            assert_close(value[0], alone[key])
            assert value[1].item() == 0

    def test_zero_at_the_target(self, assert_close, dtype):
        scores = torch.tensor([1.0, 0.0, 0.5], dtype=dtype)
        signal = objectives.get("tpo").signal(scores, torch.tensor([-1.0, -3.0, -2.0], dtype=dtype))
        values = target_diagnostics(signal.target.log(), signal)
        assert_close(values["kl_q_p"], 0.0)
        assert_close(values["total_variation"], 0.0)

    def test_one_hot_targets_and_gaps_of_10000_nats(self, dtype):
        signal = objectives.get("ce").signal(torch.tensor([1.0, 0.0, 0.0], dtype=dtype))
        values = target_diagnostics(torch.tensor([-1e4, 0.0, -1e4], dtype=dtype), signal)
        assert {key: value.item() for key, value in values.items()} == {
            "kl_q_p": 1e4,
            "entropy_p": 0.0,
            "entropy_q": 0.0,
            "total_variation": 1.0,
            "max_p": 1.0,
        }

    def test_carry_no_gradient(self):
        logp = torch.zeros(2, requires_grad=True)
        signal = objectives.get("tpo").signal(torch.tensor([1.0, 0.0]), torch.zeros(2))
        assert not any(value.requires_grad for value in target_diagnostics(logp, signal).values())

    def test_need_a_target(self):
        with pytest.raises(
            ValueError, match=r"^signal: these diagnostics need a target, but the signal holds advantages$"
        ):
            target_diagnostics(torch.zeros(2), Signal(advantage=torch.zeros(2)))


class TestScores:
    scores = torch.tensor([[1.0, 1.0, 1.0], [0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [-1.0, 0.0, -1.0], [0.35, 0.35, 0.35]])

    def test_flags(self):
        values = score_diagnostics(self.scores)
        assert values["zero_variance"].tolist() == [True, True, False, False, True]
        assert values["all_fail"].tolist() == [False, True, False, True, False]

    @pytest.mark.parametrize("kind", [torch.int64, torch.bool])
    def test_integer_and_boolean_scores(self, kind):
        values = score_diagnostics(torch.tensor([[1, 1], [0, 0], [1, 0]]).to(kind))
        assert values["zero_variance"].tolist() == [True, True, False]
        assert values["all_fail"].tolist() == [False, True, False]

    @pytest.mark.parametrize("weights", [torch.tensor([0.0, 1.0, 1.0]), torch.tensor([[0.0, 2.0, 0.5]]).expand(5, 3)])
    def test_masked_candidates_do_not_count(self, weights):
        scores = self.scores.clone()
        scores[1, 0] = math.nan
        values = score_diagnostics(scores, weights)
        assert values["zero_variance"].tolist() == [True, True, True, False, True]
        assert values["all_fail"].tolist() == [False, True, True, True, False]

    def test_a_score_that_is_not_a_number_is_no_zero_variance(self):
        assert not score_diagnostics(torch.tensor([1.0, math.nan]))["zero_variance"].item()


class TestClipped:
    def test_needs_the_ratio_and_the_sign(self, dtype):
        ratio = torch.tensor([1.3, 1.3, 0.7, 0.7, 1.1, 0.9, 1.3], dtype=dtype)
        advantage = torch.tensor([1.0, -1.0, 1.0, -1.0, 1.0, -1.0, 0.0], dtype=dtype)
        result = clipped(ClippedSurrogate(0.2), ratio.log(), torch.zeros_like(ratio), Signal(advantage=advantage))
        assert result.tolist() == [True, False, False, True, False, False, False]
