"""From an experiment's settings to the arguments of TRL's trainer."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from trl import GRPOConfig

from llm_rlvr.settings import LanguageTask

VLLM_SHARE = 0.3
"""Of a GPU's memory, for vLLM in the same process."""


@dataclass(frozen=True)
class Placement:
    """Where and how a training runs; changes no number but by rounding, and evaluation by its draws."""

    device: torch.device
    micro_batch: int
    """Prompts whose completions go through the model together, in each process."""
    server_url: str | None = None
    """Of TRL's vLLM server, for ``engine=vllm_server``."""
    save_model: bool = False
    """Keep the trained model in the run's folder."""


def training_arguments(
    settings: LanguageTask, placement: Placement, folder: Path, seed: int, *, evaluate_first: bool
) -> GRPOConfig:
    """Return TRL's arguments.

    An update is one generation: ``batch`` prompts, cut into micro-batches over the processes and over gradient
    accumulation, so that checkpoints, which are written between updates, never fall between a generation and its use.

    Args:
        settings: the experiment's.
        placement: device and sizes.
        folder: for checkpoints.
        seed: of sampling.
        evaluate_first: before the first update; not where a checkpoint is taken up.
    """
    rows = placement.micro_batch * settings.candidates
    on_gpu = placement.device.type == "cuda"
    return GRPOConfig(
        output_dir=str(folder),
        seed=seed,
        use_cpu=not on_gpu,
        bf16=settings.precision == "bfloat16",
        per_device_train_batch_size=rows,
        gradient_accumulation_steps=settings.batch // (placement.micro_batch * settings.processes),
        num_generations=settings.candidates,
        num_generations_eval=1,
        per_device_eval_batch_size=_equal_batches(settings.eval_problems // settings.processes, rows),
        max_completion_length=settings.max_tokens,
        max_steps=settings.steps,
        learning_rate=settings.learning_rate,
        lr_scheduler_type="constant",
        max_grad_norm=1.0,
        beta=settings.kl,
        temperature=settings.temperature,
        top_p=settings.top_p,
        top_k=settings.top_k,
        shuffle_dataset=False,
        gradient_checkpointing=on_gpu,
        logging_steps=1,
        logging_first_step=True,
        logging_nan_inf_filter=False,
        eval_strategy="steps",
        eval_steps=settings.eval_every,
        eval_on_start=evaluate_first,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        log_level="error",
        dataloader_pin_memory=on_gpu,
        ddp_find_unused_parameters=False,
        remove_unused_columns=False,
        **_engine(settings.engine, placement.server_url),
    )


def _equal_batches(problems: int, most: int) -> int:
    """Return the largest batch that divides the problems: TRL averages batches, not problems."""
    return max(size for size in range(1, min(most, problems) + 1) if problems % size == 0)


def _engine(engine: str, server_url: str | None) -> dict[str, Any]:
    if engine == "vllm":
        return {"use_vllm": True, "vllm_mode": "colocate", "vllm_gpu_memory_utilization": VLLM_SHARE}
    if engine == "vllm_server":
        return {"use_vllm": True, "vllm_mode": "server", "vllm_server_base_url": server_url}
    return {}
