"""One small MLP a seed, all seeds stacked on the leading axis of every parameter."""

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor

from common import draws

PIXELS = 784
CLASSES = 10


class StackedMLP:
    """MLP 784-h-h-10 with ReLU; weights truncated-normal LeCun (variance 1 / fan-in), biases 0.

    Parameters are [S, fan_in, fan_out] and [S, 1, fan_out]; the initial weights of a seed depend on nothing but the
    experiment seed and its index.
    """

    def __init__(self, hidden: int, experiment_seed: int, seeds: Sequence[int], device: torch.device) -> None:
        sizes = [PIXELS, hidden, hidden, CLASSES]
        self.parameters: dict[str, Tensor] = {}
        for layer, shape in enumerate(pairwise(sizes)):
            weights = draws.truncated_normal(experiment_seed, seeds, f"weights {layer}", shape, variance=1 / shape[0])
            biases = torch.zeros(len(seeds), 1, shape[1])
            self.parameters[f"weight{layer}"] = weights.to(device, torch.float32).requires_grad_()
            self.parameters[f"bias{layer}"] = biases.to(device).requires_grad_()

    def logits(self, pixels: Tensor) -> Tensor:
        """Map images [S, B, 784] in [0, 1] to class logits [S, B, 10]."""
        return _forward(list(self.parameters.values()), pixels)

    @torch.no_grad()
    def logits_of_seed(self, index: int, pixels: Tensor) -> Tensor:
        """Map images [B, 784] to one seed's class logits [B, 10]."""
        return _forward([value[index] for value in self.parameters.values()], pixels)


def _forward(parameters: Sequence[Tensor], pixels: Tensor) -> Tensor:
    weight0, bias0, weight1, bias1, weight2, bias2 = parameters
    hidden = torch.relu(torch.matmul(pixels, weight0) + bias0)
    hidden = torch.relu(torch.matmul(hidden, weight1) + bias1)
    return torch.matmul(hidden, weight2) + bias2
