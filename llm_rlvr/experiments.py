"""The track's experiments by name: one, of which the configured experiments are settings, so that they share runs."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from common.errors import UserError
from common.launch.experiment import Experiment
from common.launch.plan import device_of
from llm_rlvr.cost import cpu_milliseconds
from llm_rlvr.models import local_model, weights_digest
from llm_rlvr.settings import LanguageTask
from llm_rlvr.tasks import TASKS


def _trainer(settings: LanguageTask, seeds: Sequence[int], device: torch.device, config: Mapping[str, Any]) -> Any:
    from llm_rlvr.training import LanguageTrainer  # takes seconds

    return LanguageTrainer(settings, seeds, device, local_model(config["model"], config["models"]), _micro(config))


def prepared(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that follow from the configuration: the digest of the model's weights, options that are set.

    The model is fetched first, where it is not there yet.

    Raises:
        UserError: an unknown task or model, a model that cannot be had, sizes that do not fit, or vLLM without a GPU.
    """
    if config["task"] not in TASKS:
        raise UserError(f"task: {config['task']!r} is unknown; choose from {', '.join(TASKS)}")
    if config["stack"] != 1:
        raise UserError(f"stack: {config['stack']} is not allowed; a language model trains one seed at a time")
    if config["engine"] == "vllm" and not config["dry_run"] and device_of(config["device"]).type != "cuda":
        raise UserError("engine: vllm needs a GPU in training; engine=transformers, or device=cuda where there is one")
    batch = config["batch"]
    micro = _micro(config)
    if isinstance(batch, int) and batch % micro:
        fitting = max(size for size in range(1, micro + 1) if batch % size == 0)
        raise UserError(f"micro_batch: {micro} does not divide batch={batch}; {fitting} fits")
    options = {key: value for key, value in (config["task_options"] or {}).items() if value is not None}
    directory = local_model(config["model"], config["models"])
    return {"weights": _digest(directory), "task_options": options}


def _micro(config: Mapping[str, Any]) -> int:
    micro = config["micro_batch"]
    if not isinstance(micro, int) or isinstance(micro, bool) or micro < 1:
        raise UserError(f"micro_batch: {micro!r} is not allowed; it must be a whole number, at least 1")
    return micro


@lru_cache
def _digest(directory: Path) -> str:
    return weights_digest(directory)


EXPERIMENTS = {"language": Experiment(LanguageTask, _trainer, cpu_milliseconds, prepared)}
