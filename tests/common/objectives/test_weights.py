"""Candidate weights: masks, multiplicities and probabilities are one thing, in the statistics and in the loss."""

import math

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from common import objectives
from common.objectives import reduce

PROPERTY = settings(deadline=None, derandomize=True, database=None, max_examples=30)
NAMES = objectives.names()


def scores_for(objective, scores):
    """Labels are 0 or 1."""
    return (scores > 0).to(scores.dtype) if objective.needs_labels else scores


@pytest.fixture(params=NAMES)
def objective(request):
    return objectives.get(request.param)


@pytest.mark.parametrize("name", NAMES)
@PROPERTY
@given(st.data())
def test_a_multiplicity_is_that_many_copies(groups, step, assert_close, name, data):
    """The loss is the same, and m copies share the gradient of the one candidate of weight m."""
    objective = objectives.get(name)
    scores, logp_old, logp, multiplicities = (rows[0] for rows in data.draw(groups(batch=1)))
    owner = [candidate for candidate, copies in enumerate(multiplicities.int()) for _ in range(copies)]
    assume(len(owner) >= 2)
    scores = scores_for(objective, scores)

    merged = step(objective, scores, logp, logp_old, weights=multiplicities)
    repeated = step(objective, scores[owner], logp[owner], logp_old[owner])

    assert_close(merged.loss, repeated.loss, scale=40)  # a sum over up to 18 terms of size 20
    assert_close((merged.gradient / multiplicities.clamp_min(1))[owner], repeated.gradient)
    assert merged.gradient[multiplicities == 0].eq(0).all()


@pytest.mark.parametrize("name", NAMES)
@PROPERTY
@given(st.data(), st.sampled_from([math.nan, math.inf, -math.inf]), st.sampled_from([math.nan, math.inf, -math.inf]))
def test_a_masked_candidate_is_as_good_as_removed(groups, step, assert_close, name, data, bad_score, bad_logp):
    objective = objectives.get(name)
    scores, logp_old, logp, _ = data.draw(groups())
    assume(scores.shape[-1] > 2)
    scores = scores_for(objective, scores)
    position = data.draw(st.integers(0, scores.shape[-1] - 1))
    others = torch.arange(scores.shape[-1]) != position
    removed = step(objective, scores[:, others], logp[:, others], logp_old[:, others])

    for poison in [(bad_score, 0, 0), (0, bad_logp, 0), (bad_score, bad_logp, bad_logp)]:
        poisoned = [tensor.clone() for tensor in (scores, logp, logp_old)]
        for tensor, value in zip(poisoned, poison, strict=True):
            tensor[:, position] += value
        masked = step(objective, *poisoned, weights=others.to(scores.dtype))
        assert_close(masked.loss, removed.loss, scale=40)
        assert_close(masked.gradient[:, others], removed.gradient)
        assert masked.gradient[:, position].tolist() == [0.0] * len(scores)
        if masked.signal.target is not None:
            assert masked.signal.target[:, position].tolist() == [0.0] * len(scores)


def test_one_of_two_groups_masked(objective, step, dtype, assert_close):
    scores = torch.tensor([[1.0, 0.0], [0.0, 1.0]], dtype=dtype)
    logp = torch.tensor([[-1.0, -2.0], [-3.0, -1.0]], dtype=dtype)
    weights = torch.tensor([[1.0, 1.0], [0.0, 0.0]], dtype=dtype)
    both = step(objective, scores, logp, logp - 0.1, weights=weights)
    alone = step(objective, scores[0], logp[0], logp[0] - 0.1)
    assert_close(both.loss, alone.loss)
    assert_close(both.gradient[0], alone.gradient)
    assert both.gradient[1].tolist() == [0.0, 0.0]
    assert alone.gradient.abs().max() > 0.1


@pytest.mark.parametrize("kind", [torch.bool, torch.int64, None])
def test_everything_masked_gives_zero_with_a_graph(objective, dtype, kind):
    scores = torch.tensor([[1.0, math.nan, 0.0]] * 2, dtype=dtype)
    logp = torch.tensor([[-1.0, -math.inf, math.nan]] * 2, dtype=dtype).requires_grad_()
    weights = torch.zeros(2, 3, dtype=kind or dtype)
    signal = objective.signal(scores, logp.detach(), weights)
    loss = reduce(objective.loss(logp, logp.detach(), signal), signal.weights, normaliser=signal.group_count())
    assert loss.item() == 0
    assert loss.requires_grad
    loss.backward()
    assert logp.grad.tolist() == [[0.0] * 3] * 2


@pytest.mark.parametrize("kind", [None, torch.int64, torch.bool])
def test_weights_of_any_shape_that_fits(objective, step, dtype, assert_close, kind):
    generator = torch.Generator().manual_seed(0)
    logp = torch.randn(4, 2, 3, dtype=dtype, generator=generator)
    scores = torch.randint(0, 2, (4, 2, 3), generator=generator).to(dtype)
    for shape in [(), (1,), (3,), (1, 3), (2, 1), (2, 3), (1, 2, 3), (4, 1, 3), (4, 2, 1), (4, 2, 3)]:
        weights = ((torch.arange(math.prod(shape)) + 1) % 4).view(shape).to(kind or dtype)
        small = step(objective, scores, logp, logp + 0.1, weights=weights)
        full = step(objective, scores, logp, logp + 0.1, weights=weights.to(dtype).expand(4, 2, 3).contiguous())
        assert_close(small.loss, full.loss)
        assert_close(small.gradient, full.gradient)
        assert small.signal.group_count().equal(full.signal.group_count())
        assert full.gradient.abs().max() > 0.1


@pytest.mark.parametrize("shape", [(4,), (2,), (3, 1), (2, 4), (5, 2, 3), (1, 2, 3)])
def test_weights_that_do_not_fit_are_refused(objective, shape):
    with pytest.raises(ValueError, match=r"^weights: shape .* does not fit candidates of shape \(2, 3\)$"):
        objective.signal(torch.ones(2, 3), torch.zeros(2, 3), torch.ones(shape))


def test_a_common_factor_scales_the_loss_and_leaves_the_signal(objective, step, dtype, assert_close):
    """Only the ratios of the weights enter the statistics; a target is a probability per copy."""
    scores = torch.tensor([1.0, 0.0, 0.0], dtype=dtype)
    logp = torch.tensor([-1.0, -2.0, -0.5], dtype=dtype)
    weights = torch.tensor([1.0, 2.0, 3.0], dtype=dtype)
    once = step(objective, scores, logp, logp - 0.1, weights=weights)
    four_times = step(objective, scores, logp, logp - 0.1, weights=4 * weights)
    if objective.loss.follows == "target":
        assert_close(4 * four_times.signal.target, once.signal.target)
        assert_close(four_times.gradient, once.gradient)
    else:
        assert_close(four_times.signal.advantage, once.signal.advantage)
        assert_close(four_times.gradient, 4 * once.gradient)
