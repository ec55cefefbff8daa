"""One episode of one seed: a rollout, its signal, and the gradient of every epoch on it.

Three kinds of rollouts give log-probabilities and scores of different shapes; an objective sees them all alike:

* completions: K whole completions a prompt, one summed log-probability each, [B, K]; loss summed over K, mean over B.
* next tokens: K tokens at every prefix state of one trajectory, [B, H, K]; summed over K, mean over B·H.
* trajectory: one completion a prompt, token by token, [B, H]; summed over H, mean over B; the baseline is the mean
  reward over the prompts at each position.
"""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from common.draws import categorical
from common.objectives import Objective, Signal, reduce
from sequence_tasks.policy import Architecture, Parameters
from sequence_tasks.settings import SequenceTask
from sequence_tasks.task import TARGETS, token_rewards


class Engine(Protocol):
    """How sequences are sampled and scored: ``sequence_tasks.shared``, or ``sequence_tasks.plain``."""

    def sample(self, p: Parameters, shape: Architecture, prompts: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Return tokens and their log-probabilities, [B, K, H] each."""
        ...

    def token_log_probabilities(self, p: Parameters, shape: Architecture, prompts: Tensor, tokens: Tensor) -> Tensor:
        """Return log π of tokens [B, K, H]."""
        ...

    def state_log_probabilities(self, p: Parameters, shape: Architecture, prompts: Tensor, tokens: Tensor) -> Tensor:
        """Return log π over the vocabulary at every state of trajectories [B, H], [B, H, V]."""
        ...


class Draws(NamedTuple):
    """What an episode of a seed is made of."""

    prompts: Tensor
    """int64 [B, H]."""
    noise: Tensor
    """For the behaviour's tokens, [B, K, H]; K is 1 for trajectories."""
    candidates: Tensor | None
    """For the other candidates of token-level groups, [B, H, K − 1]."""


@dataclass(frozen=True)
class Rollout:
    """What the behaviour policy did, and what the objective makes of it; constant during the epochs."""

    kind: str
    """``completions``, ``next tokens`` or ``trajectory``."""
    prompts: Tensor
    tokens: Tensor
    """int64 [B, K, H] of completions, else [B, 1, H]."""
    picked: Tensor | None
    """The candidates of token-level groups, int64 [B, H, K]."""
    rewards: Tensor
    """Of the tokens, [B, K, H]."""
    logp_old: Tensor
    signal: Signal
    scores: Tensor
    identical: Tensor | None
    """Which groups of completions are all the same, bool [B]."""


def roll_out(
    engine: Engine, p: Parameters, shape: Architecture, settings: SequenceTask, objective: Objective, drawn: Draws
) -> Rollout:
    """Sample an episode and form its signal."""
    tokens, logp = engine.sample(p, shape, drawn.prompts, drawn.noise)
    targets = TARGETS[settings.target](drawn.prompts, settings.vocabulary)
    rewards = token_rewards(tokens, targets[:, None], settings.reward).to(logp.dtype)
    picked = identical = None
    if not objective.grouped:
        kind, scores, logp_old = "trajectory", rewards[:, 0], logp[:, 0]
        signal = objective.signal(scores, logp_old, baseline=scores.mean(0))
    elif settings.level == "sequence":
        kind, scores, logp_old = "completions", rewards.mean(-1), logp.sum(-1)
        identical = (tokens == tokens[:, :1]).flatten(1).all(1)
        signal = objective.signal(scores, logp_old)
    else:
        assert drawn.candidates is not None
        kind = "next tokens"
        with torch.no_grad():
            states = engine.state_log_probabilities(p, shape, drawn.prompts, tokens[:, 0])
        others = categorical(states[:, :, None].expand(*drawn.candidates.shape, -1), drawn.candidates)
        picked = torch.cat([tokens[:, 0, :, None], others], -1)
        right = (picked == targets[:, :, None]).to(logp.dtype)
        scores = right * _still_right(rewards[:, 0])[..., None] if settings.reward == "sequential" else right
        logp_old = states.gather(-1, picked)
        signal = objective.signal(scores, logp_old)
    return Rollout(kind, drawn.prompts, tokens, picked, rewards, logp_old, signal, scores, identical)


def _still_right(rewards: Tensor) -> Tensor:
    """Whether everything before a position was right, [B, H], from sequential rewards [B, H]."""
    return torch.cat([torch.ones_like(rewards[:, :1]), rewards[:, :-1]], 1)


def epoch_loss(
    engine: Engine, p: Parameters, shape: Architecture, objective: Objective, rollout: Rollout, epoch: int
) -> Tensor | None:
    """Return the loss of a gradient epoch, or None where its gradient is provably zero.

    Groups whose gradient is provably zero are left out of the computation, not of the mean.
    """
    batch, _, length = rollout.tokens.shape
    signal = rollout.signal
    if rollout.kind == "trajectory":
        logp = engine.token_log_probabilities(p, shape, rollout.prompts, rollout.tokens)[:, 0]
        return reduce(objective.loss(logp, rollout.logp_old, signal), normaliser=batch)
    if rollout.kind == "next tokens":
        assert rollout.picked is not None
        states = engine.state_log_probabilities(p, shape, rollout.prompts, rollout.tokens[:, 0])
        logp = states.gather(-1, rollout.picked)
        groups = _count(signal, batch * length)
        return reduce(objective.loss(logp, rollout.logp_old, signal), signal.weights, normaliser=groups)
    kept = ~_skippable(objective, rollout, epoch)
    if not bool(kept.any()):
        return None
    logp = engine.token_log_probabilities(p, shape, rollout.prompts[kept], rollout.tokens[kept]).sum(-1)
    part = _part(signal, kept)
    terms = objective.loss(logp, rollout.logp_old[kept], part)
    return reduce(terms, part.weights, normaliser=_count(signal, batch))


def _skippable(objective: Objective, rollout: Rollout, epoch: int) -> Tensor:
    assert rollout.identical is not None
    equal = rollout.signal.varied
    assert equal is not None
    return objective.zero_gradient(~equal.squeeze(-1), rollout.identical, snapshot=epoch == 0)


def _part(signal: Signal, kept: Tensor) -> Signal:
    """Return the signal of some of the groups."""
    parts = (signal.target, signal.advantage, signal.weights, signal.varied)
    return Signal(*(None if part is None else part[kept] for part in parts))


def _count(signal: Signal, groups: int) -> Tensor | float:
    """Return how many groups the loss is a mean over: those that the signal did not drop."""
    return groups if signal.weights is None else signal.group_count(tuple(range(signal.weights.ndim - 1)))
