"""What a track offers to the command line."""

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from common.runs.trainer import SelfPacedTrainer, Trainer


@dataclass(frozen=True)
class Experiment:
    """An experiment by name: its settings, and how to train a block of seeds under them."""

    settings: type
    """Frozen dataclass; its fields are taken from the configuration by name."""
    trainer: Callable[..., Trainer | SelfPacedTrainer]
    """``trainer(settings, seeds, device, config)``: the settings, the block's seeds (a sequence of int), a
    ``torch.device``, and the whole configuration (a mapping) for what is no setting, e.g. where data lie."""
    cpu_milliseconds: Callable[[Any], float] | None = None
    """What a step and seed costs under some settings; for experiments whose configuration does not say."""
    prepare: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None
    """``prepare(config)`` returns settings that follow from the configuration, e.g. from the objective; it may raise
    ValueError."""
    fetch: Mapping[str, Callable[[Mapping[str, Any]], Any]] = field(default_factory=dict)
    """Settings that follow from data or a model, e.g. their digest: each by a function of the configuration, which gets
    these first where they are not there yet."""


def experiments_of(track: str) -> dict[str, Experiment]:
    """Return the experiments of a track, from its module ``TRACK.experiments``."""
    return dict(importlib.import_module(f"{track}.experiments").EXPERIMENTS)
