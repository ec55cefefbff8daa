"""The check in the run that the sampler has the trainer's weights, with a sampler of its own in place of vLLM's."""

import copy
import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, PeftModel
from trl import GRPOConfig

from llm_rlvr import TargetPolicyTrainer
from llm_rlvr.samplers import TransformersSampler, merged_weights
from tests.llm_rlvr import tiny_models

LENGTH = 6


class CopyOfTheModel:
    """Samples from a copy of the weights that it gets with each synchronisation, as TRL's ``VLLMGeneration`` does."""

    arrives = True

    def __init__(self, model: Any, **_: Any) -> None:
        self._trained = model
        self._own = tiny_models.model()
        self._sampler = TransformersSampler(self._own, tiny_models.tokenizer())
        self.syncs = 0

    def sync_weights(self) -> None:
        self.syncs += 1
        if self.arrives or self.syncs == 1:
            self._own.load_state_dict(dict(merged_weights(copy.deepcopy(self._trained))))

    def generate(self, prompts: list[list[int]], num_generations: int, **_: Any) -> tuple:
        groups = self._sampler.sample(
            prompts[::num_generations], samples=num_generations, max_tokens=LENGTH, temperature=1.0, seed=self.syncs
        )
        tokens = [list(completion.tokens) for group in groups for completion in group]
        logps = [
            [[value] for value in self._sampler.logp(prompt, own)] for prompt, own in zip(prompts, tokens, strict=True)
        ]
        return None, tokens, logps, None


def train(folder: Path, monkeypatch: pytest.MonkeyPatch, *, arrives: bool, lora: bool) -> TargetPolicyTrainer:
    monkeypatch.setattr("trl.trainer.grpo_trainer.VLLMGeneration", CopyOfTheModel)
    monkeypatch.setattr(CopyOfTheModel, "arrives", arrives)
    trainer = TargetPolicyTrainer(
        model=tiny_models.model(),
        reward_funcs=tiny_models.share_of_digits,
        train_dataset=tiny_models.prompts(),
        processing_class=tiny_models.tokenizer(),
        peft_config=LoraConfig(r=4, lora_alpha=32, target_modules="all-linear") if lora else None,
        sampler_tolerance=1e-4,
        args=GRPOConfig(
            output_dir=str(folder),
            use_vllm=True,
            vllm_mode="colocate",
            per_device_train_batch_size=16,
            num_generations=4,
            max_completion_length=LENGTH,
            max_steps=3,
            learning_rate=0.05,
            lr_scheduler_type="constant",
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
            report_to=[],
            save_strategy="no",
            logging_steps=1,
            disable_tqdm=True,
        ),
    )
    trainer.train()
    return trainer


def disagreements(trainer: TargetPolicyTrainer) -> list[float]:
    return [entry["sampler_disagreement"] for entry in trainer.state.log_history if "sampler_disagreement" in entry]


@pytest.mark.parametrize("lora", [False, True], ids=["full", "lora"])
def test_weights_that_arrive_are_noted_and_nothing_is_said(tmp_path, monkeypatch, caplog, lora):
    with caplog.at_level(logging.WARNING, logger="llm_rlvr.trainer"):
        trainer = train(tmp_path, monkeypatch, arrives=True, lora=lora)
    assert trainer.vllm_generation.syncs == 3
    assert isinstance(trainer.model, PeftModel) == lora
    noted = disagreements(trainer)
    assert len(noted) == 3
    assert max(noted) < 1e-5
    assert not caplog.records


@pytest.mark.parametrize("lora", [False, True], ids=["full", "lora"])
def test_weights_that_do_not_arrive_are_told(tmp_path, monkeypatch, caplog, lora):
    with caplog.at_level(logging.WARNING, logger="llm_rlvr.trainer"):
        trainer = train(tmp_path, monkeypatch, arrives=False, lora=lora)
    first, *later = disagreements(trainer)
    assert first < 1e-5
    assert min(later) > 1e-3
    assert ["sampler and trainer disagree" in record.getMessage() for record in caplog.records] == [True, True]
    assert "at step 1 (tolerance 0.0001)" in caplog.records[0].getMessage()


def test_a_disagreement_that_grows_is_told_below_the_tolerance(tmp_path, monkeypatch, caplog):
    trainer = train(tmp_path, monkeypatch, arrives=True, lora=False)
    trainer.sampler_tolerance = 0.1
    trainer._first_disagreement = None
    with caplog.at_level(logging.WARNING, logger="llm_rlvr.trainer"):
        for difference in (0.01, 0.045, 0.055):
            own = torch.full((1, 2), -1.0)
            rows = {
                "sampling_per_token_logps": own - difference,
                "old_per_token_logps": own,
                "completion_mask": torch.ones(1, 2),
            }
            trainer._check_sampler(rows)
    assert len(caplog.records) == 1
    assert "by 0.055 nats a token" in caplog.records[0].getMessage()
    assert "(tolerance 0.05)" in caplog.records[0].getMessage()


def test_tokens_without_a_log_probability_are_left_out(tmp_path, monkeypatch):
    trainer = train(tmp_path, monkeypatch, arrives=True, lora=False)
    rows = {
        "sampling_per_token_logps": torch.tensor([[-1.0, torch.nan, -9.0]]),
        "old_per_token_logps": torch.tensor([[-1.5, -2.0, 0.0]]),
        "completion_mask": torch.tensor([[1, 1, 0]]),
    }
    trainer._metrics["train"].clear()
    trainer._check_sampler(rows)
    assert trainer._metrics["train"]["sampler_disagreement"] == [0.5]
