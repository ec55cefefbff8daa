"""The track's experiments by name: one, of which the configured experiments are settings, so that they share runs."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import torch

from common import objectives
from common.launch.experiment import Experiment
from common.launch.plan import device_of
from common.runs.settings import require, require_choice
from sequence_tasks.cost import cpu_milliseconds
from sequence_tasks.settings import LEVELS, SequenceTask
from sequence_tasks.training import SequenceTrainer

MATCHINGS = ("prompt", "interaction")


def _trainer(
    settings: SequenceTask, seeds: Sequence[int], device: torch.device, config: Mapping[str, Any]
) -> SequenceTrainer:
    return SequenceTrainer(settings, seeds, device)


def resolved(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that a configuration leaves to the objective.

    * ``epochs: null`` is 4, or 1 for objectives meant for one.
    * ``matching: interaction`` gives objectives without groups as many completions as the others have: K times the
      batch, and sqrt(K) times the learning rate (arXiv 2604.06159, section on terminal rewards).
    * ``compile: auto`` compiles on a GPU.
    * What an objective without groups does not read (``level``, ``candidates``), and ``allow_unstable`` where it
      allows nothing, stay at their defaults, so that equal runs are one run.

    Raises:
        ValueError: a value that is not allowed, naming its key.
    """
    require_choice("matching", config["matching"], MATCHINGS)
    require_choice("level", config["level"], LEVELS)
    if not isinstance(config["allow_unstable"], bool):
        raise ValueError(f"allow_unstable: {config['allow_unstable']!r} is not allowed; it must be true or false")
    objective = objectives.get(config["objective"], {k: v for k, v in config["options"].items() if v is not None})
    settings: dict[str, Any] = {"compile": _compiled(config)}
    epochs = config["epochs"]
    if epochs is None:
        settings["epochs"] = 1 if objective.single_epoch else _DEFAULTS["epochs"]
    settings["allow_unstable"] = config["allow_unstable"] and objective.single_epoch and epochs not in (None, 1)
    if not objective.grouped:
        candidates, rate = _count("candidates", config), config["learning_rate"]
        settings |= {"level": _DEFAULTS["level"], "candidates": _DEFAULTS["candidates"]}
        if config["matching"] == "interaction":
            settings["batch"] = _count("batch", config) * candidates
            if isinstance(rate, int | float) and rate is not True and rate > 0:  # else it is refused as it stands
                settings["learning_rate"] = rate * math.sqrt(candidates)
    return settings


def _count(key: str, config: Mapping[str, Any]) -> int:
    value = config[key]
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"{key}: {value!r} is not allowed; it must be a whole number")
    require(key, value, at_least=1)
    return value


def _compiled(config: Mapping[str, Any]) -> bool:
    choice = config["compile"]
    if choice == "auto":
        return device_of(config["device"]).type == "cuda"
    if not isinstance(choice, bool):
        raise ValueError(f"compile: {choice!r} is not allowed; choose auto, true or false")
    return choice


_DEFAULTS: dict[str, Any] = {field.name: field.default for field in fields(SequenceTask)}

EXPERIMENTS = {"sequences": Experiment(SequenceTask, _trainer, cpu_milliseconds, resolved)}
