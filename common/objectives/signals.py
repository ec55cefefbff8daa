"""What an update should do: scores become a target distribution or advantages, once per rollout, without gradient.

Every signal is called as ``signal(scores, logp_old, weights, baseline)`` on tensors whose last axis holds the K
candidates of a group (grouped signals) or on tensors of any shape (``Advantage``); all other axes are free.
"""

from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from common.objectives.groups import check_weights, floating, log_softmax, softmax, standardise


@dataclass(frozen=True)
class Signal:
    """What a rollout says about its candidates; constant during the gradient epochs that follow.

    Exactly one of ``target`` and ``advantage`` is set.
    """

    target: Tensor | None = None
    """q, [..., K]: the probability of each single candidate; Σ w·q = 1 in a group that is not all masked."""
    advantage: Tensor | None = None
    """A, [..., K] or any shape."""
    weights: Tensor | None = None
    """Weight of each candidate in the loss: the weights passed in, 0 in groups that the signal drops; None is 1."""
    varied: Tensor | None = None
    """Whether the scores of a group differ, bool [..., 1]; None where there are no groups."""

    def group_count(self, dims: int | tuple[int, ...] = -1) -> Tensor:
        """Number of groups with at least one candidate of positive weight.

        Args:
            dims: the group axes to count over, on tensors of shape [...] (the candidate axis is gone).
        """
        values = self.target if self.target is not None else self.advantage
        assert values is not None
        counted = values.new_ones(values.shape[:-1])
        if self.weights is not None:
            counted = (self.weights > 0).expand_as(values).any(-1).to(values.dtype)
        return counted.sum(dims)


class SignalRule(Protocol):
    """How scores become a signal. A rule is a frozen dataclass whose fields are its options."""

    grouped: ClassVar[bool]
    """Whether the last axis is a group of candidates that are compared with each other."""
    makes: ClassVar[str]
    """The part of the signal that is set: "target" or "advantage"."""

    def __call__(
        self,
        scores: Tensor,
        logp_old: Tensor | None = None,
        weights: Tensor | None = None,
        baseline: Tensor | float | None = None,
    ) -> Signal:
        """Turn scores into a signal; ``logp_old`` is the behaviour policy's log-probability of the candidates."""
        ...


def _prepared(
    scores: Tensor, weights: Tensor | None, baseline: Tensor | float | None = None
) -> tuple[Tensor, Tensor | None]:
    """Return the scores less the baseline, and the weights in their shape; both without gradient."""
    scores = floating(scores.detach())
    if baseline is not None:
        scores = scores - baseline
    if weights is None:
        return scores, None
    check_weights(weights, scores)
    return scores, weights.detach().expand_as(scores)


def _masked(scores: Tensor, weights: Tensor | None) -> Tensor:
    return scores if weights is None else torch.where(weights > 0, scores, 0)


def _require_group(scores: Tensor, rule: str) -> None:
    if scores.ndim == 0 or scores.shape[-1] < 2:
        raise ValueError(
            f"{rule}: a group of shape {tuple(scores.shape)} has nothing to compare; the last axis needs at least 2"
            " candidates"
        )


@dataclass(frozen=True)
class Target:
    """The TPO target, q_i ∝ p_i^old · exp(u_i / η), u the scores standardised within the group.

    q is the unique maximiser over the simplex of Σ r_i u_i − η·KL(r ‖ p_old) (arXiv 2604.06159, Eq. 4).
    Without anchor q_i ∝ exp(u_i / η).
    """

    eta: float = 1.0
    anchored: bool = True
    grouped: ClassVar[bool] = True
    makes: ClassVar[str] = "target"

    def __post_init__(self) -> None:
        """Raise ValueError for a temperature that is not positive."""
        require_positive("eta", self.eta)

    @torch.no_grad()
    def __call__(
        self,
        scores: Tensor,
        logp_old: Tensor | None = None,
        weights: Tensor | None = None,
        baseline: Tensor | float | None = None,
    ) -> Signal:
        """Compute q [..., K] from scores s [..., K] and the behaviour log-probabilities ℓ_old [..., K].

        ``weights`` (masks, multiplicities) leave the mean, σ, the softmax and the target; the baseline, being the
        same for the whole group, changes nothing unless the scores were weighted by the caller.

        Raises:
            ValueError: fewer than two candidates, or no ``logp_old`` although the target is anchored.
        """
        _require_group(scores, "Target")
        scores, weights = _prepared(scores, weights, baseline)
        u, varied = standardise(scores, weights)
        tilt = u / self.eta
        if self.anchored:
            if logp_old is None:
                raise ValueError("logp_old: the anchored target needs the behaviour policy's log-probabilities")
            if logp_old.shape != scores.shape:
                raise ValueError(
                    f"logp_old: shape {tuple(logp_old.shape)} does not match the scores' {tuple(scores.shape)}"
                )
            tilt = tilt + logp_old.detach()
        target = softmax(tilt) if weights is None else _masked(log_softmax(tilt, weights).exp(), weights)
        return Signal(target=target, weights=weights, varied=varied)


@dataclass(frozen=True)
class Labels:
    """The supervised oracle's target: all mass on the correct candidates. Its scores are 1 where correct, else 0."""

    grouped: ClassVar[bool] = True
    makes: ClassVar[str] = "target"

    @torch.no_grad()
    def __call__(
        self,
        scores: Tensor,
        logp_old: Tensor | None = None,
        weights: Tensor | None = None,
        baseline: Tensor | float | None = None,
    ) -> Signal:
        """Normalise the labels [..., K] into q; a group without a correct candidate gets q = 0. Ignores the rest.

        Raises:
            ValueError: fewer than two candidates.
        """
        _require_group(scores, "Labels")
        labels, weights = _prepared(scores, weights)
        labels = _masked(labels, weights)
        mass = labels if weights is None else labels * weights
        target = labels / mass.sum(-1, keepdim=True).clamp_min(torch.finfo(labels.dtype).tiny)
        return Signal(target=target, weights=weights)


@dataclass(frozen=True)
class GroupAdvantage:
    """Scores standardised within the group, A_i = (s_i − mean) / (σ + ε): GRPO's and Group PG's scalar weights."""

    std_epsilon: float = 0.0
    drop_zero_variance: bool = False
    """Leave groups of equal scores out of the loss (weight 0), instead of giving them advantage 0."""
    grouped: ClassVar[bool] = True
    makes: ClassVar[str] = "advantage"

    def __post_init__(self) -> None:
        """Raise ValueError for a negative ε."""
        if not self.std_epsilon >= 0:
            raise ValueError(f"std_epsilon: {self.std_epsilon} is not allowed; it must be at least 0")

    @torch.no_grad()
    def __call__(
        self,
        scores: Tensor,
        logp_old: Tensor | None = None,
        weights: Tensor | None = None,
        baseline: Tensor | float | None = None,
    ) -> Signal:
        """Compute A [..., K] from scores s [..., K]; σ is the population standard deviation under ``weights``.

        Raises:
            ValueError: fewer than two candidates.
        """
        _require_group(scores, "GroupAdvantage")
        scores, weights = _prepared(scores, weights, baseline)
        advantage, varied = standardise(scores, weights, epsilon=self.std_epsilon)
        if self.drop_zero_variance:
            kept = varied.to(advantage.dtype)
            weights = kept.expand_as(advantage) if weights is None else weights * kept
        return Signal(advantage=advantage, weights=weights, varied=varied)


@dataclass(frozen=True)
class Advantage:
    """Scores less a baseline, A = s − b, each sample on its own (PG, DG, PPO)."""

    grouped: ClassVar[bool] = False
    makes: ClassVar[str] = "advantage"

    @torch.no_grad()
    def __call__(
        self,
        scores: Tensor,
        logp_old: Tensor | None = None,
        weights: Tensor | None = None,
        baseline: Tensor | float | None = None,
    ) -> Signal:
        """Compute A, of the shape of ``scores``, 0 where masked; the baseline is the experiment's (none: 0)."""
        advantage, weights = _prepared(scores, weights, baseline)
        return Signal(advantage=_masked(advantage, weights), weights=weights)


def require_positive(name: str, value: float) -> None:
    """Raise ValueError unless the option is greater than 0."""
    if not value > 0:
        raise ValueError(f"{name}: {value} is not allowed; it must be greater than 0")
