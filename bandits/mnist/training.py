"""MNIST as a contextual bandit: see an image, sample a class, learn whether it was right (Fig. 1a, Fig. 4).

Arxiv 2604.06159, section 4.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from bandits.mnist.data import DigitImages
from bandits.mnist.feedback import sampled_loss
from bandits.mnist.mechanism import BINS, has_expected_update, surplus_by_confusion
from bandits.mnist.policy import StackedMLP
from common import draws, objectives
from common.objectives.groups import log_softmax
from common.runs.settings import require
from common.runs.trainer import Records, require_finite


@dataclass(frozen=True)
class Mnist:
    """Settings; the defaults are the paper's."""

    objective: str = "tpo"
    options: Mapping[str, float | bool] = field(default_factory=dict)
    batch: int = 100
    steps: int = 10_000
    learning_rate: float = 1e-3
    hidden: int = 50
    eval_every: int = 200
    images: str = "mnist"
    """The images' digest: "mnist" for the original set."""
    experiment_seed: int = 0

    def __post_init__(self) -> None:
        """Raise ValueError naming the first key whose value is not allowed."""
        require("batch", self.batch, at_least=1)
        require("steps", self.steps, at_least=1)
        require("learning_rate", self.learning_rate, above=0)
        require("hidden", self.hidden, at_least=1)
        require("eval_every", self.eval_every, at_least=1)
        require("experiment_seed", self.experiment_seed, at_least=0)
        if self.steps % self.eval_every:
            below = next(n for n in range(min(self.eval_every, self.steps), 0, -1) if self.steps % n == 0)
            raise ValueError(f"eval_every: {self.eval_every} does not divide steps={self.steps}; e.g. {below} does")
        objective = objectives.get(self.objective, self.options)
        if objective.grouped and not objective.over_actions and self.batch < 2:
            raise ValueError(
                f"batch: {self.batch} is not allowed; {self.objective}'s group is the minibatch of 2 or more"
            )


class MnistTrainer:
    """All seeds at once, each with its own weights, images and sampled classes.

    Metrics after every ``eval_every`` updates, and before the first; ``step`` counts updates done: ``error`` on the
    test images (argmax), ``surplus_0`` ... ``surplus_3`` and ``misclassified_0`` ... by bin of confusion
    (``bandits.mnist.mechanism``; NaN for objectives without an expected update).
    """

    def __init__(self, settings: Mnist, seeds: Sequence[int], device: torch.device, digits: DigitImages) -> None:
        self.settings = settings
        self.seeds = tuple(seeds)
        self.step = 0
        self.steps = settings.steps
        self._objective = objectives.get(settings.objective, settings.options)
        self._policy = StackedMLP(settings.hidden, settings.experiment_seed, seeds, device)
        self._optimiser = torch.optim.Adam(self._policy.parameters.values(), lr=settings.learning_rate, fused=True)
        self._images = digits.train_images.to(device)
        self._labels = digits.train_labels.to(device)
        self._test_pixels = _pixels(digits.test_images.to(device))
        self._test_labels = digits.test_labels.to(device)
        self._draws: tuple[int, Tensor, Tensor] | None = None

    def advance(self, stop: int) -> Records:
        """Make updates until ``stop`` are done."""
        steps, measured = [], []
        if self.step == 0:
            steps.append(0)
            measured.append(self._evaluate())
        while self.step < stop:
            self._update()
            self.step += 1
            if self.step % self.settings.eval_every == 0:
                steps.append(self.step)
                measured.append(self._evaluate())
        names = ["error", *(f"surplus_{i}" for i in range(BINS)), *(f"misclassified_{i}" for i in range(BINS))]
        stacked = torch.stack(measured, 1) if measured else torch.empty(len(self.seeds), 0, len(names)).double()
        metrics = {name: stacked[:, :, column] for column, name in enumerate(names)}
        return Records(torch.tensor(steps, dtype=torch.int64), metrics)

    def _update(self) -> None:
        chosen, noise = self._draw()
        images = self._images.index_select(0, chosen.flatten()).view(*chosen.shape, -1)
        logp = log_softmax(self._policy.logits(_pixels(images)))
        actions = draws.categorical(logp.detach(), noise)
        losses = sampled_loss(self._objective, logp, actions, self._labels[chosen]).mean(-1)
        require_finite(losses, "loss", self.step, self.seeds)
        self._optimiser.zero_grad(set_to_none=True)
        losses.sum().backward()
        self._optimiser.step()

    def _draw(self) -> tuple[Tensor, Tensor]:
        """Return this step's image indices and sampling noise, [S, B] each."""
        block, offset = divmod(self.step, draws.STEPS_PER_BLOCK)
        if self._draws is None or self._draws[0] != block:
            seed, shape = self.settings.experiment_seed, (draws.STEPS_PER_BLOCK, self.settings.batch)
            chosen = draws.integers(seed, self.seeds, "images", block, len(self._images), shape)
            noise = draws.uniform(seed, self.seeds, "classes", block, shape)
            device = self._images.device
            self._draws = block, chosen.to(device), noise.to(device, torch.float32)
        return self._draws[1][:, offset], self._draws[2][:, offset]

    @torch.no_grad()
    def _evaluate(self) -> Tensor:
        """Return every seed's metrics, float64 [S, 1 + 2·BINS]."""
        return torch.stack([self._evaluate_seed(index) for index in range(len(self.seeds))]).cpu()

    def _evaluate_seed(self, index: int) -> Tensor:
        logits = self._policy.logits_of_seed(index, self._test_pixels)
        require_finite(logits[None], "logits of the test images", self.step, self.seeds[index : index + 1])
        error = (logits.argmax(-1) != self._test_labels).double().mean()
        if not has_expected_update(self._objective):
            return torch.cat([error[None], error.new_full((2 * BINS,), torch.nan)])
        with torch.enable_grad():
            surplus, counts = surplus_by_confusion(self._objective, logits.softmax(-1), self._test_labels)
        return torch.cat([error[None], surplus, counts])

    def state_dict(self) -> dict[str, Tensor]:
        """Return weights and Adam's moments."""
        state = {}
        for name, parameter in self._policy.parameters.items():
            state[name] = parameter.detach()
            for moment, value in self._optimiser.state[parameter].items():
                state[f"{name}.{moment}"] = value
        return state

    @torch.no_grad()
    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Take up saved weights and moments."""
        for name, parameter in self._policy.parameters.items():
            parameter.copy_(state[name])
            moments = {key.partition(".")[2]: value for key, value in state.items() if key.startswith(f"{name}.")}
            self._optimiser.state[parameter] = {
                moment: value if moment == "step" else value.to(parameter.device) for moment, value in moments.items()
            }


def _pixels(images: Tensor) -> Tensor:
    """Scale uint8 images to float32 in [0, 1]."""
    return images.to(torch.float32).div_(255)
