"""Prompts, targets and rewards of the token sequence tasks.

A prompt is H tokens drawn uniformly from {0, ..., V−1}; the policy emits H tokens, which are right where they equal the
target's (arXiv 2604.06159, section on token sequence tasks).
"""

from collections.abc import Callable

import torch
from torch import Tensor

TARGETS: dict[str, Callable[[Tensor, int], Tensor]] = {
    "copy": lambda prompts, vocabulary: prompts,
    "flip": lambda prompts, vocabulary: vocabulary - 1 - prompts,
    "reverse_copy": lambda prompts, vocabulary: prompts.flip(-1),
    "reverse_flip": lambda prompts, vocabulary: vocabulary - 1 - prompts.flip(-1),
}
"""Targets by name: prompts [..., H] and V give [..., H]."""


def token_rewards(tokens: Tensor, targets: Tensor, reward: str) -> Tensor:
    """Reward every emitted token, [..., H] in float.

    ``bag_of_tokens``: 1 where the token is right. ``sequential``: 1 as long as every token up to this one is right.
    ``terminal``: 1 everywhere if the whole sequence is right, else 0.

    Args:
        tokens: emitted, int64 [..., H].
        targets: int64, broadcastable to ``tokens``.
        reward: one of ``REWARDS``.
    """
    right = tokens == targets
    if reward == "sequential":
        right = right.cumprod(-1).bool()
    elif reward == "terminal":
        right = right.all(-1, keepdim=True).expand_as(right)
    elif reward != "bag_of_tokens":
        raise ValueError(f"reward: {reward!r} is not allowed; choose from {', '.join(REWARDS)}")
    return right.to(torch.get_default_dtype())


REWARDS = ("bag_of_tokens", "sequential", "terminal")
