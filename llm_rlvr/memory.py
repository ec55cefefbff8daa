"""Memory that a training foresees, so that a run that cannot fit is refused before it starts."""

import json
from pathlib import Path

import psutil
import torch

from common.errors import UserError
from llm_rlvr import processes
from llm_rlvr.arguments import VLLM_SHARE, Placement
from llm_rlvr.models import parameter_count
from llm_rlvr.settings import LanguageTask

_TILE_TOKENS, _TILE_WORDS = 4096, 32768
"""Of the logits that TRL holds at once, at most: it goes through the output layer in tiles."""
_LOGIT_COPIES = 3
"""Logits of a tile, their log-softmax and its gradient, in float32."""
_KEPT_A_LAYER, _WORKING = 12, 16
"""Activations in widths of a token, in float32: kept by each layer, and of the layer that is recomputed."""
_CHARACTERS_A_TOKEN = 3


def foreseen_bytes(settings: LanguageTask, directory: Path, prompt_characters: int, placement: Placement) -> int:
    """Return roughly what training needs: weights, gradients, AdamW's two moments, logits and activations, in bytes.

    Weights that are cut over the processes count by the share of one.

    Args:
        settings: the run's.
        directory: of the model.
        prompt_characters: of the longest prompt.
        placement: on a GPU, each layer keeps its input alone and is recomputed.
    """
    config = json.loads((directory / "config.json").read_text())
    parameters = parameter_count(directory)
    adapted = settings.lora_rank > 0
    width, layers = int(config["hidden_size"]), int(config["num_hidden_layers"])
    trained = 14 * layers * width * settings.lora_rank if adapted else parameters
    weights = parameters * 4 + trained * 12
    if settings.kl and not adapted:
        weights += parameters * 4  # the reference model
    if processes.cut_weights():
        weights //= settings.processes
    recomputed = placement.device.type == "cuda"
    tokens = placement.micro_batch * settings.candidates * settings.max_tokens
    length = tokens + placement.micro_batch * settings.candidates * prompt_characters // _CHARACTERS_A_TOKEN
    logits = min(tokens, _TILE_TOKENS) * min(int(config["vocab_size"]), _TILE_WORDS) * 4 * _LOGIT_COPIES
    return weights + logits + length * width * 4 * (layers + _WORKING if recomputed else layers * _KEPT_A_LAYER)


def require_memory(needed: int, device: torch.device, engine: str) -> None:
    """Raise UserError where a device has less memory free than needed, besides what vLLM takes on it."""
    on_gpu = device.type == "cuda"
    free = torch.cuda.mem_get_info(device)[0] if on_gpu else psutil.virtual_memory().available
    if engine == "vllm":
        free -= int(VLLM_SHARE * torch.cuda.mem_get_info(device)[1])
    if needed > free:
        raise UserError(
            f"memory: about {needed / 2**30:.1f} GiB are needed and {free / 2**30:.1f} GiB are free on {device};"
            " lower micro_batch, max_tokens or candidates, or choose a smaller model"
        )
