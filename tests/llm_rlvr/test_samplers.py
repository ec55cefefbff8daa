"""Sampling with transformers, log-probabilities, merged adapters, and the check of weights; no vLLM needed."""

import copy
import logging
import random
import sys

import numpy as np
import pytest
import torch
from peft import IA3Config, LoraConfig, get_peft_model

from common.errors import UserError
from llm_rlvr.samplers import TransformersSampler, VllmSampler, disagreement, merged_weights
from tests.llm_rlvr import tiny_models

PROMPTS = ("3+4=", "a", "what is 12+30")


@pytest.fixture
def model():
    """A model whose choices are far from uniform."""
    made = tiny_models.model()
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return made.eval()


@pytest.fixture
def tokenizer():
    return tiny_models.tokenizer()


@pytest.fixture
def prompts(tokenizer):
    return [tokenizer(text)["input_ids"] for text in PROMPTS]


def with_adapters(model, **changes):
    """The model with LoRA that does something (peft starts with nothing)."""
    settings = {"r": 4, "lora_alpha": 8, "target_modules": "all-linear", "task_type": "CAUSAL_LM"}
    adapted = get_peft_model(copy.deepcopy(model), LoraConfig(**(settings | changes)))
    torch.manual_seed(2)
    with torch.no_grad():
        for parameter in adapted.parameters():
            if parameter.requires_grad:
                parameter.add_(0.1 * torch.randn_like(parameter))
    return adapted.eval()


def equal_weights(left, right) -> bool:
    left, right = dict(left), dict(right)
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


@pytest.mark.parametrize("temperature", [0, 0.7, 1])
def test_as_many_completions_as_asked_for(model, tokenizer, prompts, temperature):
    groups = TransformersSampler(model, tokenizer, batch_size=4).sample(
        prompts, samples=3, max_tokens=5, temperature=temperature, seed=0
    )
    assert [len(group) for group in groups] == [3, 3, 3]
    for completion in (completion for group in groups for completion in group):
        assert 1 <= len(completion.tokens) <= 5
        assert completion.text == tokenizer.decode(completion.tokens, skip_special_tokens=True)


def test_greedy_completions_take_the_likeliest_token_whatever_the_batch(model, tokenizer, prompts):
    request = {"samples": 2, "max_tokens": 8, "temperature": 0}
    groups = TransformersSampler(model, tokenizer).sample(prompts, **request, seed=0)
    assert groups == TransformersSampler(model, tokenizer, batch_size=1).sample(prompts, **request, seed=1)
    for prompt, (first, second) in zip(prompts, groups, strict=True):
        assert first == second
        with torch.no_grad():
            logits = model(torch.tensor([[*prompt, *first.tokens]])).logits[0, len(prompt) - 1 : -1]
        assert tuple(logits.argmax(-1).tolist()) == first.tokens


def test_sampling_follows_its_seed_and_nothing_else(model, tokenizer, prompts):
    sampler = TransformersSampler(model, tokenizer)
    request = {"samples": 4, "max_tokens": 8, "temperature": 1.0}
    before = (torch.random.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist())
    first = sampler.sample(prompts, **request, seed=3)
    after = (torch.random.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist())
    assert torch.equal(before[0], after[0])
    assert before[1:] == after[1:]
    torch.manual_seed(77)
    assert sampler.sample(prompts, **request, seed=3) == first
    assert sampler.sample(prompts, **request, seed=4) != first


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_the_whole_distribution_is_sampled_whatever_the_models_own_settings(model, tokenizer, prompts, temperature):
    own = {"do_sample": True, "top_k": 2, "top_p": 0.3, "repetition_penalty": 3.0, "temperature": 0.1, "min_p": 0.2}
    for name, value in own.items():
        setattr(model.generation_config, name, value)
    model.train()
    model.lm_head.eval()
    sampler = TransformersSampler(model, tokenizer, batch_size=4000)
    (group,) = sampler.sample(prompts[:1], samples=4000, max_tokens=1, temperature=temperature, seed=0)
    shares = torch.bincount(torch.tensor([drawn.tokens[0] for drawn in group]), minlength=len(tokenizer)) / 4000
    with torch.no_grad():
        wanted = (model(torch.tensor(prompts[:1])).logits[0, -1] / temperature).softmax(-1)
    assert (shares - wanted).abs().max() < 5 * (0.25 / 4000) ** 0.5
    assert {name: getattr(model.generation_config, name) for name in own} == own
    assert model.training
    assert not model.lm_head.training


def test_every_end_token_of_the_generation_config_ends_a_completion(model, tokenizer, prompts):
    other = tokenizer("q")["input_ids"][0]
    model.generation_config.eos_token_id = [tokenizer.eos_token_id, other]
    ends = set(model.generation_config.eos_token_id)
    groups = TransformersSampler(model, tokenizer).sample(prompts, samples=60, max_tokens=12, temperature=1.5, seed=0)
    completions = [completion for group in groups for completion in group]
    assert {completion.tokens[-1] for completion in completions if completion.finished} == ends
    assert not all(completion.finished for completion in completions)
    for completion in completions:
        assert ends.isdisjoint(completion.tokens[:-1])
        assert completion.finished == (completion.tokens[-1] in ends)
        assert completion.finished or len(completion.tokens) == 12
        assert "<eos>" not in completion.text


def test_logp_is_that_of_a_plain_forward_pass(model, tokenizer, prompts):
    completion = tokenizer("abc 123")["input_ids"]
    model.config.attention_dropout = 0.5
    model.train()
    for module in model.modules():
        if hasattr(module, "attention_dropout"):
            module.attention_dropout = 0.5
    logp = TransformersSampler(model, tokenizer).logp(prompts[2], completion)
    assert model.training
    model.eval()
    with torch.no_grad():
        wanted = model(torch.tensor([prompts[2] + completion])).logits[0].log_softmax(-1)
    wanted = [float(wanted[len(prompts[2]) + place - 1, token]) for place, token in enumerate(completion)]
    assert logp == pytest.approx(wanted, abs=1e-6)


def test_adapters_are_sampled_with(model, tokenizer, prompts):
    adapted = with_adapters(model)
    merged = copy.deepcopy(adapted).merge_and_unload()
    request = {"samples": 1, "max_tokens": 8, "temperature": 0, "seed": 0}
    greedy = TransformersSampler(adapted, tokenizer).sample(prompts, **request)
    assert greedy == TransformersSampler(merged, tokenizer).sample(prompts, **request)
    assert greedy != TransformersSampler(model, tokenizer).sample(prompts, **request)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"target_modules": ["q_proj", "down_proj"]},
        {"use_dora": True},
        {"target_modules": ["v_proj"], "modules_to_save": ["norm"]},
    ],
    ids=["all", "some", "dora", "trained norm"],
)
def test_merged_weights_are_those_of_merging_and_unloading(model, changes):
    adapted = with_adapters(model, **changes)
    before = copy.deepcopy(adapted.state_dict())
    merged = dict(merged_weights(adapted))
    assert equal_weights(adapted.state_dict(), before)
    assert merged.keys() == model.state_dict().keys()
    assert not equal_weights(merged, model.state_dict())
    assert equal_weights(merged, copy.deepcopy(adapted).merge_and_unload().state_dict())


def test_merged_weights_of_a_plain_model_are_its_own(model):
    assert equal_weights(merged_weights(model), model.state_dict())


def test_other_adapters_are_not_passed_on_unmerged(model):
    adapted = get_peft_model(
        model,
        IA3Config(target_modules=["k_proj", "down_proj"], feedforward_modules=["down_proj"], task_type="CAUSAL_LM"),
    )
    with pytest.raises(ValueError, match=r"model\.layers\.0\.\S+: merging \w+ is not supported"):
        dict(merged_weights(adapted))


def test_disagreement_is_measured_and_told(model, tokenizer, prompts, caplog):
    completion = tokenizer("abc 123")["input_ids"]
    sampler = TransformersSampler(copy.deepcopy(model), tokenizer)
    with caplog.at_level(logging.WARNING, "llm_rlvr.samplers"):
        assert disagreement(sampler, model, prompts[0], completion) == 0
        assert not caplog.records
        adapted = with_adapters(model)
        measured = disagreement(sampler, adapted, prompts[0], completion)
        own = TransformersSampler(adapted, tokenizer).logp(prompts[0], completion)
        gaps = [abs(left - right) for left, right in zip(sampler.logp(prompts[0], completion), own, strict=True)]
        assert measured == pytest.approx(max(gaps), abs=1e-6)
        assert measured > 1e-3
        assert len(caplog.records) == 1
        assert disagreement(sampler, adapted, prompts[0], completion, tolerance=100) == measured
        assert len(caplog.records) == 1
        with torch.no_grad():
            model.lm_head.weight[5] = torch.nan
        assert np.isnan(disagreement(sampler, model, prompts[0], completion))
        assert len(caplog.records) == 2


def test_without_vllm_one_line_says_where_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "vllm", None)
    with pytest.raises(UserError, match=r"^vllm: cannot be imported .*make \.venv-vllm/\.installed") as refusal:
        VllmSampler("anything")
    assert "\n" not in str(refusal.value)
