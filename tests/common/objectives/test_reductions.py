"""From terms to a loss: what is summed, what divides, and that micro-batches do not change it."""

import math

import pytest
import torch

from common import objectives
from common.objectives import reduce


class TestReduce:
    terms = torch.tensor([[1.0, 2.0, 3.0], [10.0, 20.0, 30.0]])

    def test_axes(self):
        assert reduce(self.terms).item() == 66
        assert reduce(self.terms, dims=-1).tolist() == [6, 60]
        assert reduce(self.terms, dims=(0,)).tolist() == [11, 22, 33]
        assert reduce(self.terms, dims=(0, 1)).item() == 66
        assert reduce(self.terms, dims=()).equal(self.terms)

    def test_weights(self):
        assert reduce(self.terms, torch.tensor([[1.0, 0.5, 0.0]])).item() == 22
        assert reduce(self.terms, torch.tensor([[True], [False]]), dims=-1).tolist() == [6, 0]

    def test_weights_have_the_leading_axes_of_the_terms(self):
        tokens = torch.ones(2, 2, 2)
        assert reduce(tokens, torch.tensor([[1.0, 2.0], [3.0, 4.0]]), dims=-1).tolist() == [[2, 4], [6, 8]]
        with pytest.raises(ValueError, match=r"^weights: shape \(3, 1\) does not fit candidates of shape \(2, 3\)$"):
            reduce(self.terms, torch.ones(3))

    def test_normaliser(self):
        assert reduce(self.terms, normaliser=4).item() == 16.5
        assert reduce(self.terms, dims=-1, normaliser=torch.tensor([2, 4])).tolist() == [3, 15]
        assert reduce(self.terms, dims=-1, normaliser=torch.tensor([1.5, 4.0])).tolist() == [4, 15]

    @pytest.mark.parametrize("poison", [math.nan, math.inf, -math.inf])
    def test_weight_zero_hides_what_is_not_finite(self, poison):
        terms = torch.tensor([1.0, poison], requires_grad=True)
        loss = reduce(terms, torch.tensor([2.0, 0.0]))
        assert loss.item() == 2
        loss.backward()
        assert terms.grad.tolist() == [2, 0]

    @pytest.mark.parametrize("nothing", [torch.tensor(0.0), torch.tensor(0), torch.tensor(0, dtype=torch.float64)])
    def test_nothing_left_gives_zero_with_a_graph(self, nothing, dtype):
        terms = torch.zeros(2, 3, dtype=dtype, requires_grad=True)
        loss = reduce(terms, torch.zeros(2, 1), normaliser=nothing)
        assert loss.item() == 0
        loss.backward()
        assert terms.grad.tolist() == [[0.0] * 3] * 2

    def test_nothing_left_whatever_the_terms(self):
        terms = torch.ones(3, requires_grad=True)
        loss = reduce(terms, normaliser=torch.tensor(0.0))
        assert loss.item() == 0
        loss.backward()
        assert terms.grad.tolist() == [0.0] * 3

    def test_a_seed_with_nothing_left_leaves_the_others(self):
        terms = torch.ones(2, 3, requires_grad=True)
        weights = torch.tensor([[0.0] * 3, [1.0] * 3])
        loss = reduce(terms, weights, dims=-1, normaliser=torch.tensor([0.0, 6.0]))
        assert loss.tolist() == [0, 0.5]
        loss.sum().backward()
        torch.testing.assert_close(terms.grad, torch.tensor([[0.0] * 3, [1 / 6] * 3]))

    def test_a_normaliser_that_is_not_a_number_is_not_hidden(self):
        assert reduce(self.terms, normaliser=torch.tensor(math.nan)).isnan()

    @pytest.mark.parametrize("number", [0, 0.0, -1, math.nan])
    def test_a_plain_number_must_be_positive(self, number):
        with pytest.raises(ValueError, match=r"^normaliser: .* is not allowed; it must be greater than 0$"):
            reduce(self.terms, normaliser=number)


class TestMicroBatches:
    """Split 1 + 9 instead of 10: the same loss and gradient, given the count over the whole batch."""

    @pytest.mark.parametrize("name", objectives.names())
    def test_groups(self, name, step, dtype, assert_close):
        generator = torch.Generator().manual_seed(0)
        objective = objectives.get(name)
        scores = torch.randint(0, 2, (10, 4), generator=generator).to(dtype)
        logp_old = -3 * torch.rand(10, 4, dtype=dtype, generator=generator)
        logp = logp_old + torch.randn(10, 4, dtype=dtype, generator=generator) / 3
        count = objective.signal(scores, logp_old).group_count()
        whole = step(objective, scores, logp, logp_old, normaliser=count)
        parts = [
            step(objective, scores[rows], logp[rows], logp_old[rows], normaliser=count)
            for rows in (slice(0, 1), slice(1, 10))
        ]
        assert_close(sum(part.loss for part in parts), whole.loss)
        assert_close(torch.cat([part.gradient for part in parts]), whole.gradient)
        assert whole.gradient.abs().max() > 0.01

    @pytest.mark.parametrize("name", ["pg", "dg", "ppo", "grpo", "grpo_no_kl", "grpo_zv_masked", "group_pg"])
    def test_tokens_of_sequences_of_lengths_1_and_9(self, name, dtype, assert_close):
        """Per token with the global token count, the longer sequence being padded only where they stand together."""
        generator = torch.Generator().manual_seed(0)
        objective = objectives.get(name)
        signal = objective.signal(torch.tensor([1.0, 0.0], dtype=dtype))
        mask = torch.arange(9) < torch.tensor([[1], [9]])
        old = -torch.rand(2, 9, dtype=dtype, generator=generator)
        new = (old + torch.randn(2, 9, dtype=dtype, generator=generator) / 3).masked_fill(~mask, -math.inf)

        def loss_and_gradient(rows, length):
            leaf = new[rows, :length].clone().requires_grad_()
            part = objectives.Signal(advantage=signal.advantage[rows])
            terms = objective.loss(leaf, old[rows, :length], part)
            loss = reduce(terms, mask[rows, :length], normaliser=mask.sum())
            return loss.detach(), torch.autograd.grad(loss, leaf)[0]

        whole, gradient = loss_and_gradient(slice(0, 2), 9)
        (short, short_gradient), (long, long_gradient) = (
            loss_and_gradient(slice(0, 1), 1),
            loss_and_gradient(slice(1, 2), 9),
        )
        assert_close(short + long, whole)
        assert_close(gradient[:1, :1], short_gradient)
        assert_close(gradient[1:], long_gradient)
        assert gradient[0, 1:].tolist() == [0.0] * 8


class TestZeroVarianceMasking:
    def test_is_grpo_over_the_other_groups(self, step, dtype, assert_close):
        scores = torch.tensor([[1.0, 1.0, 1.0], [1.0, 0.0, 0.0], [0.35, 0.35, 0.35], [0.0, 0.0, 1.0]], dtype=dtype)
        generator = torch.Generator().manual_seed(0)
        logp_old = -torch.rand(4, 3, dtype=dtype, generator=generator)
        logp = logp_old + torch.randn(4, 3, dtype=dtype, generator=generator) / 3
        masked = objectives.get("grpo_zv_masked")
        count = masked.signal(scores).group_count()
        assert count.item() == 2

        dropped = step(masked, scores, logp, logp_old, normaliser=count)
        kept = step(objectives.get("grpo"), scores[1::2], logp[1::2], logp_old[1::2], normaliser=2)
        assert_close(dropped.loss, kept.loss)
        assert_close(dropped.gradient[1::2], kept.gradient)
        assert dropped.gradient[::2].tolist() == [[0.0] * 3] * 2

    def test_otherwise_their_kl_term_pulls(self, step, dtype):
        scores = torch.ones(1, 3, dtype=dtype)
        logp = torch.tensor([[-1.0, -2.0, -3.0]], dtype=dtype)
        assert (step(objectives.get("grpo"), scores, logp, logp - 0.5).gradient > 0).all()

    def test_nothing_left(self, dtype):
        logp = torch.zeros(2, 3, dtype=dtype, requires_grad=True)
        objective = objectives.get("grpo_zv_masked")
        signal = objective.signal(torch.ones(2, 3, dtype=dtype))
        loss = reduce(objective.loss(logp, logp.detach() - 1, signal), signal.weights, normaliser=signal.group_count())
        assert loss.item() == 0
        loss.backward()
        assert logp.grad.tolist() == [[0.0] * 3] * 2
