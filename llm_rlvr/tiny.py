"""A tiny random Qwen3 with a tokenizer of single characters: nothing to download, seconds to train."""

import string
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

CHARACTERS = string.digits + string.ascii_letters + string.punctuation + " \n"
SPECIAL = ("<pad>", "<eos>", "<unk>", "<user>", "<assistant>")
TEMPLATE = (
    "{% for message in messages %}<{{ 'assistant' if message.role == 'assistant' else 'user' }}>{{ message.content }}"
    "{% if message.role == 'assistant' %}<eos>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


def tiny_tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer of printable ASCII characters with a chat template."""
    vocabulary = {word: index for index, word in enumerate((*SPECIAL, *CHARACTERS))}
    inner = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    inner.decoder = decoders.Fuse()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner,
        pad_token="<pad>",
        eos_token="<eos>",
        unk_token="<unk>",
        additional_special_tokens=["<user>", "<assistant>"],
        padding_side="left",
    )
    tokenizer.chat_template = TEMPLATE
    return tokenizer


def tiny_model(seed: int = 0) -> Qwen3ForCausalLM:
    """Return the model: two layers, width 32, heads of width 32 as vLLM needs them, tied embeddings."""
    tokenizer = tiny_tokenizer()
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=32,
        tie_word_embeddings=True,
        max_position_embeddings=4096,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Qwen3ForCausalLM(config)


def save_tiny(directory: Path) -> None:
    """Write model and tokenizer as a checkpoint."""
    tiny_model().save_pretrained(directory)
    tiny_tokenizer().save_pretrained(directory)
