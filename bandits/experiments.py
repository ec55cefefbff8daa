"""The track's experiments by name."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from bandits.mnist.data import DigitImages, load_digits
from bandits.mnist.training import Mnist, MnistTrainer
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


def _digits(config: Mapping[str, Any]) -> DigitImages:
    data = config["data"]
    return load_digits(data["source"], data["dir"], data["cache"], data["allow_other"])


def _images_used(config: Mapping[str, Any]) -> str:
    """Fetch the images before the sweep starts, and return their digest."""
    return _digits(config).digest


def _mnist(settings: Mnist, seeds: Sequence[int], device: torch.device, config: Mapping[str, Any]) -> MnistTrainer:
    return MnistTrainer(settings, seeds, device, _digits(config))


EXPERIMENTS = {
    "single_context": Experiment(SingleContext, _single_context),
    "multi_context": Experiment(MultiContext, _multi_context),
    "mnist": Experiment(Mnist, _mnist, fetch={"images": _images_used}),
}
