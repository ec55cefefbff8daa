"""One episode of one seed, or of several on a leading axis: a rollout, its signal, the loss of every epoch on it.

Three kinds of rollouts give log-probabilities and scores of different shapes; an objective sees them all alike:

* completions: K whole completions a prompt, one summed log-probability each, [B, K]; loss summed over K, mean over B.
* next tokens: K tokens at every prefix state of one trajectory, [B, H, K]; summed over K, mean over B·H.
* trajectory: one completion a prompt, token by token, [B, H]; summed over H, mean over B; the baseline is the mean
  reward over the prompts at each position.
"""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from common.draws import categorical
from common.objectives import Objective, Signal, reduce
from sequence_tasks.policy import Architecture, Parameters
from sequence_tasks.settings import SequenceTask
from sequence_tasks.task import TARGETS, token_rewards

_TOKENS = 3000
"""Distinct tokens, prompts included, that are scored at a time."""


class Engine(Protocol):
    """How sequences are sampled and scored: ``sequence_tasks.shared``, ``.stacked`` or ``.plain``.

    With a stacked engine every tensor has a leading seed axis.
    """

    SKIPS: bool
    """Whether prompts whose gradient is provably zero are left out, and the rest is scored in parts."""
    STACKS: bool
    """Whether it takes all seeds at once."""

    def sample(self, p: Parameters, shape: Architecture, prompts: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Return tokens [B, K, H], and log π over the vocabulary where they were drawn [B, K, H, V]."""
        ...

    def lay_out(self, shape: Architecture, prompts: Tensor, tokens: Tensor) -> Any:
        """Prepare sequences that are then scored under several parameters."""
        ...

    def token_log_probabilities(self, p: Parameters, shape: Architecture, sequences: Any) -> Tensor:
        """Return log π of the tokens, [B, K, H]."""
        ...

    def state_log_probabilities(self, p: Parameters, shape: Architecture, sequences: Any) -> Tensor:
        """Return log π over the vocabulary at every state of trajectories (K = 1), [B, H, V]."""
        ...


class Draws(NamedTuple):
    """What an episode of a seed is made of."""

    prompts: Tensor
    """int64 [B, H]."""
    noise: Tensor
    """For the behaviour's tokens, [B, K, H]; K is 1 for trajectories."""
    candidates: Tensor | None
    """For the other candidates of token-level groups, [B, H, K − 1]."""

    def of(self, block: int | slice) -> "Draws":
        """Return those of one of several seeds."""
        return Draws(*(None if each is None else each[block] for each in self))  # type: ignore[arg-type]


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


@dataclass(frozen=True)
class Part:
    """Some prompts of a rollout, ready to be scored."""

    kind: str
    sequences: Any
    picked: Tensor | None
    logp_old: Tensor
    signal: Signal
    normaliser: float | Tensor
    """Of the whole rollout, so that the parts' losses add up."""


def roll_out(
    engine: Engine, p: Parameters, shape: Architecture, settings: SequenceTask, objective: Objective, drawn: Draws
) -> Rollout:
    """Sample an episode and form its signal."""
    tokens, states = engine.sample(p, shape, drawn.prompts, drawn.noise)
    logp = states.gather(-1, tokens[..., None])[..., 0]
    targets = TARGETS[settings.target](drawn.prompts, settings.vocabulary)
    rewards = token_rewards(tokens, targets.unsqueeze(-2), settings.reward).to(logp.dtype)
    picked = None
    if not objective.grouped:
        kind, scores, logp_old = "trajectory", rewards.squeeze(-2), logp.squeeze(-2)
        signal = objective.signal(scores, logp_old, baseline=scores.mean(-2, keepdim=True))
    elif settings.level == "sequence":
        kind, scores, logp_old = "completions", rewards.mean(-1), logp.sum(-1)
        signal = objective.signal(scores, logp_old)
    else:
        assert drawn.candidates is not None
        kind, states = "next tokens", states.squeeze(-3)
        others = categorical(states.unsqueeze(-2).expand(*drawn.candidates.shape, -1), drawn.candidates)
        picked = torch.cat([tokens.squeeze(-2)[..., None], others], -1)
        right = (picked == targets[..., None]).to(logp.dtype)
        scores = right * _still_right(rewards.squeeze(-2))[..., None] if settings.reward == "sequential" else right
        logp_old = states.gather(-1, picked)
        signal = objective.signal(scores, logp_old)
    return Rollout(kind, drawn.prompts, tokens, picked, rewards, logp_old, signal, scores)


def _still_right(rewards: Tensor) -> Tensor:
    """Whether everything before a position was right, [..., H], from sequential rewards [..., H]."""
    return torch.cat([torch.ones_like(rewards[..., :1]), rewards[..., :-1]], -1)


def trained_on(objective: Objective, rollout: Rollout, *, snapshot: bool) -> Tensor:
    """Return the prompts of one seed that take part in a gradient epoch, int64 [B'].

    Those whose gradient is provably zero are left out of the computation, not of the mean.

    Args:
        objective: declares what may be left out.
        rollout: the rollout.
        snapshot: whether the parameters are still those of the rollout, as in the first epoch.
    """
    return (~_zero_gradient(objective, rollout, snapshot)).nonzero()[:, 0]


def whole(engine: Engine, shape: Architecture, rollout: Rollout) -> Part:
    """Lay all prompts out for their gradient epochs."""
    sequences = engine.lay_out(shape, rollout.prompts, rollout.tokens)
    return Part(rollout.kind, sequences, rollout.picked, rollout.logp_old, rollout.signal, _normaliser(rollout))


def parts(engine: Engine, shape: Architecture, rollout: Rollout, chosen: Tensor) -> list[Part]:
    """Lay chosen prompts of one seed out for their gradient epochs, in parts that stay in the processor's cache."""
    signal, normaliser = rollout.signal, _normaliser(rollout)
    return [
        Part(
            rollout.kind,
            engine.lay_out(shape, rollout.prompts[rows], rollout.tokens[rows]),
            None if rollout.picked is None else rollout.picked[rows],
            rollout.logp_old[rows],
            _some(signal, rows),
            normaliser,
        )
        for rows in chosen.tensor_split(_cuts(rollout.tokens[chosen]))
        if len(rows)
    ]


def _normaliser(rollout: Rollout) -> float | Tensor:
    """Return over how many prompts, or groups, of a seed the loss is a mean: those that the signal did not drop."""
    lead = rollout.prompts.ndim - 2
    if rollout.kind == "trajectory":
        return rollout.prompts.shape[lead]
    groups = rollout.scores.shape[lead:-1]
    if rollout.signal.weights is None:
        return math.prod(groups)
    return rollout.signal.group_count(tuple(range(lead, lead + len(groups))))


def part_loss(engine: Engine, p: Parameters, shape: Architecture, objective: Objective, part: Part) -> Tensor:
    """Return a part's share of the loss, a scalar (stacked: [S]), differentiable in ``p``."""
    if part.kind == "next tokens":
        assert part.picked is not None
        logp = engine.state_log_probabilities(p, shape, part.sequences).gather(-1, part.picked)
    else:
        logp = engine.token_log_probabilities(p, shape, part.sequences)
        logp = logp.squeeze(-2) if part.kind == "trajectory" else logp.sum(-1)
    terms = objective.loss(logp, part.logp_old, part.signal)
    of_a_seed = tuple(range(int(engine.STACKS), terms.ndim))
    return reduce(terms, part.signal.weights, dims=of_a_seed, normaliser=part.normaliser)


def _zero_gradient(objective: Objective, rollout: Rollout, snapshot: bool) -> Tensor:
    """Which prompts provably leave the parameters alone, bool [B]."""
    signal = rollout.signal
    if rollout.kind == "trajectory":
        assert signal.advantage is not None
        idle = objective.ignores_zero_advantages(snapshot=snapshot)
        return (signal.advantage == 0).all(-1) & idle
    assert signal.varied is not None
    if rollout.kind == "completions":
        identical = (rollout.tokens == rollout.tokens[:, :1]).flatten(1).all(1)
    else:
        assert rollout.picked is not None
        identical = (rollout.picked == rollout.picked[..., :1]).all(-1)
    zero = objective.zero_gradient(~signal.varied.squeeze(-1), identical, snapshot=snapshot)
    return zero.flatten(1).all(1) if zero.ndim > 1 else zero


def _cuts(tokens: Tensor) -> list[int]:
    """Return where to cut prompts with completions [B, K, H] into parts of about ``_TOKENS`` distinct ones."""
    length = tokens.shape[-1]
    factors = torch.full((length,), 0x9E3779B1).cumprod(0)  # of a hash, modulo 2^64; a clash only moves a cut
    codes = (tokens * factors).sum(-1).sort(-1).values
    distinct = 1 + (codes[:, 1:] != codes[:, :-1]).sum(-1)
    filled = ((distinct + 1) * length).cumsum(0) // _TOKENS
    return ((filled[1:] != filled[:-1]).nonzero()[:, 0] + 1).tolist()


def _some(signal: Signal, rows: Tensor) -> Signal:
    """Return the signal of some of the prompts."""
    values = (signal.target, signal.advantage, signal.weights, signal.varied)
    return Signal(*(None if value is None else value[rows] for value in values))
