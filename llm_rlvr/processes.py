"""Several processes of one training, as ``accelerate launch`` and ``torchrun`` start them.

The first runs the command line and owns the run store. Before each training it says what is trained; the others wait
for that and train along.

    first:   main() -> LanguageTrainer.train -> of_the_first(order) -> train     ...  of_the_first(None)
    others:  of_the_first(None) -> order -> train, and again, until there is none
"""

import os
from datetime import timedelta
from typing import TypeVar

T = TypeVar("T")

_PATIENCE = timedelta(hours=3)
"""How long the others wait for the first, which may have to fetch a model."""


def count() -> int:
    """Return the number of processes of the training, those on other machines included."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def is_first() -> bool:
    """Whether this is the process that runs the command line."""
    return int(os.environ.get("RANK", "0")) == 0


def cut_weights() -> bool:
    """Whether the launcher asked for weights that are cut over the processes (FSDP, DeepSpeed)."""
    return any(os.environ.get(f"ACCELERATE_USE_{kind}", "false") == "true" for kind in ("FSDP", "DEEPSPEED"))


def join() -> None:
    """Make this process one of those that talk to each other."""
    import torch
    from accelerate import PartialState  # takes seconds

    PartialState(timeout=_PATIENCE, cpu=not torch.cuda.is_available() or os.environ.get("ACCELERATE_USE_CPU") == "True")


def of_the_first(value: T) -> T:
    """Return the first process's value in all of them; every process must call it."""
    if count() == 1:
        return value
    from accelerate.utils import broadcast_object_list

    values = [value]
    broadcast_object_list(values, from_process=0)
    return values[0]


def wait_for_all() -> None:
    """Return once every process has called it."""
    if count() > 1:
        from accelerate import PartialState

        PartialState().wait_for_everyone()
