"""A real vLLM engine on the CPU: it agrees with transformers, before and after training steps that are pushed to it.

Run by ``make test-vllm`` in .venv-vllm. (A folder tests/vllm would be taken for the package, hence this place.)
"""

import copy
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast, Qwen3ForCausalLM
from trl import GRPOConfig

from llm_rlvr import TargetPolicyTrainer, samplers
from llm_rlvr.samplers import Completion, TransformersSampler, VllmSampler, disagreement, merged_weights, token_logp
from tests.llm_rlvr import tiny_models

pytest.importorskip("vllm", reason="vLLM is not installed here; `make test-vllm` runs these tests in .venv-vllm")
pytestmark = pytest.mark.vllm

TOLERANCE = 2e-5
"""Of a log-probability in float32. Measured: at most 3e-6 in step, at least 0.02 after a push that was left out."""
TOKENS = 12
LONG = "abcdefghij" * 28
"""Longer than the 128 tokens of a cache block, so that its keys and values are found again."""


@dataclass(frozen=True)
class Engine:
    sampler: VllmSampler
    tokenizer: PreTrainedTokenizerFast
    model: Qwen3ForCausalLM
    """What lies on disk."""
    greedy: list[list[Completion]]
    """By the engine, before anything was pushed."""
    logp: list[list[float]]
    """Of the fixed sequences, before anything was pushed."""


def prompts(tokenizer) -> list[list[int]]:
    return [tokenizer(text)["input_ids"] for text in ["3+4=", "a", "what is 12+30", "0000000", LONG]]


def sequences(tokenizer) -> list[tuple[list[int], list[int]]]:
    texts = [("3+4=", "7"), ("a", "bcdefgh xyz"), (LONG[:100], "0123456789")]
    return [(tokenizer(prompt)["input_ids"], tokenizer(completion)["input_ids"]) for prompt, completion in texts]


def shaken(model, seed: int, scale: float = 0.2):
    """A copy with every parameter moved: its greedy choices are far from uniform, and from the original's."""
    moved = copy.deepcopy(model)
    torch.manual_seed(seed)
    with torch.no_grad():
        for parameter in moved.parameters():
            parameter.add_(scale * torch.randn_like(parameter))
    return moved


@pytest.fixture(scope="module", params=[True, False], ids=["tied", "untied"])
def engine(request, tmp_path_factory) -> Iterator[Engine]:
    config = tiny_models.model().config
    config.tie_word_embeddings = request.param
    config.max_position_embeddings = 512
    model = shaken(Qwen3ForCausalLM(config), seed=0).eval()
    tokenizer = tiny_models.tokenizer()
    directory = tmp_path_factory.mktemp("model")
    model.save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    sampler = VllmSampler(directory, dtype="float32", max_length=512, cache_bytes=2**26, max_sequences=16)
    greedy = sampler.sample(prompts(tokenizer), samples=1, max_tokens=TOKENS, temperature=0, seed=0)
    logp = [sampler.logp(*sequence) for sequence in sequences(tokenizer)]
    yield Engine(sampler, tokenizer, model, greedy, logp)
    sampler.close()


def lora() -> LoraConfig:
    return LoraConfig(r=4, lora_alpha=8, target_modules="all-linear", task_type="CAUSAL_LM")


def assert_agreement(engine: Engine, model) -> None:
    reference = TransformersSampler(model, engine.tokenizer, batch_size=3)
    wanted = reference.sample(prompts(engine.tokenizer), samples=1, max_tokens=TOKENS, temperature=0, seed=0)
    assert (
        engine.sampler.sample(prompts(engine.tokenizer), samples=1, max_tokens=TOKENS, temperature=0, seed=0) == wanted
    )
    for sequence in sequences(engine.tokenizer):
        assert disagreement(engine.sampler, model, *sequence) <= TOLERANCE


def differences(engine: Engine, model) -> list[float]:
    return [disagreement(engine.sampler, model, *sequence) for sequence in sequences(engine.tokenizer)]


def trained(tmp_path: Path, engine: Engine, **changes):
    """The model after two real steps of the trainer, from what lies on the engine's disk."""
    engine.model.save_pretrained(tmp_path / "model")
    arguments = GRPOConfig(
        output_dir=str(tmp_path),
        per_device_train_batch_size=16,
        num_generations=4,
        max_completion_length=6,
        max_steps=2,
        learning_rate=0.05,
        lr_scheduler_type="constant",
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
        beta=0.0,
        seed=0,
    )
    trainer = TargetPolicyTrainer(
        model=AutoModelForCausalLM.from_pretrained(tmp_path / "model"),
        reward_funcs=tiny_models.share_of_digits,
        args=arguments,
        train_dataset=tiny_models.prompts(),
        processing_class=tiny_models.tokenizer(),
        **changes,
    )
    trainer.train()
    return trainer.model


def test_it_agrees_with_transformers_as_loaded(engine):
    reference = TransformersSampler(engine.model, engine.tokenizer)
    wanted = reference.sample(prompts(engine.tokenizer), samples=1, max_tokens=TOKENS, temperature=0, seed=0)
    assert engine.greedy == wanted
    assert len({group[0].tokens for group in wanted}) == len(wanted), "a test of equal completions would show little"
    for sequence, logp in zip(sequences(engine.tokenizer), engine.logp, strict=True):
        torch.testing.assert_close(torch.tensor(logp), token_logp(engine.model, *sequence), atol=TOLERANCE, rtol=0)


def test_all_weights_moved_and_pushed(engine):
    model = shaken(engine.model, seed=1)
    assert min(differences(engine, model)) > 0.1
    engine.sampler.update_weights(merged_weights(model))
    assert_agreement(engine, model)


def test_full_training_steps_pushed(engine, tmp_path, caplog):
    engine.sampler.update_weights(merged_weights(engine.model))
    model = trained(tmp_path, engine)
    with caplog.at_level(logging.WARNING, "llm_rlvr.samplers"):
        assert min(differences(engine, model)) > 1e-2, "nothing was pushed yet"
        assert "disagree" in caplog.text
        caplog.clear()
        engine.sampler.update_weights(merged_weights(model))
        assert_agreement(engine, model)
    assert "disagree" not in caplog.text


def test_lora_training_steps_pushed(engine, tmp_path, caplog):
    engine.sampler.update_weights(merged_weights(engine.model))
    model = trained(tmp_path, engine, peft_config=lora())
    with caplog.at_level(logging.WARNING, "llm_rlvr.samplers"):
        assert min(differences(engine, model)) > 1e-2, "nothing was pushed yet"
        assert "disagree" in caplog.text
        caplog.clear()
        engine.sampler.update_weights(merged_weights(model))
        assert_agreement(engine, model)
    assert "disagree" not in caplog.text


def test_pushing_the_parameters_alone_reaches_a_tied_output_layer(engine):
    """Without a weight named lm_head, as in the parameters of a tied model."""
    model = shaken(engine.model, seed=2)
    engine.sampler.update_weights(model.named_parameters())
    assert_agreement(engine, model)


def test_a_stale_output_layer_is_noticed(engine, monkeypatch, caplog):
    model = shaken(engine.model, seed=3)
    monkeypatch.setattr(samplers, "_repack_output_layer", lambda model: None)
    engine.sampler.update_weights(weight for weight in model.named_parameters() if weight[0] != "lm_head.weight")
    with caplog.at_level(logging.WARNING, "llm_rlvr.samplers"):
        assert min(differences(engine, model)) > 1e-2
    assert len(caplog.records) == len(sequences(engine.tokenizer))


def test_pushing_the_base_of_adapters_is_noticed(engine, caplog):
    model = get_peft_model(shaken(engine.model, seed=4), lora())
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.normal_(std=0.1)
    with model.disable_adapter(), caplog.at_level(logging.WARNING, "llm_rlvr.samplers"):
        engine.sampler.update_weights(shaken(engine.model, seed=4).state_dict().items())
        assert max(differences(engine, model)) <= TOLERANCE
        assert not caplog.records
    with caplog.at_level(logging.WARNING, "llm_rlvr.samplers"):
        assert min(differences(engine, model)) > 1e-2
    assert len(caplog.records) == len(sequences(engine.tokenizer))


def test_samples_follow_seed_and_distribution(engine):
    """Reproducible, different for equal prompts and for other seeds, and as frequent as their probabilities."""
    model = shaken(engine.model, seed=5)
    engine.sampler.update_weights(merged_weights(model))
    state = torch.random.get_rng_state()
    prompt = engine.tokenizer("3+4=")["input_ids"]
    request = {"samples": 2000, "max_tokens": 1, "temperature": 1.0}
    first, second = engine.sampler.sample([prompt, prompt], **request, seed=0)
    assert engine.sampler.sample([prompt, prompt], **request, seed=0) == [first, second]
    assert first != second
    assert engine.sampler.sample([prompt], **request, seed=1) != [first]
    assert torch.equal(torch.random.get_rng_state(), state)
    with torch.no_grad():
        wanted = model(torch.tensor([prompt])).logits[0, -1].softmax(-1)
    drawn = torch.tensor([completion.tokens[0] for completion in first + second])
    shares = torch.bincount(drawn, minlength=len(wanted)) / len(drawn)
    assert (shares - wanted).abs().max() < 5 * (0.25 / len(drawn)) ** 0.5


def test_completions_end_at_eos_or_at_the_limit(engine):
    engine.sampler.update_weights(merged_weights(engine.model))
    (group,) = engine.sampler.sample(
        [engine.tokenizer("a")["input_ids"]], samples=100, max_tokens=40, temperature=1.5, seed=0
    )
    assert len(group) == 100
    assert {completion.finished for completion in group} == {True, False}
    for completion in group:
        assert completion.finished == (completion.tokens[-1] == engine.tokenizer.eos_token_id)
        assert completion.finished or len(completion.tokens) == 40
        assert "<eos>" not in completion.text
