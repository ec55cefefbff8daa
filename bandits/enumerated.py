"""Objectives on actions that can be enumerated: the adapter between a policy over A actions and sampled feedback."""

from typing import NamedTuple

import torch
from torch import Tensor

from common.objectives import HasSnapshotGradient, Objective, Signal, has_snapshot_gradient


class Feedback(NamedTuple):
    """What is known about the actions of each context."""

    rewards: Tensor
    """r, [..., A]; for CE these are the labels."""
    baseline: float
    """b."""
    frequencies: Tensor
    """How often each action was drawn, n_a / B, or π itself for an exact expectation, [..., A]; sums to 1."""
    sampled: bool
    """Whether the frequencies come from samples."""


def enumerated_signal(objective: Objective, behaviour: Tensor, feedback: Feedback) -> tuple[Signal, Tensor | None]:
    """Return the signal of a policy over A actions, and the weights of the actions in the loss (None: 1).

    Objectives over samples (PG, DG, PPO, GRPO) see every action as often as it was drawn: statistics and loss are
    weighted by the frequencies. Objectives over all actions (TPO, CE, Group PG) form one group of A candidates; sampled
    feedback enters as the scores (n_a / B)(r_a − b). A scalar weight on log π(a) (Group PG) still counts each action as
    often as it was drawn.

    Args:
        objective: what to compute.
        behaviour: log π of the behaviour policy, [..., A].
        feedback: what is known about the actions.
    """
    rewards, baseline, frequencies, sampled = feedback
    if not objective.over_actions:
        group_weights = frequencies if objective.grouped else None
        signal = objective.signal(rewards, behaviour, weights=group_weights, baseline=baseline or None)
        return signal, frequencies if signal.weights is None else signal.weights
    scores = rewards if objective.needs_labels or not sampled else frequencies * (rewards - baseline)
    signal = objective.signal(scores, behaviour)
    return signal, None if objective.loss.follows == "target" else frequencies


def enumerated_loss(objective: Objective, logp: Tensor, behaviour: Tensor, feedback: Feedback) -> Tensor:
    """Return the loss [...] of a policy over A actions, log π [..., A], differentiable."""
    signal, weights = enumerated_signal(objective, behaviour, feedback)
    terms = objective.loss(logp, behaviour, signal)
    return (terms if weights is None else weights * terms).sum(-1)


def snapshot_gradient(objective: Objective, logp: Tensor, policy: Tensor, feedback: Feedback) -> Tensor:
    """Return ∂L/∂logits [..., A] at the behaviour policy: in closed form where the loss has one, else by autograd.

    Args:
        objective: what to compute.
        logp: log π, [..., A].
        policy: π, [..., A].
        feedback: what is known about the actions.
    """
    loss = objective.loss
    if not (isinstance(loss, HasSnapshotGradient) and has_snapshot_gradient(loss)):
        return through_softmax(by_autograd(objective, logp, feedback), policy)
    signal, weights = enumerated_signal(objective, logp, feedback)
    gradient = loss.snapshot_gradient(logp, signal)
    if signal.target is not None:  # p Σq − q, which sums to zero already
        return gradient
    return through_softmax(gradient if weights is None else weights * gradient, policy)


def by_autograd(objective: Objective, logp: Tensor, feedback: Feedback) -> Tensor:
    """Return ∂L/∂log π [..., A] at the behaviour policy log π [..., A]."""
    leaf = logp.detach().requires_grad_()
    (gradient,) = torch.autograd.grad(enumerated_loss(objective, leaf, logp.detach(), feedback).sum(), leaf)
    return gradient


def through_softmax(gradient: Tensor, policy: Tensor) -> Tensor:
    """Return ∂L/∂logits = G − π Σ_a G_a for G = ∂L/∂log π, all [..., A]."""
    return torch.addcmul(gradient, policy, gradient.sum(-1, keepdim=True), value=-1)
