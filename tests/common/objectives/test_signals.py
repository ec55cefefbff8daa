"""Targets and advantages: what a rollout says, once and without gradient."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from common import objectives
from common.objectives import Advantage, GroupAdvantage, Labels, Target, standardise

PROPERTY = settings(deadline=None, derandomize=True, database=None, max_examples=40)
RULES = {name: objectives.get(name).signal for name in objectives.names()}


class TestTarget:
    @PROPERTY
    @given(st.data(), st.sampled_from([0.25, 1.0, 4.0]), st.integers(0, 2**31))
    def test_maximises_the_scores_it_can_afford(self, groups, assert_close, data, eta, seed):
        """Σ r u − η·KL(r ‖ p_old) is below its value at q by exactly η·KL(r ‖ q), for every r on the simplex."""
        scores, logp_old, _, _ = data.draw(groups(batch=1))
        scores, logp_old = scores[0], logp_old[0]
        q = Target(eta)(scores, logp_old).target
        old = torch.log_softmax(logp_old, -1)
        u = standardise(scores).scores

        def value(r):
            return (r * u).sum(-1) - eta * (torch.xlogy(r, r) - r * old).sum(-1)

        others = torch.empty(20, len(q), dtype=q.dtype).exponential_(generator=torch.Generator().manual_seed(seed))
        others = others / others.sum(-1, keepdim=True)
        excess = eta * (torch.xlogy(others, others) - others * q.log()).sum(-1)
        # q may be as small as e⁻⁴⁰, so that the terms reach 40·η.
        assert_close(value(q) - value(others), excess, scale=40 * eta)

    @PROPERTY
    @given(st.data(), st.sampled_from([0.25, 1.0, 4.0]), st.integers(0, 2**31))
    def test_every_small_step_away_from_it_is_worse(self, data, eta, seed):
        generator = torch.Generator().manual_seed(seed)
        size = data.draw(st.integers(2, 6))
        scores, logp_old = torch.randn(2, size, dtype=torch.float64, generator=generator)
        q = Target(eta)(scores, logp_old).target
        u = standardise(scores).scores
        step = torch.randn(20, size, dtype=torch.float64, generator=generator)
        step = step - step.mean(-1, keepdim=True)
        step = 1e-3 * q.min() * step / step.abs().amax(-1, keepdim=True)

        def value(r):
            return (r * u).sum(-1) - eta * (r * (r.log() - torch.log_softmax(logp_old, -1))).sum(-1)

        loss = value(q) - value(q + step)
        expected = eta / 2 * (step.square() / q).sum(-1)  # to second order; the third is at most 1e-3 / 3 of it
        # The difference of two values of size ~η·10 is rounded at ~1e-14.
        torch.testing.assert_close(loss, expected, rtol=1e-3, atol=1e-13 * max(1, eta))

    @PROPERTY
    @given(st.data(), st.sampled_from([0.25, 1.0, 4.0]))
    def test_is_the_old_policy_tilted(self, groups, assert_close, data, eta):
        scores, logp_old, _, _ = data.draw(groups())
        signal = Target(eta)(scores, logp_old)
        u = standardise(scores).scores
        assert_close(signal.target, torch.softmax(logp_old + u / eta, -1))
        assert_close(Target(eta, anchored=False)(scores).target, torch.softmax(u / eta, -1))

    @PROPERTY
    @given(st.data(), st.floats(0.125, 64), st.integers(-8, 8))
    def test_affine_score_changes_do_not_count(self, groups, assert_close, data, factor, shift):
        scores, logp_old, _, _ = data.draw(groups())
        target = Target()(scores, logp_old).target
        changed = Target()(factor * scores + shift, logp_old).target
        assert_close(changed, target, scale=1 + abs(shift) / factor)  # as for the standardised scores

    @PROPERTY
    @given(st.data(), st.floats(-1e3, 1e3))
    def test_baseline_changes_nothing(self, groups, assert_close, data, baseline):
        scores, logp_old, _, _ = data.draw(groups())
        changed = Target()(scores, logp_old, baseline=baseline).target
        assert_close(changed, Target()(scores, logp_old).target, scale=max(1, abs(baseline) / 0.1))  # σ ≥ 0.09

    def test_equal_scores_leave_the_old_policy(self, assert_close, dtype):
        logp_old = torch.tensor([-3.0, -1.0, -2.0], dtype=dtype)
        signal = Target()(torch.full((3,), 0.35, dtype=dtype), logp_old)
        assert_close(signal.target, torch.softmax(logp_old, -1))
        assert not signal.varied.item()

    def test_shift_of_the_log_probabilities_does_not_count(self, assert_close, dtype):
        scores = torch.tensor([1.0, 0.0, 0.5], dtype=dtype)
        logp_old = torch.tensor([-1.0, -2.0, -4.0], dtype=dtype)
        assert_close(Target()(scores, logp_old - 512).target, Target()(scores, logp_old).target)

    def test_a_cold_target_is_the_best_candidate(self, dtype):
        scores = torch.tensor([0.0, 1.0, 0.75], dtype=dtype)
        target = Target(eta=1e-4)(scores, torch.tensor([-1.0, -50.0, -1.0], dtype=dtype)).target
        assert target.tolist() == [0.0, 1.0, 0.0]

    def test_a_cold_target_shares_ties_as_the_old_policy_does(self, dtype, assert_close):
        scores = torch.tensor([0.0, 1.0, 1.0], dtype=dtype)
        logp_old = torch.tensor([0.1, 0.3, 0.6], dtype=dtype).log()
        # The tilt of u/η ~ 7e3 rounds the log-probabilities that are added to it.
        assert_close(Target(eta=1e-4)(scores, logp_old).target, [0.0, 1 / 3, 2 / 3], scale=1e3)

    def test_a_hot_target_is_the_old_policy(self, dtype, assert_close):
        scores = torch.tensor([0.0, 1.0, 0.75], dtype=dtype)
        logp_old = torch.tensor([-1.0, -5.0, -2.0], dtype=dtype)
        assert_close(Target(eta=1e13)(scores, logp_old).target, torch.softmax(logp_old, -1))

    def test_log_probabilities_10000_nats_apart(self, dtype):
        scores = torch.tensor([1.0, 0.0, 0.0], dtype=dtype)
        assert Target()(scores, torch.tensor([-1e4, 0.0, -2e4], dtype=dtype)).target.tolist() == [0.0, 1.0, 0.0]

    def test_anchor_needs_the_behaviour_policy(self):
        with pytest.raises(ValueError, match=r"^logp_old: the anchored target needs"):
            Target()(torch.tensor([1.0, 0.0]))

    def test_unanchored_target_ignores_the_behaviour_policy(self):
        scores = torch.tensor([1.0, 0.0, 0.5])
        rule = Target(anchored=False)
        assert rule(scores, torch.tensor([0.0, -9.0, -3.0])).target.equal(rule(scores).target)


class TestLabels:
    def test_shares_the_mass_among_the_correct(self):
        assert Labels()(torch.tensor([[0.0, 1.0, 0.0], [1.0, 0.0, 1.0]])).target.tolist() == [[0, 1, 0], [0.5, 0, 0.5]]

    def test_a_group_without_a_correct_candidate_has_no_target(self):
        assert Labels()(torch.zeros(3)).target.tolist() == [0, 0, 0]

    def test_copies_of_a_correct_candidate_share_its_mass(self):
        target = Labels()(torch.tensor([1.0, 1.0, 0.0]), weights=torch.tensor([3.0, 1.0, 5.0])).target
        assert target.tolist() == [0.25, 0.25, 0]

    def test_a_masked_correct_candidate_has_no_mass(self):
        target = Labels()(torch.tensor([1.0, 0.0]), weights=torch.tensor([0.0, 1.0])).target
        assert target.tolist() == [0, 0]


class TestAdvantages:
    def test_baseline_is_subtracted(self):
        assert Advantage()(torch.tensor([1.0, 0.0]), baseline=0.25).advantage.tolist() == [0.75, -0.25]
        per_position = Advantage()(torch.tensor([[1.0, 0.0], [0.0, 0.0]]), baseline=torch.tensor([0.5, 0.0]))
        assert per_position.advantage.tolist() == [[0.5, 0.0], [-0.5, 0.0]]
        assert Advantage()(torch.tensor([1.0, 0.0])).advantage.tolist() == [1.0, 0.0]

    @PROPERTY
    @given(st.data(), st.sampled_from([0.0, 1e-8, 0.5]))
    def test_within_groups(self, groups, assert_close, data, epsilon):
        scores = data.draw(groups()).scores
        deviation = scores.std(-1, correction=0, keepdim=True)
        expected = torch.where(deviation > 0.05, (scores - scores.mean(-1, keepdim=True)) / (deviation + epsilon), 0)
        assert_close(GroupAdvantage(epsilon)(scores).advantage, expected)

    def test_zero_variance_groups_are_dropped_on_request(self):
        scores = torch.tensor([[1.0, 1.0], [1.0, 0.0]])
        dropped = GroupAdvantage(drop_zero_variance=True)
        assert dropped(scores).weights.tolist() == [[0, 0], [1, 1]]
        assert dropped(scores, weights=torch.tensor([2.0, 3.0])).weights.tolist() == [[0, 0], [2, 3]]
        assert GroupAdvantage()(scores).weights is None


@pytest.mark.parametrize("name", RULES)
class TestEveryRule:
    def test_carries_no_gradient(self, name):
        scores, logp_old, baseline, logits = (torch.randn(3, 4, requires_grad=True) for _ in range(4))
        weights = torch.softmax(logits, -1)
        signal = RULES[name](scores.sigmoid(), logp_old, weights, baseline)
        for part in (signal.target, signal.advantage, signal.weights):
            assert part is None or not part.requires_grad

    @pytest.mark.parametrize("kind", [torch.bool, torch.int64, torch.int8])
    def test_takes_integer_and_boolean_scores(self, name, kind):
        scores = torch.tensor([[1, 0, 0], [1, 1, 0]])
        logp_old = torch.randn(2, 3)
        whole, real = (RULES[name](s, logp_old, baseline=0.5) for s in (scores.to(kind), scores.float()))
        assert (whole.target if whole.advantage is None else whole.advantage).equal(
            real.target if real.advantage is None else real.advantage
        )

    def test_says_which_groups_vary(self, name):
        signal = RULES[name](torch.tensor([[1.0, 1.0], [1.0, 0.0]]), torch.zeros(2, 2))
        expected = None if isinstance(RULES[name], Advantage | Labels) else [[False], [True]]
        assert (signal.varied if signal.varied is None else signal.varied.tolist()) == expected

    @pytest.mark.parametrize("shape", [(), (1,), (5, 1), (3, 0)])
    def test_a_group_needs_two_candidates(self, name, shape):
        rule = RULES[name]
        if not rule.grouped:
            assert rule(torch.ones(shape), torch.zeros(shape)).advantage.shape == shape
            return
        with pytest.raises(ValueError, match="at least 2 candidates") as caught:
            rule(torch.ones(shape), torch.zeros(shape))
        assert "\n" not in str(caught.value)
        assert str(shape) in str(caught.value)


class TestGroupCount:
    scores = torch.tensor([[[1.0, 0.0], [1.0, 1.0], [0.0, 0.0]], [[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]]])

    def test_counts_every_group_without_weights(self):
        assert GroupAdvantage()(self.scores).group_count().tolist() == [3, 3]

    def test_leaves_out_dropped_groups(self):
        signal = GroupAdvantage(drop_zero_variance=True)(self.scores)
        assert signal.group_count().tolist() == [1, 3]
        assert signal.group_count((0, 1)).tolist() == 4

    def test_leaves_out_groups_that_are_all_masked(self):
        weights = torch.tensor([[[1.0], [0.0], [2.0]]]).expand(2, 3, 1)
        assert Target()(self.scores, torch.zeros(2, 3, 2), weights).group_count().tolist() == [2, 2]
        one_candidate_left = torch.tensor([0.0, 1.0])
        assert Target()(self.scores, torch.zeros(2, 3, 2), one_candidate_left).group_count().tolist() == [3, 3]

    def test_a_single_group(self):
        assert Target()(torch.tensor([1.0, 0.0]), torch.zeros(2)).group_count().tolist() == 1
