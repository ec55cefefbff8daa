"""Standardised scores: only relative standing within the group counts, and constant groups give exactly 0."""

import math

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from common.objectives import standardise

PROPERTY = settings(deadline=None, derandomize=True, database=None, max_examples=40)


def uniform_weights(scores):
    """Weights that change nothing, so that both ways of averaging are tried."""
    return [None, torch.ones_like(scores), torch.full_like(scores, 0.3)]


@pytest.mark.parametrize(
    "constant",
    [
        [0.35] * 8,
        [1000.35] * 7,
        [-0.1] * 3,
        [1e-30] * 5,
        [16777217.3] * 9,
        [0.1 + 0.2, 0.3, 0.3],
        [1000.35, 1000.3501, 1000.35],
        [0.0, 1e-7],
    ],
)
def test_constant_and_near_constant_groups_are_exactly_zero(constant, dtype):
    scores = torch.tensor(constant, dtype=dtype)
    for weights in uniform_weights(scores):
        u, varied = standardise(scores, weights)
        assert u.tolist() == [0.0] * len(constant)
        assert varied.tolist() == [False]


@pytest.mark.parametrize("level", [0.0, 0.35, 100.35])
def test_one_better_than_seven_equals(level, dtype, assert_close):
    scores = torch.tensor([level] * 7 + [level + 0.6], dtype=dtype)
    expected = [-1 / math.sqrt(7)] * 7 + [math.sqrt(7)]
    for weights in uniform_weights(scores):
        u, varied = standardise(scores, weights)
        # The scores' own rounding grows with their level, and is divided by σ = 0.2.
        assert_close(u, expected, scale=1 + level)
        assert varied.item()


def test_small_differences_at_a_high_level(dtype, assert_close):
    """The rounding of the mean, here 3e-5 in float32, must not shift scores that differ by 8e-3."""
    scores = torch.tensor([1000.0] * 6 + [1000 + 2**-7], dtype=dtype)
    expected = [-1 / math.sqrt(6)] * 6 + [math.sqrt(6)]
    for weights in uniform_weights(scores):
        assert_close(standardise(scores, weights).scores, expected)


@pytest.mark.parametrize("spread", [2e-6, 2e-5])
def test_spread_just_above_the_cutoff_counts(spread, dtype, assert_close):
    scores = torch.tensor([-spread, spread], dtype=dtype)
    assert_close(standardise(scores).scores, [-1.0, 1.0])
    assert not standardise(scores / 100).varied.item()


def test_cutoff_is_relative_to_the_largest_score():
    scores = torch.tensor([1e4, 1e4 + 0.015], dtype=torch.float64)
    assert not standardise(scores).varied.item()
    assert standardise(scores - 1e4).varied.item()


@PROPERTY
@given(st.data(), st.floats(0.125, 64), st.integers(-8, 8))
def test_affine_changes_do_not_count(groups, dtype, assert_close, data, factor, shift):
    scores = data.draw(groups()).scores
    varied = standardise(scores).varied
    # The shifted scores are rounded at the size of the shift, but differ by the factor.
    changed = standardise(factor * scores + shift)
    assert changed.varied.equal(varied)
    assert_close(changed.scores, standardise(scores).scores, scale=1 + abs(shift) / factor)


@PROPERTY
@given(st.data())
def test_mean_zero_and_unit_variance_under_the_weights(groups, dtype, assert_close, data):
    scores, _, _, weights = data.draw(groups())
    u, varied = standardise(scores, weights)
    total = weights.sum(-1)
    assert_close((weights * u).sum(-1), torch.zeros_like(total))
    assert_close((weights * u.square()).sum(-1), total * varied.squeeze(-1))
    assert varied.squeeze(-1).tolist() == [
        len(set(s[w > 0].tolist())) > 1 for s, w in zip(scores, weights, strict=True)
    ]


@PROPERTY
@given(st.data())
def test_probabilities_as_weights_give_expectations(groups, assert_close, data):
    scores, logits, _, _ = data.draw(groups(batch=1))
    policy = torch.softmax(logits / 8, -1)
    mean = (policy * scores).sum()
    variance = (policy * scores.square()).sum() - mean.square()
    assume(variance > 0.01)
    assert_close(standardise(scores, policy).scores, (scores - mean) / variance.sqrt(), scale=10)  # 1/√0.01


def test_epsilon_is_added_to_the_spread(assert_close, dtype):
    assert_close(standardise(torch.tensor([1.0, -1.0], dtype=dtype), epsilon=0.25).scores, [0.8, -0.8])


def test_groups_are_standardised_apart(dtype, assert_close):
    scores = torch.tensor([[0.0, 1.0], [100.0, 103.0]], dtype=dtype)
    assert_close(standardise(scores).scores, [[-1.0, 1.0], [-1.0, 1.0]])


def test_masked_candidates_get_zero(dtype):
    u = standardise(torch.tensor([1.0, 0.0, 5.0], dtype=dtype), torch.tensor([1, 1, 0])).scores
    assert u.tolist() == [1.0, -1.0, 0.0]


@pytest.mark.parametrize("poison", [math.nan, math.inf, -math.inf])
def test_a_score_that_is_not_finite_is_never_taken_for_a_constant_group(poison, dtype):
    scores = torch.tensor([[1.0, poison, 0.0], [1.0, 0.0, 0.0]], dtype=dtype)
    for weights in uniform_weights(scores):
        u, varied = standardise(scores, weights)
        assert u[0].isnan().all()
        assert varied.tolist() == [[True], [True]]
        assert u[1].isfinite().all()


def test_a_batch_without_groups():
    u, varied = standardise(torch.zeros(0, 4))
    assert (u.shape, varied.shape) == ((0, 4), (0, 1))
