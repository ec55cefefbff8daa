"""The cost of an episode, estimated from its size."""

import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sequence_tasks.cost import cpu_milliseconds, distinct_sequence_tokens, distinct_tokens
from sequence_tasks.settings import SequenceTask
from sequence_tasks.trie import build_trie


@pytest.mark.parametrize("size", [(2, 4, 20, 8), (3, 3, 5, 4), (16, 5, 10, 1)])
def test_distinct_tokens_are_those_of_random_sequences(size):
    vocabulary, length, batch, candidates = size
    task = SequenceTask(vocabulary=vocabulary, length=length, batch=batch, candidates=max(candidates, 2))
    generator = torch.Generator().manual_seed(0)
    counts = []
    for _ in range(200):
        prompts = torch.randint(vocabulary, (batch, 1, length), generator=generator).expand(-1, candidates, -1)
        completions = torch.randint(vocabulary, (batch, candidates, length - 1), generator=generator)
        counts.append(len(build_trie(torch.cat([prompts, completions], -1).flatten(0, 1), vocabulary).tokens))
    assert distinct_tokens(task, candidates) == pytest.approx(sum(counts) / len(counts), rel=0.01)


@pytest.mark.parametrize("changes", [{"batch": 200}, {"candidates": 16}, {"length": 12}, {"epochs": 8}])
def test_more_costs_more(changes):
    assert cpu_milliseconds(SequenceTask(**changes)) > 1.2 * cpu_milliseconds(SequenceTask())


def test_one_trajectory_costs_less_than_a_group():
    assert cpu_milliseconds(SequenceTask(objective="dg", epochs=1)) < cpu_milliseconds(SequenceTask(objective="ppo"))
    assert cpu_milliseconds(SequenceTask(objective="ppo")) < cpu_milliseconds(SequenceTask()) / 2


def counted(vocabulary, length, batch, candidates, rng):
    """The distinct beginnings of prompts, and of their completions, without a trie."""
    prompts = [tuple(rng.choices(range(vocabulary), k=length)) for _ in range(batch)]
    nodes = {prompt[:end] for prompt in prompts for end in range(1, length + 1)}
    for prompt in prompts:
        for _ in range(candidates):
            completion = tuple(rng.choices(range(vocabulary), k=length - 1))
            nodes |= {(*prompt, *completion[:end]) for end in range(1, length)}
    return len(nodes)


@pytest.mark.parametrize(
    "size", [(2, 1, 1, 1), (2, 1, 50, 9), (2, 6, 3, 20), (5, 4, 7, 3), (7, 2, 40, 2), (2, 12, 60, 2)]
)
def test_distinct_tokens_by_simulation(size):
    vocabulary, length, batch, candidates = size
    rng = random.Random(0)
    counts = [counted(vocabulary, length, batch, candidates, rng) for _ in range(300)]
    mean = sum(counts) / len(counts)
    spread = (sum((count - mean) ** 2 for count in counts) / len(counts) ** 2) ** 0.5
    task = SequenceTask(vocabulary=vocabulary, length=length, batch=batch, candidates=8)
    assert abs(distinct_tokens(task, candidates) - mean) <= 4 * spread + 1e-9


@pytest.mark.parametrize("size", [(2, 1, 5, 3), (2, 4, 40, 8), (3, 3, 10, 6), (2, 12, 60, 2)])
def test_distinct_sequence_tokens_by_simulation(size):
    vocabulary, length, batch, candidates = size
    rng = random.Random(0)
    counts = []
    for _ in range(300):
        prompts = [tuple(rng.choices(range(vocabulary), k=length)) for _ in range(batch)]
        written = {
            (prompt, *rng.choices(range(vocabulary), k=length - 1)) for prompt in prompts for _ in range(candidates)
        }
        counts.append(len(set(prompts)) * length + len(written) * (length - 1))
    mean = sum(counts) / len(counts)
    spread = (sum((count - mean) ** 2 for count in counts) / len(counts) ** 2) ** 0.5
    task = SequenceTask(vocabulary=vocabulary, length=length, batch=batch, candidates=8)
    assert abs(distinct_sequence_tokens(task, candidates) - mean) <= 4 * spread + 1e-9


@settings(deadline=None, max_examples=100, derandomize=True)
@given(
    st.sampled_from(["tpo", "grpo", "ppo", "dg"]),
    st.sampled_from(["batch", "candidates", "length", "epochs"]),
    st.integers(2, 300),
    st.integers(1, 40),
)
def test_nothing_that_grows_makes_an_episode_cheaper(objective, key, value, more):
    size = {"objective": objective, "allow_unstable": True, "epochs": 1, "batch": 20, "length": 6}
    small, large = (cpu_milliseconds(SequenceTask(**(size | {key: each}))) for each in (value, value + more))
    grouped = objective in ("tpo", "grpo")
    assert large >= small
    assert (large > small) == (key != "candidates" or grouped)


def test_a_group_at_a_state_costs_one_trajectory():
    dense = {"reward": "bag_of_tokens", "level": "token"}
    assert cpu_milliseconds(SequenceTask(**dense)) == cpu_milliseconds(SequenceTask(objective="ppo"))
    assert cpu_milliseconds(SequenceTask(**dense)) < cpu_milliseconds(SequenceTask(reward="bag_of_tokens"))


@pytest.mark.parametrize(("vocabulary", "length"), [(2, 2000), (16, 300), (10**20, 3), (2**53 + 1, 2)])
def test_more_sequences_than_numbers(vocabulary, length):
    """V^H beyond the largest number: every prompt and completion is another, whatever came before."""
    task = SequenceTask(vocabulary=vocabulary, length=length, batch=10, candidates=4)
    apart = 10 * length + 10 * 4 * (length - 1)
    assert 0.5 * apart < distinct_tokens(task, 4) <= apart * (1 + 1e-9)
    alone = SequenceTask(vocabulary=vocabulary, length=length, batch=1, candidates=4)
    assert distinct_tokens(alone, 1) == pytest.approx(2 * length - 1)
