"""Training on token sequences: the run store's trainer, each episode a rollout and a few gradient epochs on it."""

from collections.abc import Sequence

import torch
from torch import Tensor

from common import draws, objectives
from common.optim import StackedMuon
from common.runs.settings import FLOAT_TYPES
from common.runs.trainer import Records, require_finite
from sequence_tasks import shared
from sequence_tasks.episode import Draws, Engine, Part, Rollout, part_loss, parts, roll_out, trained_on
from sequence_tasks.policy import Architecture
from sequence_tasks.settings import SequenceTask

METRICS = (
    "error",
    "exact_match_error",
    "gradient_norm",
    "update_norm",
    "all_fail",
    "success",
    "winner_weight",
    "loser_weight",
)


class SequenceTrainer:
    """A stack of seeds; parameters and optimiser are stacked, forward and backward passes go seed by seed.

    Metrics of episode i are those of its own rollouts, sampled before its updates: ``error`` 1 − mean token reward
    (with terminal rewards the exact-match error), ``exact_match_error``, ``all_fail`` the share of prompts of whose
    completions none is right, ``success`` the share with one that is, ``gradient_norm`` of the first epoch,
    ``update_norm`` of all the episode's updates summed, and ``winner_weight`` / ``loser_weight`` the mean target (or
    |advantage|) of completions of positive and of zero score.
    """

    def __init__(
        self, settings: SequenceTask, seeds: Sequence[int], device: torch.device, engine: Engine = shared
    ) -> None:
        self.settings = settings
        self.seeds = tuple(seeds)
        self.step = 0
        self.steps = settings.episodes
        self._engine = engine
        self._objective = objectives.get(settings.objective, settings.options)
        self._shape = Architecture(settings.vocabulary, 2 * settings.length, heads=settings.heads)
        initial = self._shape.initial(settings.experiment_seed, self.seeds, FLOAT_TYPES[settings.dtype])
        self._parameters = {name: value.to(device) for name, value in initial.items()}
        self._optimiser = StackedMuon(
            self._shape.as_matrices(self._parameters) if settings.grouping == "standard" else self._parameters,
            self._shape.matrices(settings.grouping),
            settings.learning_rate,
            settings.momentum_form,
        )

    def advance(self, stop: int) -> Records:
        """Train until ``stop`` episodes are done."""
        steps = torch.arange(self.step, stop)
        measured = []
        while self.step < stop:
            measured.append(self._episode())
            self.step += 1
        stacked = torch.stack(measured, 1)
        return Records(steps, {name: stacked[:, :, column] for column, name in enumerate(METRICS)})

    def _episode(self) -> Tensor:
        """Make one episode; return its metrics, float64 [S, len(METRICS)]."""
        rollouts = self.rollouts()
        sampled = torch.stack([rollout.logp_old.sum() for rollout in rollouts])
        require_finite(sampled, "log-probability of a rollout", self.step, self.seeds)
        gradient_norm = update_norm = torch.zeros(len(self.seeds), dtype=torch.float64)
        chosen: list[Tensor] = []
        laid_out: list[list[Part]] = []
        for epoch in range(self.settings.epochs):
            if epoch < 2:  # what may be left out can differ on the snapshot
                before, chosen = (
                    chosen,
                    [trained_on(self._engine, self._objective, rollout, snapshot=epoch == 0) for rollout in rollouts],
                )
                if epoch == 0 or any(not torch.equal(*pair) for pair in zip(before, chosen, strict=True)):
                    laid_out = [
                        parts(self._engine, self._shape, rollout, rows)
                        for rollout, rows in zip(rollouts, chosen, strict=True)
                    ]
            gradients = self._gradients(laid_out, epoch)
            if epoch == 0:
                gradient_norm = _norm(gradients)
                require_finite(gradient_norm, "gradient of epoch 0", self.step, self.seeds)
            moved = self._optimiser.step(self._laid_out(gradients)).double().cpu()
            require_finite(moved, f"update of epoch {epoch}", self.step, self.seeds)
            update_norm = update_norm + moved
        measured = torch.stack([_rollout_metrics(rollout) for rollout in rollouts])
        return torch.cat([measured[:, :2], gradient_norm[:, None], update_norm[:, None], measured[:, 2:]], 1)

    def rollouts(self) -> list[Rollout]:
        """Sample the episode at hand of every seed; changes nothing."""
        return [
            roll_out(self._engine, self._of(index), self._shape, self.settings, self._objective, drawn)
            for index, drawn in enumerate(self._draw())
        ]

    def _gradients(self, laid_out: Sequence[Sequence[Part]], epoch: int) -> dict[str, Tensor]:
        """Return the gradients of an epoch, [S, ...] each."""
        gradients = {name: torch.zeros_like(value) for name, value in self._parameters.items()}
        losses = torch.zeros(len(self.seeds))
        for index, seed_parts in enumerate(laid_out):
            leaves = {name: value.detach().requires_grad_() for name, value in self._of(index).items()}
            for part in seed_parts:
                loss = part_loss(self._engine, leaves, self._shape, self._objective, part)
                losses[index] += loss.detach()
                for name, gradient in zip(leaves, torch.autograd.grad(loss, list(leaves.values())), strict=True):
                    gradients[name][index] += gradient
        require_finite(losses, f"loss of epoch {epoch}", self.step, self.seeds)
        return gradients

    def _draw(self) -> list[Draws]:
        """Draw the episode of every seed."""
        settings, grouped = self.settings, self._objective.grouped
        token_level = grouped and settings.level == "token"
        batch, length = settings.batch, settings.length
        behaviours = settings.candidates if grouped and not token_level else 1
        at = (settings.experiment_seed, self.seeds)
        prompts = draws.integers(*at, "prompts", self.step, settings.vocabulary, (batch, length))
        noise = draws.uniform(*at, "completions", self.step, (batch, behaviours, length))
        others: Sequence[Tensor | None] = [None] * len(self.seeds)
        if token_level:
            others = draws.uniform(*at, "candidates", self.step, (batch, length, settings.candidates - 1)).unbind(0)
        return [Draws(*each) for each in zip(prompts.unbind(0), noise.unbind(0), others, strict=True)]

    def _of(self, index: int) -> dict[str, Tensor]:
        """Return one seed's parameters."""
        return {name: value[index] for name, value in self._parameters.items()}

    def _laid_out(self, gradients: dict[str, Tensor]) -> dict[str, Tensor]:
        return self._shape.as_matrices(gradients) if self.settings.grouping == "standard" else gradients

    def state_dict(self) -> dict[str, Tensor]:
        """Return parameters and the optimiser's state."""
        return self._parameters | {f"optimiser/{key}": value for key, value in self._optimiser.state_dict().items()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Take up saved parameters and optimiser state."""
        for name, value in self._parameters.items():
            value.copy_(state[name])
        prefix = "optimiser/"
        self._optimiser.load_state_dict(
            {key.removeprefix(prefix): value for key, value in state.items() if key.startswith(prefix)}
        )


def _norm(gradients: dict[str, Tensor]) -> Tensor:
    """Return the L2 norm over all parameters, float64 [S]."""
    squares = [value.double().square().flatten(1).sum(1) for value in gradients.values()]
    return torch.stack(squares).sum(0).sqrt().cpu()


def _rollout_metrics(rollout: Rollout) -> Tensor:
    """Return error, exact-match error, all-fail share, success share, and weights of winners and losers."""
    rewards = rollout.rewards.double()
    right = rewards.prod(-1) > 0  # [B, K]: every token was rewarded
    solved = right.any(1).double().mean()
    weight = rollout.signal.target if rollout.signal.target is not None else rollout.signal.advantage
    assert weight is not None
    winners = rollout.scores > 0
    weights = [_mean(weight.abs().double(), those) for those in (winners, ~winners)]
    return torch.stack([1 - rewards.mean(), 1 - right.double().mean(), 1 - solved, solved, *weights])


def _mean(values: Tensor, those: Tensor) -> Tensor:
    """Return the mean of some values, NaN where there are none."""
    return (values * those).sum() / torch.where(those.any(), those.sum(), torch.nan)
