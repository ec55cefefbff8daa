"""Why TPO corrects confident mistakes: its expected update against one that sees the correct class alone (Fig. 4b).

For a misclassified image with policy π and label y, g is the objective's expected logit update over the sampled class,
and p_y·Σ_j (1{j=y} − π_j) g_j the first-order gain in p_y. The symmetric one-vs-rest surrogate β_sym(p)(e_y − π) has
the update that the objective makes on the policy (p, (1−p)/9, ..., (1−p)/9). Their difference is the surplus.
"""

import torch
from torch import Tensor

from bandits.enumerated import through_softmax
from bandits.mnist.feedback import sampled_loss
from common.objectives import Objective

BINS = 4
"""Bins of the confusion max_{j≠y} π_j / (1 − π_y): [0, ¼), [¼, ½), [½, ¾), [¾, 1]."""


def has_expected_update(objective: Objective) -> bool:
    """Whether the update of an image depends on that image alone, and comes from its reward (not GRPO, not CE)."""
    return not objective.needs_labels and (objective.over_actions or not objective.grouped)


def expected_update(objective: Objective, policy: Tensor, labels: Tensor) -> Tensor:
    """Return g = −Σ_a π(a) ∂L_a/∂logits, [N, A], for policies [N, A] and labels [N], by autograd."""
    classes = policy.shape[-1]
    logp = policy.log().expand(classes, *policy.shape).clone().requires_grad_()
    actions = torch.arange(classes, device=policy.device)[:, None].expand(classes, len(policy))
    losses = sampled_loss(objective, logp, actions, labels)
    (gradient,) = torch.autograd.grad((losses * policy.T).sum(), logp)
    return -through_softmax(gradient.sum(0), policy)


def surplus(objective: Objective, policy: Tensor, labels: Tensor) -> Tensor:
    """Return the surplus first-order gain in p_y over the symmetric surrogate, [N], for policies [N, A]."""
    correct = torch.nn.functional.one_hot(labels, policy.shape[-1]).to(policy)
    p = (policy * correct).sum(-1, keepdim=True)
    direction = correct - policy
    gain = (direction * expected_update(objective, policy, labels)).sum(-1, keepdim=True)
    symmetric = torch.where(correct > 0, p, (1 - p) / (policy.shape[-1] - 1))
    update = expected_update(objective, symmetric, labels)
    beta = (update * correct).sum(-1, keepdim=True) / (1 - p)
    return (p * (gain - beta * direction.square().sum(-1, keepdim=True))).squeeze(-1)


def surplus_by_confusion(objective: Objective, policy: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Average the surplus of misclassified images in four bins of confusion.

    Args:
        objective: with an expected update (``has_expected_update``).
        policy: π, [N, A].
        labels: y, [N].

    Returns:
        Mean surplus per bin, NaN where a bin is empty, [4]; and the number of images in each, [4].
    """
    policy = policy.double()
    wrong = policy.argmax(-1) != labels
    policy, labels = policy[wrong], labels[wrong]
    p = policy.gather(-1, labels[:, None])
    others = policy.scatter(-1, labels[:, None], 0)
    confusion = others.amax(-1) / (1 - p.squeeze(-1))
    bins = (confusion * BINS).long().clamp(0, BINS - 1)
    counts = torch.bincount(bins, minlength=BINS).double()
    total = torch.zeros_like(counts).index_add_(0, bins, surplus(objective, policy, labels))
    return total / torch.where(counts > 0, counts, torch.nan), counts
