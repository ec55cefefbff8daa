"""Many sequences as one trie: whatever they share is computed once.

Every node is a token at a position after one particular prefix. Sequences with a common prefix share its nodes, equal
sequences all of them; prompts share with each other as well.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Trie:
    """The distinct prefixes of N sequences of length L; T nodes, numbered level by level."""

    tokens: Tensor
    """The token of each node, int64 [T]."""
    positions: Tensor
    """Its position, int64 [T]."""
    nodes: Tensor
    """The nodes along each sequence, int64 [N, L]."""
    first: Tensor
    """The first sequence that passes through each node, int64 [T]."""
    levels: tuple[int, ...]
    """Where each position's nodes begin, and where the last one's end: L + 1 numbers."""


class TrieBuilder:
    """Grows a trie by one position at a time, as the tokens of N sequences become known."""

    def __init__(self, branch: Tensor, vocabulary: int) -> None:
        self._vocabulary = vocabulary
        self.branch = branch
        """The node of the newest level on which each sequence is, counted within the level, int64 [N]; at first, which
        root it grows from."""
        self._levels = [0]
        self._tokens: list[Tensor] = []
        self._positions: list[Tensor] = []
        self._nodes: list[Tensor] = []
        self._first: list[Tensor] = []

    def append(self, tokens: Tensor) -> Tensor:
        """Add the next token of every sequence, int64 [N]; return the first sequence of each new node, int64 [T']."""
        prefixes, self.branch = torch.unique(self.branch * self._vocabulary + tokens, return_inverse=True)
        first = torch.full((len(prefixes),), len(tokens)).scatter_reduce_(
            0, self.branch, torch.arange(len(tokens)), "amin"
        )
        self._tokens.append(prefixes % self._vocabulary)
        self._positions.append(torch.full((len(prefixes),), len(self._positions)))
        self._nodes.append(self._levels[-1] + self.branch)
        self._first.append(first)
        self._levels.append(self._levels[-1] + len(prefixes))
        return first

    def trie(self) -> Trie:
        """Return what has been added so far."""
        return Trie(
            tokens=torch.cat(self._tokens),
            positions=torch.cat(self._positions),
            nodes=torch.stack(self._nodes, 1),
            first=torch.cat(self._first),
            levels=tuple(self._levels),
        )


def build_trie(sequences: Tensor, vocabulary: int) -> Trie:
    """Return the trie of sequences, int64 [N, L] with tokens below ``vocabulary``."""
    builder = TrieBuilder(torch.zeros(len(sequences), dtype=torch.int64), vocabulary)
    for tokens in sequences.unbind(1):
        builder.append(tokens)
    return builder.trie()
