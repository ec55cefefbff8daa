"""100 contexts of 10 actions and exact population gradients: where each objective spends its step (Fig. 3).

One update moves all contexts' logits together by a step of fixed length, so an objective's weights β(p_n) decide how
the length is shared out among the contexts (arXiv 2604.06159, section 3).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from bandits.alignment import Misalignment, misalignment
from bandits.enumerated import Feedback, snapshot_gradient
from common import draws, objectives
from common.objectives.groups import log_softmax
from common.runs.settings import FLOAT_TYPES, require, require_choice
from common.runs.trainer import Records, require_finite

CORRECT_ACTION = 0


@dataclass(frozen=True)
class MultiContext:
    """Settings; the defaults are the paper's."""

    objective: str = "tpo"
    options: Mapping[str, float | bool] = field(default_factory=dict)
    contexts: int = 100
    actions: int = 10
    steps: int = 1000
    step_size: float = 0.1
    baseline: float = 0.0
    dtype: str = "float32"
    measure_every: int = 10
    experiment_seed: int = 0

    def __post_init__(self) -> None:
        """Raise ValueError naming the first key whose value is not allowed."""
        require("contexts", self.contexts, at_least=1)
        require("actions", self.actions, at_least=2)
        require("steps", self.steps, at_least=1)
        require("measure_every", self.measure_every, at_least=1)
        require("step_size", self.step_size, above=0)
        require("baseline", self.baseline)
        require("experiment_seed", self.experiment_seed, at_least=0)
        require_choice("dtype", self.dtype, FLOAT_TYPES)
        objectives.get(self.objective, self.options)


class MultiContextTrainer:
    """All seeds at once; logits [S, N, A].

    Metrics of step i: ``error`` 1 − mean_n π_n(y) *after* the step, ``misalignment`` of its update to the
    cross-entropy direction e_y − π, and the same with the artefact's ε (both every ``measure_every`` steps and at the
    last, else NaN).
    """

    def __init__(self, settings: MultiContext, seeds: Sequence[int], device: torch.device) -> None:
        self.settings = settings
        self.seeds = tuple(seeds)
        self.step = 0
        self.steps = settings.steps
        self._objective = objectives.get(settings.objective, settings.options)
        shape = (settings.contexts, settings.actions)
        logits = draws.normal(settings.experiment_seed, self.seeds, "logits", 0, shape)
        self._logits = actions_before_contexts(logits.to(device, FLOAT_TYPES[settings.dtype]))
        self._rewards = actions_before_contexts(torch.zeros_like(self._logits))
        self._rewards[..., CORRECT_ACTION] = 1

    def advance(self, stop: int) -> Records:
        """Make updates until ``stop`` are done."""
        steps = torch.arange(self.step, stop)
        errors, exact, with_epsilon = ([] for _ in range(3))
        logp = log_softmax(self._logits)
        for step in range(self.step, stop):
            policy = logp.exp()
            feedback = Feedback(self._rewards, self.settings.baseline, policy, sampled=False)
            gradient = flat(snapshot_gradient(self._objective, logp, policy, feedback))
            measured = self._misalignment(gradient, policy, step)
            exact.append(measured.exact)
            with_epsilon.append(measured.with_epsilon)
            lengths = torch.linalg.vector_norm(gradient, dim=1)
            require_finite(lengths, "gradient", step, self.seeds)
            rates = -self.settings.step_size / lengths.masked_fill(lengths == 0, torch.inf)
            flat(self._logits).addcmul_(gradient, rates[:, None])
            logp = log_softmax(self._logits)
            errors.append(1 - logp[..., CORRECT_ACTION].exp().mean(-1))
            self.step = step + 1
        metrics = {"error": errors, "misalignment": exact, "misalignment_epsilon": with_epsilon}
        return Records(steps, {name: torch.stack(values, 1).cpu() for name, values in metrics.items()})

    def _misalignment(self, gradient: Tensor, policy: Tensor, step: int) -> Misalignment:
        """Compare the update with e_y − π where the step is one of those measured; NaN elsewhere."""
        if step % self.settings.measure_every == 0 or step == self.steps - 1:
            return misalignment(-gradient, flat(self._rewards - policy))
        nothing = gradient.new_full((len(self.seeds),), torch.nan)
        return Misalignment(nothing, nothing)

    def state_dict(self) -> dict[str, Tensor]:
        """Return the logits."""
        return {"logits": self._logits.contiguous()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Take up saved logits."""
        self._logits = actions_before_contexts(state["logits"].to(self._logits))


def actions_before_contexts(values: Tensor) -> Tensor:
    """Lay [S, N, A] out in memory as [S, A, N]: reductions over a short last axis are several times faster so."""
    return values.mT.contiguous().mT


def flat(values: Tensor) -> Tensor:
    """View [S, N, A], laid out as [S, A, N], as one vector per seed, [S, A·N]."""
    return values.mT.flatten(1)
