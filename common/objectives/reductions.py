"""From terms to a loss: weighted sums over the axes and by the counts that the experiment chooses."""

import torch
from torch import Tensor

from common.objectives.groups import check_weights


def reduce(
    terms: Tensor,
    weights: Tensor | None = None,
    *,
    dims: int | tuple[int, ...] | None = None,
    normaliser: Tensor | float = 1.0,
) -> Tensor:
    """Sum weight·term over ``dims`` and divide by ``normaliser``.

    An entry of weight 0 contributes exactly 0, even where its term is not finite. Where a tensor of normalisers is 0
    (no group left) the loss is 0. Axes not in ``dims`` stay: with a leading seed axis every seed keeps its own loss.

    Args:
        terms: from a loss, any shape.
        weights: ≥ 0; their axes are the leading ones of ``terms`` (a weight per candidate [..., K] then holds for each
            of its tokens [..., K, T]), and each may be of size 1. None is 1.
        dims: the axes to sum over; None is all.
        normaliser: the count to divide by, e.g. the number of groups, or of tokens over all micro-batches.

    Raises:
        ValueError: a normaliser that is a plain number and not greater than 0, or weights that do not fit.
    """
    if weights is not None:
        weights = weights.reshape(weights.shape + (1,) * (terms.ndim - weights.ndim))
        check_weights(weights, terms)
        terms = torch.where(weights == 0, 0, terms * weights)
    if dims != ():  # for which torch would sum over all axes
        terms = terms.sum(dims)
    if isinstance(normaliser, Tensor):
        nothing = normaliser == 0
        return torch.where(nothing, 0, terms / torch.where(nothing, 1, normaliser))
    if not normaliser > 0:
        raise ValueError(f"normaliser: {normaliser} is not allowed; it must be greater than 0")
    return terms / normaliser


def sequence_logp(token_logp: Tensor, mask: Tensor | None = None, how: str = "sum") -> Tensor:
    """Aggregate token log-probabilities [..., T] to one per sequence [...].

    ``sum`` is log π(y | x), the paper's choice; ``mean`` divides by the number of tokens, for completions of hundreds
    of tokens whose sums would make p_old one-hot. A sequence without tokens gets 0: mask the candidate.

    Args:
        token_logp: [..., T].
        mask: 1 for tokens that count, [..., T].
        how: "sum" or "mean".

    Raises:
        ValueError: another value of ``how``.
    """
    if how not in ("sum", "mean"):
        raise ValueError(f"how: {how!r} is not allowed; choose sum or mean")
    if mask is None:
        total = token_logp.sum(-1)
        return total if how == "sum" else total / max(token_logp.shape[-1], 1)
    total = torch.where(mask > 0, token_logp, 0).sum(-1)
    return total if how == "sum" else total / mask.gt(0).sum(-1).clamp_min(1)
