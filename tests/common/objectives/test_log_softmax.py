"""The softmax over a group, in which a candidate of weight m counts as m copies."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from common.objectives.groups import log_softmax

PROPERTY = settings(deadline=None, derandomize=True, database=None, max_examples=40)


@PROPERTY
@given(st.data())
def test_agrees_with_torch(groups, assert_close, data):
    logits = data.draw(groups()).logp
    assert_close(log_softmax(logits), torch.log_softmax(logits, -1))
    assert_close(log_softmax(logits, torch.ones_like(logits)), torch.log_softmax(logits, -1))


@PROPERTY
@given(st.data())
def test_weighted_probabilities_sum_to_one(groups, assert_close, data):
    _, _, logits, weights = data.draw(groups())
    logp = log_softmax(logits, weights)
    counted = (weights > 0).any(-1)
    assert_close((weights * logp.exp()).sum(-1), counted.to(logits))
    assert_close(
        (logp - logits)[weights > 0], (-(weights * logits.exp()).sum(-1).log())[:, None].expand_as(logp)[weights > 0]
    )


@pytest.mark.parametrize("weights", [[2.0, 1.0, 0.0], [2, 1, 0]])
@pytest.mark.parametrize("poison", [math.nan, math.inf, -math.inf, 1e30])
def test_masked_candidates_get_zero_and_no_gradient(weights, poison, dtype, assert_close):
    logits = torch.tensor([[1.0, 1.0, poison], [poison] * 3], dtype=dtype).requires_grad_()
    logp = log_softmax(logits, torch.tensor([weights, [0, 0, 0]]))
    assert_close(logp.detach(), [[-math.log(3)] * 2 + [0.0], [0.0] * 3])
    logp[:, 0].sum().backward()
    assert_close(logits.grad, [[1 / 3, -1 / 3, 0.0], [0.0] * 3])


@pytest.mark.parametrize("shift", [1e4, -1e4, 1e30, -1e30])
def test_a_common_shift_of_any_size(shift, dtype, assert_close):
    logits = torch.zeros(4, dtype=dtype) + shift
    assert_close(log_softmax(logits), [-math.log(4)] * 4)
    assert_close(log_softmax(logits, torch.tensor([1, 1, 0, 2])), [-math.log(4)] * 2 + [0.0, -math.log(4)])


def test_gaps_of_10000_nats(dtype):
    logits = torch.tensor([1e4, 0.0, -1e4], dtype=dtype)
    for weights in (None, torch.ones(3)):
        assert log_softmax(logits, weights).tolist() == [0.0, -1e4, -2e4]


def test_impossible_candidates(dtype):
    logits = torch.tensor([0.0, -math.inf, 0.0], dtype=dtype)
    for weights in (None, torch.ones(3)):
        assert log_softmax(logits, weights).exp().tolist() == [0.5, 0.0, 0.5]
