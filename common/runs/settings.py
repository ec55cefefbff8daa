"""Checks that experiments share when they take up their settings."""

import math
from collections.abc import Mapping
from typing import Any

import torch

FLOAT_TYPES: dict[str, torch.dtype] = {"float32": torch.float32, "float64": torch.float64}


def require(key: str, value: float, *, at_least: float | None = None, above: float | None = None) -> None:
    """Raise ValueError naming the key, its value and the bound unless the value is finite and keeps to it."""
    if not math.isfinite(value):
        raise ValueError(f"{key}: {value} is not allowed; it must be finite")
    if at_least is not None and not value >= at_least:
        raise ValueError(f"{key}: {value} is not allowed; it must be at least {at_least}")
    if above is not None and not value > above:
        raise ValueError(f"{key}: {value} is not allowed; it must be greater than {above}")


def require_choice(key: str, value: str, allowed: Mapping[str, Any] | tuple[str, ...]) -> None:
    """Raise ValueError unless the value is one of those allowed."""
    if value not in allowed:
        raise ValueError(f"{key}: {value!r} is not allowed; choose from {', '.join(allowed)}")
