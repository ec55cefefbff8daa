"""One context, 100 actions, one of them correct: sampled updates on the logits themselves (Fig. 2).

Every step samples B actions from the policy, turns the objective's loss into a logit update g and moves the logits by
a step of fixed length, logits += α·g/‖g‖ (arXiv 2604.06159, section 3).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from bandits.alignment import misalignment, unit
from bandits.enumerated import Feedback, snapshot_gradient
from common import draws, objectives
from common.objectives.groups import log_softmax
from common.runs.settings import FLOAT_TYPES, require, require_choice
from common.runs.trainer import Records, require_finite

CORRECT_ACTION = 0


@dataclass(frozen=True)
class SingleContext:
    """Settings; the defaults are the paper's."""

    objective: str = "tpo"
    options: Mapping[str, float | bool] = field(default_factory=dict)
    actions: int = 100
    batch: int = 100
    steps: int = 150
    step_size: float = 0.1
    baseline: float = 0.5
    dtype: str = "float64"
    experiment_seed: int = 0

    def __post_init__(self) -> None:
        """Raise ValueError naming the first key whose value is not allowed."""
        require("actions", self.actions, at_least=2)
        require("batch", self.batch, at_least=1)
        require("steps", self.steps, at_least=1)
        require("step_size", self.step_size, above=0)
        require("baseline", self.baseline)
        require("experiment_seed", self.experiment_seed, at_least=0)
        require_choice("dtype", self.dtype, FLOAT_TYPES)
        objectives.get(self.objective, self.options)


class SingleContextTrainer:
    """All seeds at once; logits [S, A].

    Metrics of step i are those of the policy and its update *before* the step is made: ``error`` 1 − π(y*),
    ``misalignment`` 1 − cos(g, g*) with g* = π(y*)(e_{y*} − π), and the same with the artefact's ε.
    """

    def __init__(self, settings: SingleContext, seeds: Sequence[int], device: torch.device) -> None:
        self.settings = settings
        self.seeds = tuple(seeds)
        self.step = 0
        self.steps = settings.steps
        self._objective = objectives.get(settings.objective, settings.options)
        dtype = FLOAT_TYPES[settings.dtype]
        self._logits = torch.zeros(len(seeds), settings.actions, dtype=dtype, device=device)
        self._rewards = torch.zeros_like(self._logits)
        self._rewards[:, CORRECT_ACTION] = 1
        self._noise: tuple[int, Tensor] | None = None

    def advance(self, stop: int) -> Records:
        """Make updates until ``stop`` are done."""
        steps = torch.arange(self.step, stop)
        errors, exact, with_epsilon = ([] for _ in range(3))
        for step in range(self.step, stop):
            logp = log_softmax(self._logits)
            policy = logp.exp()
            update = self._update(logp, policy, step)
            correct = policy[:, CORRECT_ACTION, None]
            ideal = correct * (self._rewards - policy)
            errors.append(1 - correct[:, 0])
            measured = misalignment(update, ideal)
            exact.append(measured.exact)
            with_epsilon.append(measured.with_epsilon)
            self._logits = self._logits + self.settings.step_size * unit(update)
            self.step = step + 1
        metrics = {"error": errors, "misalignment": exact, "misalignment_epsilon": with_epsilon}
        return Records(steps, {name: torch.stack(values, 1).cpu() for name, values in metrics.items()})

    def _update(self, logp: Tensor, policy: Tensor, step: int) -> Tensor:
        """Return the update g = −∂L/∂logits at log π and π, all [S, A]."""
        frequencies = self._frequencies(policy, step)
        feedback = Feedback(self._rewards, self.settings.baseline, frequencies, sampled=True)
        gradient = snapshot_gradient(self._objective, logp, policy, feedback)
        require_finite(gradient, "gradient", step, self.seeds)
        return -gradient

    def _frequencies(self, policy: Tensor, step: int) -> Tensor:
        """Sample B actions by inverting the policy's distribution function; return n_a / B, [S, A]."""
        block, offset = divmod(step, draws.STEPS_PER_BLOCK)
        if self._noise is None or self._noise[0] != block:
            shape = (draws.STEPS_PER_BLOCK, self.settings.batch)
            noise = draws.uniform(self.settings.experiment_seed, self.seeds, "actions", block, shape)
            in_order = torch.from_numpy(np.sort(noise.numpy(), -1))  # several times faster than torch's sort
            self._noise = block, in_order.transpose(0, 1).to(policy).contiguous()
        noise = self._noise[1][offset]
        below = torch.searchsorted(noise, policy[:, :-1].cumsum(-1)).to(policy.dtype)
        edges = torch.nn.functional.pad(below, (1, 1))
        edges[:, -1] = self.settings.batch
        return edges.diff(dim=-1) / self.settings.batch

    def state_dict(self) -> dict[str, Tensor]:
        """Return the logits."""
        return {"logits": self._logits}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Take up saved logits."""
        self._logits = state["logits"].to(self._logits)
