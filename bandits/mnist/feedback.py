"""What one sampled class and its reward say about a policy over classes: the loss of an image under any objective."""

import torch
from torch import Tensor

from common.objectives import Objective, reduce


def sampled_loss(objective: Objective, logp: Tensor, actions: Tensor, labels: Tensor) -> Tensor:
    """Return each image's loss after one sampled class, reward r = 1{a = y}, baseline b = Σ_a π(a)².

    PG, DG and PPO see the sampled class alone, with advantage r − b. GRPO's group is the minibatch (the last axis), of
    rewards. TPO's and Group PG's group is the ten classes, with the scores (r − b)·e_a; Group PG's scalar weight acts
    on the sampled class. CE sees the label (arXiv 2604.06159, section 4).

    Args:
        objective: what to compute.
        logp: log π, [..., B, A]; the behaviour policy is its present value.
        actions: sampled classes, int64 [..., B].
        labels: y, int64 broadcastable to [..., B].

    Returns:
        [..., B].
    """
    behaviour = logp.detach()
    rewards = (actions == labels).to(logp.dtype)
    baseline = behaviour.exp().square().sum(-1)
    if objective.over_actions:
        marked = labels.expand_as(actions) if objective.needs_labels else actions
        values = torch.ones_like(rewards) if objective.needs_labels else rewards - baseline
        scores = torch.zeros_like(behaviour).scatter_(-1, marked.unsqueeze(-1), values.unsqueeze(-1))
        terms = objective.loss(logp, behaviour, objective.signal(scores, behaviour))
        return terms.sum(-1) if objective.loss.follows == "target" else _at(terms, actions)
    chosen = _at(logp, actions)
    signal = objective.signal(rewards, chosen.detach(), baseline=None if objective.grouped else baseline)
    return reduce(objective.loss(chosen, chosen.detach(), signal), signal.weights, dims=())


def _at(values: Tensor, actions: Tensor) -> Tensor:
    return values.gather(-1, actions.unsqueeze(-1)).squeeze(-1)
