"""One job of a sweep, in a worker process of whatever launcher Hydra was told to use."""

import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import torch
from omegaconf import DictConfig, OmegaConf

from common.errors import UserError
from common.launch.experiment import experiments_of
from common.launch.plan import device_of, planned_run
from common.runs.execute import Work, execute
from common.runs.identity import RunSpec
from common.runs.store import BusyError, RunStore
from common.runs.trainer import SelfPacedTrainer, Trainer
from common.tracking import Tracker, tracking_mode


def run_job(config: DictConfig) -> None:
    """Bring one run to the wanted seeds.

    A failure is recorded in the run's directory and does not end the sweep: the other runs go on, and the command line
    lists what is missing at the end.
    """
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    torch.set_num_threads(1)
    own = OmegaConf.to_container(config, resolve=True)
    assert isinstance(own, dict)
    planned = planned_run(own["track"], {str(key): value for key, value in own.items()})
    device = device_of(own["device"])
    experiment = experiments_of(own["track"])[own["experiment"]]

    def make_trainer(seeds: Sequence[int]) -> Trainer | SelfPacedTrainer:
        return experiment.trainer(planned.spec.settings, seeds, device, planned.config)

    work = Work(
        spec=planned.spec,
        seeds=planned.seeds,
        make_trainer=make_trainer,
        device=device,
        preset=own["preset"],
        stack=own["stack"],
        checkpoint_seconds=own["checkpoint_seconds"],
        open_log=None if tracking_mode() == "off" else _open_tracker,
    )
    try:
        execute(work, RunStore(own["store"]))
    except BusyError as error:
        if not _of_this_sweep(error.process):
            print(f"{planned.spec.title}: {error}", file=sys.stderr)
    except UserError as error:
        print(f"{planned.spec.title}: {error}", file=sys.stderr)
    except Exception as error:
        print(f"{planned.spec.title}: {type(error).__name__}: {error}", file=sys.stderr)


def _of_this_sweep(process: int | None) -> bool:
    """Whether it is a worker beside this one: a sweep may come to the same run twice."""
    try:
        return process is not None and os.getpgid(process) == os.getpgrp()
    except OSError:
        return False


def _open_tracker(spec: RunSpec, seeds: Sequence[int], directory: Path) -> Tracker:
    name = f"{spec.title} seeds {seeds[0]}-{seeds[-1]}"
    return Tracker(
        project=os.environ.get("WANDB_PROJECT", "target-policy-optimization"),
        group=f"{spec.track}/{spec.experiment}",
        name=name,
        run_id=f"{spec.key}-{seeds[0]}-{seeds[-1]}",
        config=spec.all_settings() | {"seeds": list(seeds)},
        directory=directory,
    )
