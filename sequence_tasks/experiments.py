"""The track's experiments by name: one, of which the configured experiments are settings, so that they share runs."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from common.launch.experiment import Experiment
from sequence_tasks.settings import SequenceTask
from sequence_tasks.training import SequenceTrainer


def _trainer(
    settings: SequenceTask, seeds: Sequence[int], device: torch.device, config: Mapping[str, Any]
) -> SequenceTrainer:
    return SequenceTrainer(settings, seeds, device)


EXPERIMENTS = {"sequences": Experiment(SequenceTask, _trainer)}
