"""Where a result comes from: commit, versions, machine."""

import platform
import subprocess
import sys
from functools import cache
from importlib.metadata import version
from pathlib import Path

import torch


@cache
def commit() -> str:
    """Return the project's git commit, with ``+changes`` where the tree differs from it; "unknown" outside git."""
    root = Path(__file__).resolve().parents[2]
    try:
        head = _git(root, "rev-parse", "--short=12", "HEAD")
        changed = _git(root, "status", "--porcelain", "--untracked-files=no")
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return f"{head}+changes" if changed else head


def _git(root: Path, *arguments: str) -> str:
    command = ["git", "-C", str(root), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=10).stdout.strip()


def versions() -> dict[str, str]:
    """Return the versions that a result depends on."""
    return {"python": platform.python_version(), "torch": torch.__version__, "numpy": version("numpy")}


def machine(device: torch.device) -> str:
    """Describe what the numbers were computed on."""
    if device.type == "cuda":
        return f"cuda: {torch.cuda.get_device_name(device)}"
    return f"{device.type}: {platform.machine()} {sys.platform}"
