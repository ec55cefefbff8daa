"""What makes a run of the language-model track the run it is."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from common import objectives
from common.runs.settings import require, require_choice
from llm_rlvr.tasks import TASKS

PRECISIONS = ("float32", "bfloat16")
ENGINES = ("transformers", "vllm", "vllm_server")


@dataclass(frozen=True)
class LanguageTask:
    """An experiment's settings; the defaults are the paper's for GSM8K (arXiv 2604.06159, section on LLM RLVR)."""

    objective: str = "tpo"
    options: Mapping[str, float | bool] = field(default_factory=dict)
    model: str = "qwen3_1_7b"
    weights: str = ""
    """Digest of the model's weights, so that another model under the same name is another run."""
    task: str = "gsm8k"
    task_options: Mapping[str, Any] = field(default_factory=dict)
    binary: bool = False
    candidate_logprob: str = "mean"
    batch: int = 16
    """Prompts an update."""
    candidates: int = 16
    """Completions a prompt, K."""
    steps: int = 75
    """Updates."""
    learning_rate: float = 1e-5
    lora_rank: int = 32
    """0 trains all weights."""
    kl: float = 1e-3
    """Coefficient of the KL to the initial model."""
    max_tokens: int = 1024
    """Of a completion."""
    eval_every: int = 5
    eval_problems: int = 200
    """Held-out ones, each answered once by sampling."""
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    allow_biased_sampling: bool = False
    precision: str = "float32"
    engine: str = "transformers"
    """Which samples: transformers, vLLM in the same process, or TRL's vLLM server."""
    processes: int = 1
    """That train together; each samples with draws of its own."""
    experiment_seed: int = 0

    def __post_init__(self) -> None:
        require_choice("task", self.task, TASKS)
        require_choice("candidate_logprob", self.candidate_logprob, ("mean", "sum"))
        require_choice("precision", self.precision, PRECISIONS)
        require_choice("engine", self.engine, ENGINES)
        for key in ("batch", "steps", "max_tokens", "eval_every", "eval_problems", "processes"):
            require(key, getattr(self, key), at_least=1)
        require("candidates", self.candidates, at_least=2)
        require("lora_rank", self.lora_rank, at_least=0)
        require("learning_rate", self.learning_rate, above=0)
        require("kl", self.kl, at_least=0)
        require("temperature", self.temperature, above=0)
        require("top_k", self.top_k, at_least=0)
        require("top_p", self.top_p, above=0)
        require("experiment_seed", self.experiment_seed, at_least=0)
        biased = (self.temperature, self.top_p, self.top_k) != (1.0, 1.0, 0)
        objective = objectives.get(self.objective, self.options)
        if objective.needs_labels:
            raise ValueError(f"objective: {self.objective} needs labels, which completions do not have")
        if biased and objective.loss.follows == "target" and not self.allow_biased_sampling:
            raise ValueError(
                f"temperature, top_p, top_k: {self.temperature}, {self.top_p}, {self.top_k} sample from another"
                " distribution than the one that is trained; use 1, 1, 0, or allow_biased_sampling=true"
            )
