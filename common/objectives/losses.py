"""How parameters follow a signal: a differentiable term per candidate (or per token), every gradient step.

Every loss is called as ``loss(logp, logp_old, signal)`` and returns terms to be *minimised*, of the shape of
``logp``. ``logp`` may have more trailing axes than the signal: a signal per candidate [..., K] then applies to each of
its tokens [..., K, T].
"""

from dataclasses import dataclass
from typing import ClassVar, Protocol, runtime_checkable

import torch
from torch import Tensor

from common.objectives.groups import log_softmax, softmax
from common.objectives.signals import Signal, require_positive


class LossRule(Protocol):
    """How log-probabilities and a signal become terms. A rule is a frozen dataclass whose fields are its options."""

    follows: ClassVar[str]
    """The part of the signal that the loss reads: "target" or "advantage"."""
    single_epoch: ClassVar[bool]
    """Whether the loss is meant for one gradient epoch per rollout only."""

    def __call__(self, logp: Tensor, logp_old: Tensor | None, signal: Signal) -> Tensor:
        """Return the terms to be minimised."""
        ...


@runtime_checkable
class HasSnapshotGradient(Protocol):
    """A loss whose gradient on the rollout snapshot is known in closed form; that saves autograd's passes."""

    def snapshot_gradient(self, logp: Tensor, signal: Signal) -> Tensor:
        """Return ∂(Σ terms)/∂ℓ where ``logp`` is the behaviour policy's: what the first gradient step sees."""
        ...


def has_snapshot_gradient(loss: LossRule) -> bool:
    """Whether the loss has a closed form of its own, not one inherited past a ``__call__`` that replaces its terms."""
    definers = [next((c for c in type(loss).__mro__ if name in vars(c)), None) for name in _TERMS_AND_GRADIENT]
    terms, gradient = definers
    return gradient is not None and terms is not None and issubclass(gradient, terms)


_TERMS_AND_GRADIENT = ("__call__", "snapshot_gradient")


def advantage_for(logp: Tensor, signal: Signal) -> Tensor:
    """Return the signal's advantages with as many axes as ``logp``."""
    advantage = signal.advantage
    if advantage is None:
        raise ValueError("signal: this loss follows advantages, but the signal holds a target")
    if logp.shape[: advantage.ndim] != advantage.shape:
        raise ValueError(
            f"logp: shape {tuple(logp.shape)} does not fit the advantages' {tuple(advantage.shape)}; its leading axes"
            " are theirs, token axes come after them"
        )
    return advantage.reshape(advantage.shape + (1,) * (logp.ndim - advantage.ndim))


def _target_for(logp: Tensor, signal: Signal) -> Tensor:
    """Return the signal's target, of the shape of ``logp``."""
    if signal.target is None:
        raise ValueError("signal: cross-entropy follows a target, but the signal holds advantages")
    if logp.shape != signal.target.shape:
        raise ValueError(
            f"logp: shape {tuple(logp.shape)} does not match the target's {tuple(signal.target.shape)};"
            " token log-probabilities are first aggregated to one per candidate (sequence_logp)"
        )
    return signal.target


@dataclass(frozen=True)
class CrossEntropy:
    """Fit the group's policy to the target: −q_i log p_i, p the softmax over the group of the candidates' ℓ.

    Summed over the group, ∂L/∂ℓ_i = p_i − q_i, which vanishes where the policy has reached the target
    (arXiv 2604.06159, section 2).
    """

    follows: ClassVar[str] = "target"
    single_epoch: ClassVar[bool] = False

    def __call__(self, logp: Tensor, logp_old: Tensor | None, signal: Signal) -> Tensor:
        """Return −q·log p, [..., K], for candidate log-probabilities ℓ [..., K]; ``logp_old`` is not used.

        Raises:
            ValueError: a signal without a target, or log-probabilities of another shape.
        """
        return -_target_for(logp, signal) * log_softmax(logp, signal.weights)

    def snapshot_gradient(self, logp: Tensor, signal: Signal) -> Tensor:
        """Return p·Σq − q, [..., K]: p − q where the target sums to one. Without weights only.

        Raises:
            ValueError: as when called, or a signal with weights.
        """
        target = _target_for(logp, signal)
        if signal.weights is not None:
            raise ValueError("signal: the closed form is that of a group without weights")
        return softmax(logp) * target.sum(-1, keepdim=True) - target


@dataclass(frozen=True)
class PolicyGradient:
    """REINFORCE's surrogate, −A·log π."""

    follows: ClassVar[str] = "advantage"
    single_epoch: ClassVar[bool] = False

    def __call__(self, logp: Tensor, logp_old: Tensor | None, signal: Signal) -> Tensor:
        """Return −A·ℓ, of the shape of ``logp``; ``logp_old`` is not used."""
        return -advantage_for(logp, signal) * logp

    def snapshot_gradient(self, logp: Tensor, signal: Signal) -> Tensor:
        """Return −A, broadcastable to ``logp``."""
        return -advantage_for(logp, signal)


@dataclass(frozen=True)
class DelightfulGradient:
    """Policy gradient gated by delight, −w·A·log π with w = σ(A·surprisal / η) without gradient.

    Surprisal is −log π under the *current* policy, so the gate belongs to the loss, not to the signal
    (Osband 2026; arXiv 2604.06159, section 3). Meant for one gradient epoch.
    """

    eta: float = 1.0
    follows: ClassVar[str] = "advantage"
    single_epoch: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Raise ValueError for a temperature that is not positive."""
        require_positive("eta", self.eta)

    def __call__(self, logp: Tensor, logp_old: Tensor | None, signal: Signal) -> Tensor:
        """Return −w·A·ℓ, of the shape of ``logp``; ``logp_old`` is not used."""
        return self.snapshot_gradient(logp, signal) * logp

    def snapshot_gradient(self, logp: Tensor, signal: Signal) -> Tensor:
        """Return −w·A, of the shape of ``logp``; since w carries no gradient, that holds off the snapshot too."""
        advantage = advantage_for(logp, signal)
        finite = torch.nan_to_num(logp.detach(), nan=0.0)  # where A = 0, as for masked candidates, any will do
        return (torch.sigmoid(finite * (advantage / -self.eta)) * advantage).neg_()


@dataclass(frozen=True)
class ClippedSurrogate:
    """PPO's and GRPO's surrogate, −[min(r·A, clip(r, 1−ε, 1+ε)·A) − β·(e^{−d} + d − 1)].

    d = log π − log π_old, clipped to ±``max_log_ratio``, and r = e^d; the last bracket estimates the reverse KL to the
    rollout snapshot. One ratio per entry of ``logp``: per candidate for summed log-probabilities [..., K], per token
    for [..., K, T].
    """

    clip: float = 0.2
    beta: float = 0.0
    max_log_ratio: float = 20.0
    follows: ClassVar[str] = "advantage"
    single_epoch: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Raise ValueError for a clip range outside (0, 1) or a negative β."""
        if not 0 < self.clip < 1:
            raise ValueError(f"clip: {self.clip} is not allowed; it must lie between 0 and 1")
        if not self.beta >= 0:
            raise ValueError(f"beta: {self.beta} is not allowed; it must be at least 0")
        require_positive("max_log_ratio", self.max_log_ratio)

    def __call__(self, logp: Tensor, logp_old: Tensor | None, signal: Signal) -> Tensor:
        """Return the surrogate's terms, of the shape of ``logp``.

        Raises:
            ValueError: no ``logp_old``, or one of another shape.
        """
        if logp_old is None:
            raise ValueError("logp_old: the clipped surrogate needs the behaviour policy's log-probabilities")
        if logp_old.shape != logp.shape:
            raise ValueError(f"logp_old: shape {tuple(logp_old.shape)} does not match logp's {tuple(logp.shape)}")
        advantage = advantage_for(logp, signal)
        # clamp has gradient 0 at nan, which masked candidates may hold; hardtanh is faster but passes it on.
        log_ratio = (logp - logp_old.detach()).clamp(-self.max_log_ratio, self.max_log_ratio)
        gain = (log_ratio.exp() - 1) * advantage
        # min(r·A, clip(r)·A) = A + min(gain, ε|A|); without comparisons, which are slow, nor large differences.
        limit = self.clip * advantage.abs()
        terms = torch.relu(limit - gain) - limit - advantage
        return terms if self.beta == 0 else terms + self.beta * (torch.exp(-log_ratio) + log_ratio - 1)

    def snapshot_gradient(self, logp: Tensor, signal: Signal) -> Tensor:
        """Return −A, broadcastable to ``logp``: r = 1 is inside the clip range, and the KL term is at its minimum."""
        return -advantage_for(logp, signal)
