"""The track's experiments by name: one, of which the configured experiments are settings, so that they share runs."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from common.errors import UserError
from common.launch.experiment import Experiment
from common.launch.plan import device_of
from llm_rlvr import processes
from llm_rlvr.cost import cpu_milliseconds
from llm_rlvr.models import local_model, weights_digest
from llm_rlvr.settings import LanguageTask
from llm_rlvr.tasks import TASKS


def _trainer(settings: LanguageTask, seeds: Sequence[int], device: torch.device, config: Mapping[str, Any]) -> Any:
    from llm_rlvr.arguments import Placement  # these take seconds
    from llm_rlvr.training import LanguageTrainer

    placement = Placement(device, config["micro_batch"], config["server_url"], config["save_model"])
    return LanguageTrainer(settings, seeds, local_model(config["model"], config["models"]), placement)


def prepared(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that follow from the configuration: options that are set, processes.

    Raises:
        UserError: an unknown task, sizes that do not fit, or an engine without what it needs.
    """
    if config["task"] not in TASKS:
        raise UserError(f"task: {config['task']!r} is unknown; choose from {', '.join(TASKS)}")
    if config["stack"] != 1:
        raise UserError(f"stack: {config['stack']} is not allowed; a language model trains one seed at a time")
    if not config["dry_run"] and device_of(config["device"]).type == "cuda":
        _require_one_gpu()
    _require_engine(config)
    together = _processes(config)
    _require_fitting(config, together)
    options = {key: value for key, value in (config["task_options"] or {}).items() if value is not None}
    return {"task_options": options, "processes": together}


def _weights_used(config: Mapping[str, Any]) -> str:
    """Fetch the model where it is not there yet, and return the digest of its weights."""
    return _digest(local_model(config["model"], config["models"]))


def _require_engine(config: Mapping[str, Any]) -> None:
    if config["engine"] == "vllm" and not config["dry_run"] and device_of(config["device"]).type != "cuda":
        raise UserError("engine: vllm needs a GPU in training; engine=transformers, or device=cuda where there is one")
    if config["engine"] != "transformers" and not config["dry_run"] and find_spec("vllm") is None:
        raise UserError(f"engine: {config['engine']} needs vLLM, which is not installed; docs/rlvr.md says how")
    if config["engine"] == "vllm_server" and not config["server_url"]:
        raise UserError("server_url: is needed with engine=vllm_server, e.g. server_url=http://localhost:8000")


def _processes(config: Mapping[str, Any]) -> int:
    """Return how many processes train together: as many as were launched; a plan may ask for another number."""
    launched, wanted = processes.count(), config["processes"]
    if wanted is None:
        return launched
    _require_whole("processes", wanted)
    if wanted != launched and not config["dry_run"]:
        raise UserError(
            f"processes: {wanted}, but {launched} were launched; use accelerate launch --num_processes {wanted}"
        )
    return int(wanted)


def _require_one_gpu() -> None:
    """Refuse one process that sees several GPUs: transformers would cut its batches over all of them."""
    if processes.count() == 1 and torch.cuda.device_count() > 1:
        raise UserError(
            f"device: one process sees {torch.cuda.device_count()} GPUs; use several (make rlvr PROCESSES=n) or show it"
            " one (CUDA_VISIBLE_DEVICES=0)"
        )


def _require_fitting(config: Mapping[str, Any], together: int) -> None:
    """Refuse sizes that do not divide what is shared out, and a sweep's workers beside a training's processes."""
    micro, batch = config["micro_batch"], config["batch"]
    _require_whole("micro_batch", micro)
    if isinstance(batch, int) and batch % (micro * together):
        fitting = [size for size in range(1, micro + 1) if batch % (size * together) == 0]
        if not fitting:
            raise UserError(f"processes: {together} does not divide batch={batch}; a prompt's candidates stay together")
        each = f" over {together} processes" if together > 1 else ""
        raise UserError(f"micro_batch: {micro} does not divide batch={batch}{each}; {fitting[-1]} fits")
    problems = config["eval_problems"]
    if isinstance(problems, int) and problems % together:
        raise UserError(f"eval_problems: {problems} is not allowed; {together} processes must divide it")
    if together > 1 and config["workers"] != 1 and not config["dry_run"]:
        raise UserError(f"workers: {config['workers']} is not allowed with {together} processes a training; use 1")


def _require_whole(key: str, value: Any) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise UserError(f"{key}: {value!r} is not allowed; it must be a whole number, at least 1")


@lru_cache
def _digest(directory: Path) -> str:
    return weights_digest(directory)


EXPERIMENTS = {"language": Experiment(LanguageTask, _trainer, cpu_milliseconds, prepared, {"weights": _weights_used})}
