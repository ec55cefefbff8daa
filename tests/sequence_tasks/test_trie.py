"""The trie holds every distinct prefix once."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sequence_tasks.trie import build_trie


@settings(deadline=None, derandomize=True, max_examples=60)
@given(st.integers(2, 4), st.integers(1, 6), st.integers(1, 12), st.integers(0, 1000))
def test_nodes_are_the_distinct_prefixes(vocabulary, length, count, seed):
    sequences = torch.randint(vocabulary, (count, length), generator=torch.Generator().manual_seed(seed))
    trie = build_trie(sequences, vocabulary)
    prefixes = {tuple(row[: n + 1]) for row in sequences.tolist() for n in range(length)}
    assert len(trie.tokens) == len(trie.positions) == len(trie.first) == len(prefixes) == trie.levels[-1]
    assert torch.equal(trie.tokens[trie.nodes], sequences)
    assert torch.equal(trie.positions[trie.nodes], torch.arange(length).expand(count, length))
    of_node = {}
    for index, (row, nodes) in enumerate(zip(sequences.tolist(), trie.nodes.tolist(), strict=True)):
        for n, node in enumerate(nodes):
            assert trie.levels[n] <= node < trie.levels[n + 1]
            prefix = tuple(row[: n + 1])
            assert of_node.setdefault(node, (prefix, index))[0] == prefix
    assert [of_node[node][1] for node in range(len(prefixes))] == trie.first.tolist()


def test_a_large_vocabulary_does_not_overflow():
    sequences = torch.randint(1000, (50, 40), generator=torch.Generator().manual_seed(0))
    trie = build_trie(torch.cat([sequences, sequences]), 1000)
    assert torch.equal(trie.tokens[trie.nodes[50:]], sequences)
    assert trie.levels[-1] == trie.levels[1] + 50 * 39  # all apart after the first token, unless the draw collides
