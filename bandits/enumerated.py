"""Objectives on actions that can be enumerated: the adapter between a policy over A actions and sampled feedback."""

import torch
from torch import Tensor

from common.objectives import Objective


def enumerated_loss(
    objective: Objective,
    logp: Tensor,
    *,
    rewards: Tensor,
    baseline: float,
    frequencies: Tensor,
    sampled: bool,
) -> Tensor:
    """Return the loss of a policy over A actions, [...].

    Objectives over samples (PG, DG, PPO, GRPO) see every action as often as it was drawn: statistics and loss are
    weighted by ``frequencies`` (n_a / B, or π itself for an exact expectation). Objectives over all actions (TPO, CE,
    Group PG) form one group of A candidates; sampled feedback enters as the scores (n_a / B)(r_a − b). A scalar
    weight on log π(a) (Group PG) still counts each action as often as it was drawn.

    Args:
        objective: what to compute.
        logp: log π, [..., A], finite.
        rewards: r, [..., A]; for CE these are the labels.
        baseline: b.
        frequencies: [..., A], summing to 1.
        sampled: whether ``frequencies`` come from samples.
    """
    behaviour = logp.detach()
    if not objective.over_actions:
        group_weights = frequencies if objective.grouped else None
        signal = objective.signal(rewards, behaviour, weights=group_weights, baseline=baseline or None)
        weights = frequencies if signal.weights is None else signal.weights
        return (weights * objective.loss(logp, behaviour, signal)).sum(-1)
    scores = rewards if objective.needs_labels or not sampled else frequencies * (rewards - baseline)
    signal = objective.signal(scores, behaviour)
    terms = objective.loss(logp, behaviour, signal)
    return (terms if objective.loss.follows == "target" else frequencies * terms).sum(-1)


def logit_gradient(loss: Tensor, logp: Tensor, policy: Tensor) -> Tensor:
    """Return ∂L/∂logits = G − π Σ_a G_a, with G = ∂L/∂log π by autograd through the objective.

    Args:
        loss: any shape; summed.
        logp: the leaf log π that the loss was computed from, [..., A].
        policy: π, [..., A].
    """
    (gradient,) = torch.autograd.grad(loss.sum(), logp)
    return torch.addcmul(gradient, policy, gradient.sum(-1, keepdim=True), value=-1)
