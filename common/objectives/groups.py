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


def floating(scores: Tensor) -> Tensor:
    """Return the scores in the default floating-point type where they are integers or booleans."""
    return scores if scores.is_floating_point() else scores.to(torch.get_default_dtype())


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
    σ ≤ 1e-6·max(1, max|s|) counts as zero (arXiv 2604.06159, section 2; the cut-off is ours). A group with a
    non-finite score that counts gets NaN, not 0.

    Args:
        scores: s, [..., K].
        weights: how often each candidate counts, ≥ 0, broadcastable to [..., K].
        epsilon: added to σ.
    """
    check_weights(weights, scores)
    counted = None if weights is None else weights > 0
    if counted is not None:
        scores = torch.where(counted, scores, 0)
    shares = None if weights is None else _shares(weights.to(scores.dtype).expand_as(scores))
    centred = scores - _mean(scores, shares)
    centred = centred - _mean(centred, shares)
    spread = _mean(centred.square(), shares).sqrt()
    magnitude = torch.maximum(scores.amax(-1, keepdim=True), -scores.amin(-1, keepdim=True))
    varied = ~(spread <= RELATIVE_SPREAD_CUTOFF * magnitude.clamp_min(1))
    u = centred * torch.where(varied, 1 / (spread + epsilon), 0)
    return Standardised(u if weights is None else u * weights.sign(), varied)


def _shares(weights: Tensor) -> Tensor:
    return weights / weights.sum(-1, keepdim=True).clamp_min(torch.finfo(weights.dtype).tiny)


def _mean(values: Tensor, shares: Tensor | None) -> Tensor:
    return values.mean(-1, keepdim=True) if shares is None else (shares * values).sum(-1, keepdim=True)


def log_softmax(logits: Tensor, weights: Tensor | None = None) -> Tensor:
    """Log-probability of each single candidate in its group, log p_i = x_i − log Σ_j w_j exp x_j.

    With multiplicities w the weighted probabilities sum to one: Σ_i w_i p_i = 1. A masked candidate (w = 0) gets 0
    and no gradient, and so does every candidate of a group in which all are masked.

    Args:
        logits: x, [..., K].
        weights: w ≥ 0, broadcastable to [..., K].
    """
    # torch.log_softmax is fast on the CPU along any axis but a short last one: there it is written out.
    if weights is None and _groups_innermost(logits):
        return torch.log_softmax(logits.mT, -2).mT
    if weights is None:
        shifted = logits - logits.detach().amax(-1, keepdim=True)
        return shifted - shifted.exp().sum(-1, keepdim=True).log()
    check_weights(weights, logits)
    counted = (weights > 0).expand_as(logits)
    logits = torch.where(counted, logits, torch.finfo(logits.dtype).min)
    shifted = logits - logits.detach().amax(-1, keepdim=True)
    weights = torch.where(counted.any(-1, keepdim=True), weights, 1)
    logp = shifted - (weights * shifted.exp()).sum(-1, keepdim=True).log()
    return torch.where(counted, logp, 0)


def softmax(logits: Tensor) -> Tensor:
    """Probability of each candidate in its group, [..., K]; where a log is taken later, use ``log_softmax``."""
    return torch.softmax(logits.mT, -2).mT if _groups_innermost(logits) else log_softmax(logits).exp()


def _groups_innermost(values: Tensor) -> bool:
    """Whether neighbours in memory are the same candidate of different groups."""
    return values.ndim > 1 and values.mT.is_contiguous() and not values.is_contiguous()
