"""The track's experiments by name."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from bandits.multi_context import MultiContext, MultiContextTrainer
from bandits.single_context import SingleContext, SingleContextTrainer
from common.launch.experiment import Experiment


def _single_context(
    settings: SingleContext, seeds: Sequence[int], device: torch.device, config: Mapping[str, Any]
) -> SingleContextTrainer:
    return SingleContextTrainer(settings, seeds, device)


def _multi_context(
    settings: MultiContext, seeds: Sequence[int], device: torch.device, config: Mapping[str, Any]
) -> MultiContextTrainer:
    return MultiContextTrainer(settings, seeds, device)


EXPERIMENTS = {
    "single_context": Experiment(SingleContext, _single_context),
    "multi_context": Experiment(MultiContext, _multi_context),
}
