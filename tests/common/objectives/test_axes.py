"""Leading axes are free and the order of candidates is no information."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from common import objectives
from common.objectives import reduce

PROPERTY = settings(deadline=None, derandomize=True, database=None, max_examples=30)
NAMES = objectives.names()


def drawn(objective, shape, dtype, seed=0):
    """Return scores, old and new log-probabilities and weights, with constant and all-masked groups among them."""
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randint(0, 2, shape, generator=generator).to(dtype)
    logp_old = -4 * torch.rand(shape, dtype=dtype, generator=generator)
    logp = logp_old + torch.randn(shape, dtype=dtype, generator=generator) / 2
    weights = torch.randint(0, 3, shape, generator=generator).to(dtype)
    if objective.grouped:
        scores[..., 0, :] = 1
        weights[..., -1, :] = 0
    return scores, logp_old, logp, weights


@pytest.mark.parametrize("leading", [(4,), (3, 4), (2, 1, 4)])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_a_batch_is_its_groups_one_by_one(name, leading, weighted, step, dtype, assert_close):
    objective = objectives.get(name)
    scores, logp_old, logp, weights = drawn(objective, (*leading, 4), dtype)
    weights = weights if weighted else None
    whole = step(objective, scores, logp, logp_old, weights=weights)
    total = torch.zeros((), dtype=dtype)
    for index in torch.cartesian_prod(*map(torch.arange, leading)).view(-1, len(leading)).tolist():
        at = tuple(index)
        one = step(objective, scores[at], logp[at], logp_old[at], weights=None if weights is None else weights[at])
        assert_close(whole.gradient[at], one.gradient)
        total += one.loss
    assert_close(whole.loss, total)
    assert whole.gradient.abs().max() > 0.1


@pytest.mark.parametrize("name", NAMES)
def test_seeds_keep_their_own_losses(name, step, dtype, assert_close):
    objective = objectives.get(name)
    scores, logp_old, logp, weights = drawn(objective, (3, 4, 5), dtype)
    signal = objective.signal(scores, logp_old, weights)
    counts = signal.group_count()
    losses = reduce(objective.loss(logp, logp_old, signal), signal.weights, dims=(-2, -1), normaliser=counts)
    assert losses.shape == (3,)
    for seed in range(3):
        alone = step(
            objective, scores[seed], logp[seed], logp_old[seed], weights=weights[seed], normaliser=counts[seed]
        )
        assert_close(losses[seed], alone.loss)


@pytest.mark.parametrize("name", NAMES)
@PROPERTY
@given(st.data())
def test_candidates_may_come_in_any_order(groups, step, assert_close, name, data):
    objective = objectives.get(name)
    scores, logp_old, logp, multiplicities = data.draw(groups())
    if objective.needs_labels:
        scores = (scores > 0).to(logp)
    order = data.draw(st.permutations(range(scores.shape[-1])))
    as_given = step(objective, scores, logp, logp_old, weights=multiplicities)
    shuffled = step(objective, scores[:, order], logp[:, order], logp_old[:, order], weights=multiplicities[:, order])
    assert_close(shuffled.loss, as_given.loss, scale=40)  # a sum over up to 18 terms of size 20
    assert_close(shuffled.gradient, as_given.gradient[:, order])


@pytest.mark.parametrize("name", NAMES)
def test_a_batch_of_no_groups(name, step):
    loss, gradient, signal = step(objectives.get(name), torch.zeros(0, 4), torch.zeros(0, 4))
    assert loss.item() == 0
    assert gradient.shape == (0, 4)
    assert signal.group_count().item() == 0
