"""Statistics and softmax over a group of candidates, on the last axis, with candidate weights.

A weight is how often a candidate counts: 0 masks it, m stands for m identical copies, a probability makes the
statistics an expectation. ``None`` means weight 1 for all.
"""

from typing import NamedTuple

import torch
from torch import Tensor

RELATIVE_SPREAD_CUTOFF = 1e-6
"""A group counts as constant where its σ is at most this times max(1, max|s|)."""


class Standardised(NamedTuple):
    """Scores in units of their group's spread."""

    scores: Tensor
    """u, [..., K]; 0 in constant groups and for masked candidates."""
    varied: Tensor
    """Whether the group's scores differ, bool [..., 1]."""


def check_weights(weights: Tensor | None, like: Tensor) -> None:
    """Raise ValueError unless ``weights`` broadcasts against ``like`` [..., K] without enlarging it."""
    if weights is None:
        return
    try:
        shape = torch.broadcast_shapes(weights.shape, like.shape)
    except RuntimeError:
        shape = None
    if shape != like.shape:
        raise ValueError(f"weights: shape {tuple(weights.shape)} does not fit candidates of shape {tuple(like.shape)}")


def standardise(scores: Tensor, weights: Tensor | None = None, *, epsilon: float = 0.0) -> Standardised:
    """Standardise scores within each group: u_i = (s_i − mean) / (σ + ε), σ the population standard deviation.

    The mean is taken out twice, so that a constant float32 group gives exactly 0 whatever its level, and
    σ ≤ 1e-6·max(1, max|s|) counts as zero (arXiv 2604.06159, section 2; the cut-off is ours).

    Args:
        scores: s, [..., K].
        weights: how often each candidate counts, ≥ 0, broadcastable to [..., K].
        epsilon: added to σ.
    """
    check_weights(weights, scores)
    if weights is None:
        centred = scores - scores.mean(-1, keepdim=True)
        centred = centred - centred.mean(-1, keepdim=True)
        spread = centred.square().mean(-1, keepdim=True).sqrt()
        magnitude = scores.abs().amax(-1, keepdim=True)
        counted = None
    else:
        counted = weights > 0
        scores = torch.where(counted, scores, 0)
        shares = weights / weights.sum(-1, keepdim=True).clamp_min(torch.finfo(scores.dtype).tiny)
        centred = scores - (shares * scores).sum(-1, keepdim=True)
        centred = centred - (shares * centred).sum(-1, keepdim=True)
        spread = (shares * centred.square()).sum(-1, keepdim=True).sqrt()
        magnitude = scores.abs().amax(-1, keepdim=True)
    varied = spread > RELATIVE_SPREAD_CUTOFF * magnitude.clamp_min(1)
    usable = varied if counted is None else varied & counted
    return Standardised(torch.where(usable, centred / (spread + epsilon), 0), varied)


def log_softmax(logits: Tensor, weights: Tensor | None = None) -> Tensor:
    """Log-probability of each single candidate in its group, log p_i = x_i − log Σ_j w_j exp x_j.

    With multiplicities w the weighted probabilities sum to one: Σ_i w_i p_i = 1. A masked candidate (w = 0) gets 0
    and no gradient, and so does every candidate of a group in which all are masked.

    Args:
        logits: x, [..., K].
        weights: w ≥ 0, broadcastable to [..., K].
    """
    if weights is None:
        return torch.log_softmax(logits, -1)
    check_weights(weights, logits)
    counted = (weights > 0).expand_as(logits)
    logits = logits.masked_fill(~counted, 0)
    empty = ~counted.any(-1, keepdim=True)
    log_weights = torch.where(empty, 0, weights.log())
    log_total = torch.logsumexp(logits + log_weights, -1, keepdim=True)
    return (logits - log_total).masked_fill(~counted, 0)
