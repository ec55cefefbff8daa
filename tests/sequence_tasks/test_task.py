"""Targets and rewards, by hand."""

import pytest
import torch

from sequence_tasks.task import REWARDS, TARGETS, token_rewards

PROMPT = torch.tensor([[0, 3, 1]])


@pytest.mark.parametrize(
    ("name", "expected"),
    [("copy", [0, 3, 1]), ("flip", [3, 0, 2]), ("reverse_copy", [1, 3, 0]), ("reverse_flip", [2, 0, 3])],
)
def test_targets(name, expected):
    assert TARGETS[name](PROMPT, 4).tolist() == [expected]


@pytest.mark.parametrize(
    ("reward", "wrong_second", "all_right"),
    [
        ("bag_of_tokens", [1, 0, 1], [1, 1, 1]),
        ("sequential", [1, 0, 0], [1, 1, 1]),
        ("terminal", [0, 0, 0], [1, 1, 1]),
    ],
)
def test_rewards(reward, wrong_second, all_right):
    tokens = torch.tensor([[[0, 2, 1], [0, 3, 1]]])
    rewards = token_rewards(tokens, PROMPT[:, None], reward)
    assert rewards.tolist() == [[wrong_second, all_right]]
    assert rewards.is_floating_point()


def test_an_unknown_reward_is_refused():
    with pytest.raises(ValueError, match=r"^reward: 'sparse' is not allowed; choose from bag_of_tokens, sequential"):
        token_rewards(PROMPT, PROMPT, "sparse")
    assert set(REWARDS) == {"bag_of_tokens", "sequential", "terminal"}
