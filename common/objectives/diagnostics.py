"""What an objective can say about a batch. Returned, never logged; averages run over groups with any weight."""

import torch
from torch import Tensor

from common.objectives.groups import floating, log_softmax, standardise
from common.objectives.losses import ClippedSurrogate, advantage_for
from common.objectives.signals import Signal


@torch.no_grad()
def target_diagnostics(logp: Tensor, signal: Signal) -> dict[str, Tensor]:
    """Per group [...], in nats: how far the policy is from its target.

    ``kl_q_p`` = CE − H(q) is the part of the TPO loss that can vanish; ``entropy_q`` is its floor; ``entropy_p`` is the
    current policy's; ``total_variation`` = ½ Σ |p − q|; ``max_p`` is the largest p of a candidate.

    Args:
        logp: candidate log-probabilities ℓ, [..., K].
        signal: a signal that holds a target.
    """
    if signal.target is None:
        raise ValueError("signal: these diagnostics need a target, but the signal holds advantages")
    weights = torch.ones_like(logp) if signal.weights is None else signal.weights.expand_as(logp)
    counted = weights > 0
    log_p = log_softmax(logp, weights)
    p = torch.where(counted, log_p.exp(), 0)
    q = signal.target
    entropy_q = -(weights * torch.xlogy(q, q)).sum(-1)
    return {
        "kl_q_p": -(weights * q * log_p).sum(-1) - entropy_q,
        "entropy_p": -(weights * p * log_p).sum(-1),
        "entropy_q": entropy_q,
        "total_variation": (weights * (p - q).abs()).sum(-1) / 2,
        "max_p": p.amax(-1),
    }


@torch.no_grad()
def score_diagnostics(scores: Tensor, weights: Tensor | None = None) -> dict[str, Tensor]:
    """Per group [...], bool: ``zero_variance`` (all scores equal) and ``all_fail`` (no score above 0).

    Args:
        scores: [..., K].
        weights: candidates of weight 0 do not count, [..., K].
    """
    counted = torch.ones_like(scores, dtype=torch.bool) if weights is None else (weights > 0).expand_as(scores)
    return {
        "zero_variance": ~standardise(floating(scores), weights).varied.squeeze(-1),
        "all_fail": ~((scores > 0) & counted).any(-1),
    }


@torch.no_grad()
def clipped(loss: ClippedSurrogate, logp: Tensor, logp_old: Tensor, signal: Signal) -> Tensor:
    """Where the clipped surrogate passes no gradient, bool like ``logp``: r > 1+ε and A > 0, or r < 1−ε and A < 0."""
    ratio = (logp - logp_old).clamp(-loss.max_log_ratio, loss.max_log_ratio).exp()
    advantage = advantage_for(logp, signal)
    return ((ratio > 1 + loss.clip) & (advantage > 0)) | ((ratio < 1 - loss.clip) & (advantage < 0))
