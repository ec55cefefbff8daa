"""Which engine trains where: the trie on a CPU, static shapes on a GPU, compiled if asked for."""

from types import SimpleNamespace
from typing import cast

import torch

from sequence_tasks import shared, stacked
from sequence_tasks.episode import Engine
from sequence_tasks.settings import SequenceTask


def engine_for(settings: SequenceTask, device: torch.device) -> Engine:
    """Return the engine for a device: ``shared`` on a CPU, ``stacked`` elsewhere or where it is to be compiled."""
    if settings.compile:
        return compiled()
    return shared if device.type == "cpu" else stacked


def compiled() -> Engine:
    """Return the stacked engine under ``torch.compile``, for static shapes."""
    functions = (stacked.sample, stacked.token_log_probabilities, stacked.state_log_probabilities)
    under_compile = {function.__name__: torch.compile(function, dynamic=False) for function in functions}
    fixed = {"SKIPS": stacked.SKIPS, "STACKS": stacked.STACKS, "lay_out": stacked.lay_out}
    return cast(Engine, SimpleNamespace(**fixed, **under_compile))
