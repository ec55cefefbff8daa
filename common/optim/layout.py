"""Many small tensors side by side in one, so that an elementwise update takes a handful of operations."""

from collections.abc import Mapping

import torch
from torch import Tensor


class Layout:
    """Named tensors [S, ...] as the columns of one tensor [S, N], in the order of their names; there may be none.

    Args:
        tensors: what to lay out.
        template: any tensor of the same S, type and device.
    """

    def __init__(self, tensors: Mapping[str, Tensor], template: Tensor) -> None:
        self._shapes = {name: tensor.shape for name, tensor in tensors.items()}
        self._columns = [tensor[0].numel() for tensor in tensors.values()]
        self._nothing = template.detach().new_empty(len(template), 0)

    def zeros(self) -> Tensor:
        """Return zeros, [S, N]."""
        return self._nothing.new_zeros(len(self._nothing), sum(self._columns))

    def join(self, tensors: Mapping[str, Tensor]) -> Tensor:
        """Copy those of ``tensors`` that are laid out here into a new tensor, [S, N]."""
        rows = len(self._nothing)
        return torch.cat([self._nothing, *(tensors[name].reshape(rows, -1) for name in self._shapes)], 1)

    def views(self, joined: Tensor) -> dict[str, Tensor]:
        """Return every named tensor as a view into ``joined`` [S, N]."""
        parts = joined.split(self._columns, 1)
        return {name: part.view(shape) for (name, shape), part in zip(self._shapes.items(), parts, strict=True)}
