"""The cost of an episode, estimated from its size."""

import pytest
import torch

from sequence_tasks.cost import cpu_milliseconds, distinct_tokens
from sequence_tasks.settings import SequenceTask
from sequence_tasks.trie import build_trie


@pytest.mark.parametrize("size", [(2, 4, 20, 8), (3, 3, 5, 4), (16, 5, 10, 1)])
def test_distinct_tokens_are_those_of_random_sequences(size):
    vocabulary, length, batch, candidates = size
    settings = SequenceTask(vocabulary=vocabulary, length=length, batch=batch, candidates=max(candidates, 2))
    generator = torch.Generator().manual_seed(0)
    counts = []
    for _ in range(200):
        prompts = torch.randint(vocabulary, (batch, 1, length), generator=generator).expand(-1, candidates, -1)
        completions = torch.randint(vocabulary, (batch, candidates, length - 1), generator=generator)
        counts.append(len(build_trie(torch.cat([prompts, completions], -1).flatten(0, 1), vocabulary).tokens))
    # prompts that occur twice share a beginning, too, which the estimate leaves out
    assert distinct_tokens(settings, candidates) == pytest.approx(sum(counts) / len(counts), rel=0.1)


@pytest.mark.parametrize("changes", [{"batch": 200}, {"candidates": 16}, {"length": 12}, {"epochs": 8}])
def test_more_costs_more(changes):
    assert cpu_milliseconds(SequenceTask(**changes)) > 1.2 * cpu_milliseconds(SequenceTask())


def test_one_trajectory_costs_less_than_a_group():
    assert cpu_milliseconds(SequenceTask(objective="dg", epochs=1)) < cpu_milliseconds(SequenceTask(objective="ppo"))
    assert cpu_milliseconds(SequenceTask(objective="ppo")) < cpu_milliseconds(SequenceTask()) / 2
