"""Training on token sequences: the run store's trainer, each episode a rollout and a few gradient epochs on it."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from common import draws, objectives
from common.errors import UserError
from common.optim import StackedMuon
from common.runs.settings import FLOAT_TYPES
from common.runs.trainer import Records, require_finite
from sequence_tasks import stacked
from sequence_tasks.engines import engine_for
from sequence_tasks.episode import Draws, Engine, Part, Rollout, part_loss, parts, roll_out, trained_on, whole
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


_COMPILED_TOLERANCE, _ROUNDING = 1e-4, 1e-6
"""How far a compiled gradient may be from the eager one: relative, plus what an exact 0 leaves in float32."""


class SequenceTrainer:
    """A stack of seeds under one optimiser; forward and backward passes go seed by seed, or stacked where static.

    Metrics of episode i are those of its own rollouts, sampled before its updates: ``error`` 1 − mean token reward
    (with terminal rewards the exact-match error), ``exact_match_error``, ``all_fail`` the share of prompts of whose
    completions none is right, ``success`` the share with one that is, ``gradient_norm`` of the first epoch,
    ``update_norm`` of all the episode's updates summed, and ``winner_weight`` / ``loser_weight`` the mean target (or
    |advantage|) of completions of positive and of zero score.
    """

    def __init__(
        self, settings: SequenceTask, seeds: Sequence[int], device: torch.device, engine: Engine | None = None
    ) -> None:
        """Draw initial parameters; the engine is ``engine_for`` the device where none is given."""
        self.settings = settings
        self.seeds = tuple(seeds)
        self.step = 0
        self.steps = settings.episodes
        self._device = device
        self._engine = engine_for(settings, device) if engine is None else engine
        self._objective = objectives.get(settings.objective, settings.options)
        self._shape = Architecture(settings.vocabulary, 2 * settings.length, heads=settings.heads)
        initial = self._shape.initial(settings.experiment_seed, self.seeds, FLOAT_TYPES[settings.dtype])
        self._parameters = {name: value.to(device) for name, value in initial.items()}
        self._checked = False
        self._blocks: Sequence[int | slice] = [slice(None)] if self._engine.STACKS else range(len(self.seeds))
        self._optimiser = StackedMuon(
            self._shape.as_matrices(self._parameters) if settings.grouping == "standard" else self._parameters,
            self._shape.matrices(settings.grouping),
            settings.learning_rate,
            settings.momentum_form,
        )

    def advance(self, stop: int) -> Records:
        """Train until ``stop`` episodes are done."""
        if self.settings.compile and not self._checked:
            self._check_against_eager()
        steps = torch.arange(self.step, stop)
        measured = []
        while self.step < stop:
            measured.append(self._episode())
            self.step += 1
        metrics = torch.stack(measured, 1)
        return Records(steps, {name: metrics[:, :, column] for column, name in enumerate(METRICS)})

    def _episode(self) -> Tensor:
        """Make one episode; return its metrics, float64 [S, len(METRICS)]."""
        rollouts = self.rollouts()
        sampled = torch.stack([rollout.logp_old.flatten(-2).sum(-1) for rollout in rollouts])
        require_finite(sampled.view(len(self.seeds), -1), "log-probability of a rollout", self.step, self.seeds)
        gradient_norm = update_norm = torch.zeros(len(self.seeds), dtype=torch.float64)
        for epoch, laid_out in enumerate(self._epochs(rollouts)):
            gradients = self._gradients(laid_out, epoch)
            if epoch == 0:
                gradient_norm = _norm(gradients)
                require_finite(gradient_norm, "gradient of epoch 0", self.step, self.seeds)
            moved = self._optimiser.step(self._laid_out(gradients)).double().cpu()
            require_finite(moved, f"update of epoch {epoch}", self.step, self.seeds)
            update_norm = update_norm + moved
        measured = torch.stack([_rollout_metrics(rollout) for rollout in rollouts])
        measured = measured.view(len(self.seeds), -1).cpu()
        return torch.cat([measured[:, :2], gradient_norm[:, None], update_norm[:, None], measured[:, 2:]], 1)

    def rollouts(self) -> list[Rollout]:
        """Sample the episode at hand: one rollout a seed, or one of all seeds where they are stacked."""
        drawn = self._draw()
        return [
            roll_out(self._engine, self._of(block), self._shape, self.settings, self._objective, drawn.of(block))
            for block in self._blocks
        ]

    def _epochs(self, rollouts: Sequence[Rollout]) -> Iterator[list[list[Part]]]:
        """Yield what each gradient epoch trains on, block by block."""
        if not self._engine.SKIPS:
            yield from [[[whole(self._engine, self._shape, rollout)] for rollout in rollouts]] * self.settings.epochs
            return
        chosen: list[Tensor] = []
        laid_out: list[list[Part]] = []
        for epoch in range(self.settings.epochs):
            if epoch < 2:  # what may be left out can differ on the snapshot
                before = chosen
                chosen = [trained_on(self._objective, rollout, snapshot=epoch == 0) for rollout in rollouts]
                if epoch == 0 or not all(map(torch.equal, before, chosen)):
                    laid_out = [parts(self._engine, self._shape, *each) for each in zip(rollouts, chosen, strict=True)]
            yield laid_out

    def _gradients(self, laid_out: Sequence[Sequence[Part]], epoch: int) -> dict[str, Tensor]:
        """Return the gradients of an epoch, [S, ...] each."""
        gradients = {name: torch.zeros_like(value) for name, value in self._parameters.items()}
        losses = torch.zeros(len(self.seeds), device=self._device)
        for block, block_parts in zip(self._blocks, laid_out, strict=True):
            leaves = {name: value.detach().requires_grad_() for name, value in self._of(block).items()}
            for part in block_parts:
                loss = part_loss(self._engine, leaves, self._shape, self._objective, part)
                losses[block] += loss.detach()
                for name, gradient in zip(leaves, torch.autograd.grad(loss.sum(), list(leaves.values())), strict=True):
                    gradients[name][block] += gradient
        require_finite(losses, f"loss of epoch {epoch}", self.step, self.seeds)
        return gradients

    def _check_against_eager(self) -> None:
        """Compare the compiled engine's first gradient with the eager one's on the same rollout.

        Raises:
            UserError: they differ by more than rounding.
        """
        (rollout,) = self.rollouts()
        found = []
        for engine in (self._engine, stacked):
            leaves = {name: value.detach().requires_grad_() for name, value in self._parameters.items()}
            loss = part_loss(engine, leaves, self._shape, self._objective, whole(engine, self._shape, rollout))
            found.append(torch.cat([g.flatten() for g in torch.autograd.grad(loss.sum(), list(leaves.values()))]))
        difference, size = float((found[0] - found[1]).norm()), float(found[1].norm())
        if not difference <= _COMPILED_TOLERANCE * size + _ROUNDING:
            raise UserError(
                f"compile: the compiled gradient differs from the eager one by {difference:.2g} of {size:.2g};"
                " use compile=false"
            )
        self._checked = True

    def _draw(self) -> Draws:
        """Draw the episode of all seeds, [S, ...] each."""
        settings, grouped = self.settings, self._objective.grouped
        token_level = grouped and settings.level == "token"
        batch, length = settings.batch, settings.length
        behaviours = settings.candidates if grouped and not token_level else 1
        at = (settings.experiment_seed, self.seeds)
        prompts = draws.integers(*at, "prompts", self.step, settings.vocabulary, (batch, length))
        noise = draws.uniform(*at, "completions", self.step, (batch, behaviours, length))
        others = None
        if token_level:
            others = draws.uniform(*at, "candidates", self.step, (batch, length, settings.candidates - 1))
            others = others.to(self._device)
        return Draws(prompts.to(self._device), noise.to(self._device), others)

    def _of(self, block: int | slice) -> dict[str, Tensor]:
        """Return the parameters of a seed, or of all of them."""
        return {name: value[block] for name, value in self._parameters.items()}

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
    """Return error, exact-match error, all-fail and success share, weights of winners and losers, [6] or [S, 6]."""
    lead = rollout.prompts.ndim - 2
    rewards = rollout.rewards.double()
    right = (rewards.prod(-1) > 0).double()  # [..., B, K]: every token was rewarded
    solved = right.amax(-1).mean(-1)
    weight = rollout.signal.target if rollout.signal.target is not None else rollout.signal.advantage
    assert weight is not None
    winners = rollout.scores > 0
    weights = [_mean(weight.abs().double(), those, lead) for those in (winners, ~winners)]
    errors = [1 - values.flatten(lead).mean(-1) for values in (rewards, right)]
    return torch.stack([*errors, 1 - solved, solved, *weights], -1)


def _mean(values: Tensor, those: Tensor, lead: int) -> Tensor:
    """Return the mean of some values over all but the leading axes, NaN where there are none."""
    total, count = (each.flatten(lead).sum(-1) for each in (values * those, those.double()))
    return total / torch.where(count > 0, count, torch.nan)
