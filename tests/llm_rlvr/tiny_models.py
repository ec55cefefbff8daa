"""A tiny random Qwen3 with an in-process tokenizer of single characters, and prompts with a verifiable reward."""

import string

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

_CHARACTERS = string.ascii_lowercase + string.digits + " +="


def tokenizer() -> PreTrainedTokenizerFast:
    vocabulary = {word: index for index, word in enumerate(["<pad>", "<eos>", "<unk>", *_CHARACTERS])}
    inner = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    return PreTrainedTokenizerFast(
        tokenizer_object=inner, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>", padding_side="left"
    )


def model(seed: int = 0) -> Qwen3ForCausalLM:
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=len(tokenizer()),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=32,
        tie_word_embeddings=True,
        max_position_embeddings=64,
        pad_token_id=0,
        eos_token_id=1,
        bos_token_id=None,
    )
    return Qwen3ForCausalLM(config)


def prompts(count: int = 16) -> Dataset:
    return Dataset.from_dict({"prompt": [f"{a % 10}+{a // 2 % 10}=" for a in range(count)]})


def share_of_digits(completions: list[str], **_: object) -> list[float]:
    return [sum(character.isdigit() for character in text) / max(len(text), 1) for text in completions]
