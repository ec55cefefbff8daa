"""Keeping the K candidates of a prompt together on their way from the sampler into the loss."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor


def shuffled_groups(
    rows: Mapping[str, Any], group_size: int, generator: torch.Generator | None = None
) -> dict[str, Any]:
    """Permute the groups of a generation batch and leave the order within each group.

    Args:
        rows: tensors [B·K, ...] and sequences of B·K entries, groups contiguous; scalars and None pass through.
        group_size: K.
        generator: of the permutation; torch's own where None.

    Raises:
        ValueError: a number of rows that cuts a group.
    """
    count = next(len(value) for value in rows.values() if _has_rows(value))
    if count % group_size:
        raise ValueError(f"generation batch: {count} rows cut a group of {group_size} candidates")
    order = torch.randperm(count // group_size, generator=generator)
    picked = (order[:, None] * group_size + torch.arange(group_size)).flatten()
    return {key: _picked(value, picked) if _has_rows(value) else value for key, value in rows.items()}


def require_whole_groups(groups: Tensor, group_size: int) -> None:
    """Raise RuntimeError unless the group ids [B·K] stand in runs of K equal ones, all runs different."""
    whole = len(groups) % group_size == 0
    if whole:
        runs = groups.view(-1, group_size)
        whole = bool((runs == runs[:, :1]).all()) and len(runs[:, 0].unique()) == len(runs)
    if not whole:
        raise RuntimeError(f"loss: its rows cut or mix groups of {group_size} candidates (ids {groups.tolist()[:32]})")


def _has_rows(value: Any) -> bool:
    return isinstance(value, Sequence) or (isinstance(value, Tensor) and value.ndim > 0)


def _picked(value: Any, rows: Tensor) -> Any:
    return value[rows.to(value.device)] if isinstance(value, Tensor) else [value[row] for row in rows.tolist()]
