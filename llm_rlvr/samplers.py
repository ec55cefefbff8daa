"""Sampling completions from an engine, asking it for log-probabilities, and keeping its weights those of the trainer.

Two engines with one face: ``transformers``, in the trainer's own model, and vLLM, which has a copy of the weights.

    sampler.update_weights(merged_weights(model))     after an optimiser step
    disagreement(sampler, model, prompt, completion)  did they arrive?
"""

import contextlib
import copy
import importlib
import logging
import os
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from peft import PeftModel
from peft.tuners.lora import LoraLayer
from peft.tuners.tuners_utils import BaseTunerLayer
from peft.utils import AuxiliaryTrainingWrapper, ModulesToSaveWrapper
from torch import Tensor, nn
from transformers import GenerationConfig, PreTrainedTokenizerBase

from common.errors import UserError

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Completion:
    """What an engine wrote after a prompt."""

    tokens: tuple[int, ...]
    """With the token that ended it, if one did."""
    text: str
    """Without special tokens."""
    finished: bool
    """It ended by itself, not by the limit of tokens."""


class Sampler(Protocol):
    """An engine that continues prompts and knows the log-probabilities of what it would have written."""

    def sample(
        self, prompts: Sequence[Sequence[int]], *, samples: int, max_tokens: int, temperature: float, seed: int
    ) -> list[list[Completion]]:
        """Return ``samples`` completions of each prompt, from the whole distribution; greedy ones at temperature 0."""

    def logp(self, prompt: Sequence[int], completion: Sequence[int]) -> list[float]:
        """Return log π of each completion token at temperature 1."""


class TransformersSampler:
    """``model.generate`` on batches of left-padded prompts, without the model's own generation settings.

    Samples depend on the seed and on the batches; the caller's random state and the model's modes are left alone.

    Args:
        model: a causal language model, plain or with PEFT adapters.
        tokenizer: its tokenizer.
        batch_size: completions generated together.
    """

    def __init__(self, model: nn.Module, tokenizer: PreTrainedTokenizerBase, batch_size: int = 32) -> None:
        self._model = model
        self._tokenizer = tokenizer
        self._batch_size = batch_size

    def sample(
        self, prompts: Sequence[Sequence[int]], *, samples: int, max_tokens: int, temperature: float, seed: int
    ) -> list[list[Completion]]:
        """Return ``samples`` completions of each prompt; see ``Sampler``."""
        drawn = samples if temperature > 0 else 1
        rows = [prompt for prompt in prompts for _ in range(drawn)]
        base: Any = self._model.get_base_model() if isinstance(self._model, PeftModel) else self._model
        ends = _end_tokens(base.generation_config, self._tokenizer)
        settings = GenerationConfig(
            max_new_tokens=max_tokens,
            do_sample=temperature > 0,
            **({"temperature": temperature, "top_k": 0, "top_p": 1.0} if temperature > 0 else {}),
            eos_token_id=ends or None,
            pad_token_id=self._padding,
        )
        completions: list[Completion] = []
        with _kept_random_state(), _evaluating(base), _generation_config(base, settings):
            torch.manual_seed(seed)
            for first in range(0, len(rows), self._batch_size):
                for tokens in self._generated(base, rows[first : first + self._batch_size]):
                    completions.append(self._completion(tokens, ends))
        groups = [completions[first : first + drawn] for first in range(0, len(completions), drawn)]
        return groups if drawn == samples else [group * samples for group in groups]

    def logp(self, prompt: Sequence[int], completion: Sequence[int]) -> list[float]:
        """Return log π of each completion token at temperature 1."""
        values: list[float] = token_logp(self._model, prompt, completion).tolist()
        return values

    @property
    def _padding(self) -> int:
        padding = self._tokenizer.pad_token_id
        return int(padding if isinstance(padding, int) else 0)

    @torch.no_grad()
    def _generated(self, base: Any, prompts: Sequence[Sequence[int]]) -> list[list[int]]:
        width = max(len(prompt) for prompt in prompts)
        ids = [[self._padding] * (width - len(prompt)) + list(prompt) for prompt in prompts]
        mask = [[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts]
        device = next(base.parameters()).device
        written: Tensor = base.generate(
            input_ids=torch.tensor(ids, device=device), attention_mask=torch.tensor(mask, device=device), use_cache=True
        )
        tokens: list[list[int]] = written[:, width:].tolist()
        return tokens

    def _completion(self, tokens: list[int], ends: Sequence[int]) -> Completion:
        length = next((place + 1 for place, token in enumerate(tokens) if token in ends), None)
        kept = tokens[:length]
        text = str(self._tokenizer.decode(kept, skip_special_tokens=True))
        return Completion(tuple(kept), text, finished=length is not None)


class VllmSampler:
    """A vLLM engine in this process, on the GPU or the CPU, that takes the trainer's weights while it runs.

    Samples depend on the seed and on a prompt's place. vLLM on a CPU makes ``torch.set_num_threads`` a no-op in the
    whole process: set OMP_NUM_THREADS before it starts.

    Args:
        model: a directory with model and tokenizer, or a name on the hub.
        dtype: of the weights, e.g. "float32"; "auto" takes the model's.
        max_length: of prompt and completion; the model's where None. ``logp`` needs room for one token more.
        memory_share: of the device's memory, for weights and cache.
        cache_bytes: for the cache of keys and values; what ``memory_share`` leaves where None.
        max_sequences: generated at once.
        compiled: let vLLM compile the model, and capture CUDA graphs: a slow start, fast sampling.

    Raises:
        UserError: vLLM cannot be imported.
    """

    def __init__(
        self,
        model: str | Path,
        *,
        dtype: str = "auto",
        max_length: int | None = None,
        memory_share: float = 0.3,
        cache_bytes: int | None = None,
        max_sequences: int = 64,
        compiled: bool = False,
    ) -> None:
        self._vllm = _vllm()
        with _kept_random_state(), _environment("VLLM_ENABLE_V1_MULTIPROCESSING", "0"):
            self._engine: Any = self._vllm.LLM(
                model=str(model),
                dtype=dtype,
                max_model_len=max_length,
                gpu_memory_utilization=memory_share,
                kv_cache_memory_bytes=cache_bytes,
                max_num_seqs=max_sequences,
                enforce_eager=not compiled,
                seed=0,
            )
        self._tokenizer: Any = self._engine.get_tokenizer()

    def sample(
        self, prompts: Sequence[Sequence[int]], *, samples: int, max_tokens: int, temperature: float, seed: int
    ) -> list[list[Completion]]:
        """Return ``samples`` completions of each prompt; see ``Sampler``."""
        drawn = samples if temperature > 0 else 1
        settings = [
            self._vllm.SamplingParams(
                n=drawn,
                max_tokens=max_tokens,
                temperature=temperature,
                top_k=0,
                top_p=1.0,
                seed=_prompt_seed(seed, place),
                detokenize=False,
            )
            for place in range(len(prompts))
        ]
        requests = self._generate(prompts, settings)
        groups = [[self._completion(written) for written in request.outputs] for request in requests]
        return groups if drawn == samples else [group * samples for group in groups]

    def logp(self, prompt: Sequence[int], completion: Sequence[int]) -> list[float]:
        """Return log π of each completion token at temperature 1."""
        settings = self._vllm.SamplingParams(max_tokens=1, temperature=0.0, prompt_logprobs=0, detokenize=False)
        (request,) = self._generate([[*prompt, *completion]], settings)
        places = request.prompt_logprobs[len(prompt) :]
        return [float(place[token].logprob) for place, token in zip(places, completion, strict=True)]

    @torch.no_grad()
    def update_weights(self, named: Iterable[tuple[str, Tensor]]) -> None:
        """Load weights, named as in the checkpoint, into the running engine, and forget what it cached with the old.

        A tied output layer needs no weight of its own.
        """
        weights = ((name, tensor.detach()) for name, tensor in named)
        self._engine.collective_rpc("reload_weights", kwargs={"weights_iterator": weights})
        self._engine.apply_model(_repack_output_layer)
        self._engine.reset_prefix_cache()

    def close(self) -> None:
        """Give the engine's memory back."""
        self._engine.llm_engine.engine_core.shutdown()
        del self._engine

    def _generate(self, prompts: Sequence[Sequence[int]], settings: Any) -> list[Any]:
        requests = [{"prompt_token_ids": list(prompt)} for prompt in prompts]
        with _kept_random_state():
            answers: list[Any] = self._engine.generate(requests, settings, use_tqdm=False)
        return answers

    def _completion(self, written: Any) -> Completion:
        text = str(self._tokenizer.decode(written.token_ids, skip_special_tokens=True))
        return Completion(tuple(written.token_ids), text, finished=written.finish_reason == "stop")


def token_logp(model: nn.Module, prompt: Sequence[int], completion: Sequence[int]) -> Tensor:
    """Return log π of each completion token, float32 [T], by one forward pass without dropout or gradient."""
    device = next(model.parameters()).device
    ids = torch.tensor([[*prompt, *completion]], device=device)
    with torch.no_grad(), _evaluating(model):
        logits: Tensor = model(input_ids=ids, use_cache=False).logits[0, len(prompt) - 1 : -1]
    return logits.float().log_softmax(-1).gather(1, ids[0, len(prompt) :, None])[:, 0].cpu()


def disagreement(
    sampler: Sampler, model: nn.Module, prompt: Sequence[int], completion: Sequence[int], *, tolerance: float = 1e-3
) -> float:
    """Return the largest difference between the sampler's and the model's log-probabilities of a fixed completion.

    A cheap check that the sampler has the model's weights. Beyond the tolerance, or where it is not a number, it warns.

    Args:
        sampler: the engine in question.
        model: the trainer's, plain or with PEFT adapters.
        prompt: tokens of a prompt.
        completion: tokens after it; the more, the sharper the check.
        tolerance: what the precision of both sides may account for; the default is for float32.
    """
    difference = float(
        (torch.tensor(sampler.logp(prompt, completion)) - token_logp(model, prompt, completion)).abs().max()
    )
    if not difference <= tolerance:
        logger.warning(
            "sampler and trainer disagree by %.3g in a token's log-probability (tolerance %.3g):"
            " the sampler's weights are not the trainer's, or its precision is lower",
            difference,
            tolerance,
        )
    return difference


def merged_weights(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield a model's weights under the names of its checkpoint, LoRA adapters merged, and leave the model as it is.

    Tensors that nothing was merged into are the model's own, not copies. Merged ones are made one layer at a time.

    Raises:
        ValueError: adapters of another kind than LoRA and fully trained modules.
    """
    base: nn.Module = model.get_base_model() if isinstance(model, PeftModel) else model
    adapted: dict[str, Any] = {
        name: module
        for name, module in base.named_modules()
        if isinstance(module, BaseTunerLayer | AuxiliaryTrainingWrapper)
    }
    inside = tuple(f"{name}." for name in adapted)
    for name, tensor in base.state_dict().items():
        if not name.startswith(inside):
            yield name, tensor
    for name, module in adapted.items():
        yield from _merged(name, module).state_dict(prefix=f"{name}.").items()


def _merged(name: str, module: nn.Module) -> nn.Module:
    """Return what stands in place of an adapted module once its active adapters are merged."""
    if isinstance(module, ModulesToSaveWrapper):
        trained: nn.Module = module.modules_to_save[module.active_adapters[0]]
        return trained
    if not isinstance(module, LoraLayer) or isinstance(module.base_layer, BaseTunerLayer):
        raise ValueError(f"{name}: merging {type(module).__name__} is not supported; LoRA of whole layers is")
    merged: Any = copy.deepcopy(module)
    merged.merge()
    layer: nn.Module = merged.get_base_layer()
    return layer


def _repack_output_layer(model: nn.Module) -> None:
    """Pack the output layer anew: on a CPU it computes with a packed copy, which tied weights do not reach."""
    layers = importlib.import_module("vllm.model_executor.layers.vocab_parallel_embedding")
    utils = importlib.import_module("vllm.model_executor.layers.utils")
    for module in model.modules():
        if isinstance(module, layers.ParallelLMHead) and hasattr(module, "cpu_linear"):
            utils.dispatch_cpu_unquantized_gemm(module, remove_weight=False)


def _vllm() -> Any:
    try:
        return importlib.import_module("vllm")
    except ImportError as error:
        raise UserError(
            f"vllm: cannot be imported ({' '.join(str(error).split())}); for GPUs there is `pip install -e '.[vllm]'`,"
            " for CPUs `make .venv-vllm/.installed` sets up .venv-vllm"
        ) from error


def _end_tokens(settings: GenerationConfig, tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """Return the tokens that end a completion: the generation config's and the tokenizer's, as in vLLM."""
    declared = settings.eos_token_id
    ends = declared if isinstance(declared, list) else [declared]
    return sorted({int(end) for end in [*ends, tokenizer.eos_token_id] if isinstance(end, int)})


def _prompt_seed(seed: int, place: int) -> int:
    """Return a seed for one prompt: vLLM numbers a request's samples from it, so neighbours would share draws."""
    return int(np.random.SeedSequence([seed, place]).generate_state(1, np.uint64)[0] >> 2)


@contextlib.contextmanager
def _kept_random_state() -> Iterator[None]:
    python, numpy = random.getstate(), np.random.get_state()
    with torch.random.fork_rng([torch.cuda.current_device()] if torch.cuda.is_available() else []):
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)


@contextlib.contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True


@contextlib.contextmanager
def _generation_config(model: Any, settings: GenerationConfig) -> Iterator[None]:
    """Replace the model's generation config, whose other settings ``generate`` would fall back on."""
    kept = model.generation_config
    model.generation_config = settings
    try:
        yield
    finally:
        model.generation_config = kept


@contextlib.contextmanager
def _environment(key: str, value: str) -> Iterator[None]:
    kept = os.environ.get(key)
    os.environ[key] = value
    try:
        yield
    finally:
        if kept is None:
            del os.environ[key]
        else:
            os.environ[key] = kept
