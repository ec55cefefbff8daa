"""The fast way: one pass over the trie of all prompts and completions, with keys and values cached while sampling.

Exactly what ``sequence_tasks.plain`` computes, but every distinct prefix is computed once: a prompt is shared by its
candidates, a common beginning by the candidates that have it, equal candidates and equal prompts by each other.
Projections, feed-forward blocks and norms run over the nodes [T, width]. Attention runs over rows of nodes: the
distinct prompts see themselves; the distinct completions see their prompt's keys and their own.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from common.draws import categorical
from sequence_tasks.policy import Architecture, Parameters, attend, embed, finish_layer, log_probabilities, project
from sequence_tasks.trie import Trie, TrieBuilder, build_trie


@dataclass(frozen=True)
class _Segment:
    """Rows of nodes whose queries attend together: the prompts, or the completions."""

    rows: Tensor
    """Nodes whose queries are computed, int64 [R, Q]."""
    seen: Tensor
    """Nodes whose keys each row sees, int64 [R, L]; the last Q are ``rows``."""
    places: Tensor
    """Where each of the segment's T' nodes stands first in the flattened rows, int64 [T']."""
    causal: Tensor
    """Which of the seen keys a query may see, bool [Q, L]."""

    def attend(self, heads: int, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Return attention's output at the segment's nodes, [T', width], from all nodes' [T, width]."""
        seen_keys, seen_values = _rows(keys, self.seen), _rows(values, self.seen)
        rows = attend(heads, _rows(queries, self.rows), seen_keys, seen_values, self.causal)
        return rows.flatten(0, 1).index_select(0, self.places)


def _rows(values: Tensor, at: Tensor) -> Tensor:
    return values.index_select(0, at.flatten()).view(*at.shape, -1)


def _segments(trie: Trie, prompt_length: int) -> list[_Segment]:
    """Cut a trie of prompts and completions into the rows whose attention is computed."""
    length = trie.nodes.shape[1]
    segments = []
    for start, stop in ((0, prompt_length), (prompt_length, length)):
        if start == stop:
            continue
        begin, last, end = trie.levels[start], trie.levels[stop - 1], trie.levels[stop]
        rows = trie.nodes.index_select(0, trie.first[last:end])  # one a distinct row
        row_of_node = (trie.nodes[:, stop - 1] - last)[trie.first[begin:end]]
        places = row_of_node * (stop - start) + trie.positions[begin:end] - start
        causal = torch.ones(stop - start, stop, dtype=torch.bool).tril(start)
        segments.append(_Segment(rows[:, start:stop], rows[:, :stop], places, causal))
    return segments


def _hidden(p: Parameters, shape: Architecture, trie: Trie, prompt_length: int) -> Tensor:
    """Return the residual stream after the last layer at every node, [T, width]."""
    segments = _segments(trie, prompt_length)
    hidden = embed(p, trie.tokens, trie.positions)
    for layer in range(shape.layers):
        heads = project(p, layer, hidden)
        attended = torch.cat([segment.attend(shape.heads, *heads) for segment in segments])
        hidden = finish_layer(p, layer, hidden, attended)
    return hidden


def token_log_probabilities(p: Parameters, shape: Architecture, prompts: Tensor, tokens: Tensor) -> Tensor:
    """Return log π of every emitted token, [B, K, H], differentiable; equals ``plain.token_log_probabilities``.

    Args:
        p: one seed's parameters.
        shape: the architecture.
        prompts: int64 [B, H].
        tokens: int64 [B, K, H].
    """
    batch, candidates, length = tokens.shape
    if batch == 0:
        return torch.zeros(tokens.shape, dtype=p["token"].dtype)
    sequences = torch.cat([prompts[:, None].expand(batch, candidates, -1), tokens], -1).flatten(0, 1)
    states = _state_log_probabilities(p, shape, sequences[:, :-1], prompts.shape[1])
    return states.gather(-1, sequences[:, prompts.shape[1] :, None]).view(batch, candidates, length)


def state_log_probabilities(p: Parameters, shape: Architecture, prompts: Tensor, tokens: Tensor) -> Tensor:
    """Return log π over the vocabulary at every prefix state of one trajectory a prompt, [B, H, V]; differentiable.

    One causal pass gives all states; equals ``plain.state_log_probabilities``.

    Args:
        p: one seed's parameters.
        shape: the architecture.
        prompts: int64 [B, H].
        tokens: int64 [B, H].
    """
    return _state_log_probabilities(p, shape, torch.cat([prompts, tokens[:, :-1]], 1), prompts.shape[1])


def _state_log_probabilities(p: Parameters, shape: Architecture, sequences: Tensor, prompt_length: int) -> Tensor:
    """Return log π after the last prompt position and every later one, [N, L − H + 1, V], of sequences [N, L]."""
    trie = build_trie(sequences, shape.vocabulary)
    hidden = _hidden(p, shape, trie, prompt_length)
    emitting = trie.levels[prompt_length - 1]
    logp = log_probabilities(p, hidden[emitting:])
    return _rows(logp, trie.nodes[:, prompt_length - 1 :] - emitting)


@torch.no_grad()
def sample(p: Parameters, shape: Architecture, prompts: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Sample completions with cached keys and values; the same tokens as ``plain.sample`` from the same noise.

    Args:
        p: one seed's parameters.
        shape: the architecture.
        prompts: int64 [B, H].
        noise: uniform, [B, K, H].

    Returns:
        Tokens, int64 [B, K, H], and their log-probabilities, [B, K, H].
    """
    batch, candidates, length = noise.shape
    prompt_length = prompts.shape[1]
    noise = noise.flatten(0, 1)
    sequences = prompts.repeat_interleave(candidates, 0)
    builder = TrieBuilder(len(sequences), shape.vocabulary)
    for column in sequences.unbind(1):
        builder.append(column)
    cache = _Cache(p, shape)
    states = cache.prefill(builder.trie(), prompt_length)
    tokens, log_probs = [], []
    for position in range(length):
        logp = states.index_select(0, builder.branch)
        tokens.append(categorical(logp, noise[:, position]))
        log_probs.append(logp.gather(1, tokens[-1][:, None])[:, 0])
        if position < length - 1:
            first = builder.append(tokens[-1])
            states = cache.extend(builder.trie(), first)
    return (
        torch.stack(tokens, -1).view(batch, candidates, length),
        torch.stack(log_probs, -1).view(batch, candidates, length),
    )


class _Cache:
    """Keys and values of every node so far, layer by layer."""

    def __init__(self, p: Parameters, shape: Architecture) -> None:
        self._p = p
        self._shape = shape
        self._keys: list[Tensor] = []
        self._values: list[Tensor] = []

    def prefill(self, trie: Trie, prompt_length: int) -> Tensor:
        """Run the prompts; return log π after each distinct one, [P, V]."""
        (segment,) = _segments(trie, prompt_length)
        hidden = embed(self._p, trie.tokens, trie.positions)
        for layer in range(self._shape.layers):
            heads = project(self._p, layer, hidden)
            self._keys.append(heads.keys)
            self._values.append(heads.values)
            hidden = finish_layer(self._p, layer, hidden, segment.attend(self._shape.heads, *heads))
        return log_probabilities(self._p, hidden[trie.levels[prompt_length - 1] :])

    def extend(self, trie: Trie, first: Tensor) -> Tensor:
        """Run the nodes of the newest level, each seeing its own path; return log π after each, [T', V].

        Args:
            trie: with the newest level.
            first: the first sequence through each of its nodes.
        """
        seen = trie.nodes.index_select(0, first)
        new = seen[:, -1]
        hidden = embed(self._p, trie.tokens[new], trie.positions[new])
        for layer in range(self._shape.layers):
            queries, keys, values = project(self._p, layer, hidden)
            self._keys[layer] = torch.cat([self._keys[layer], keys])
            self._values[layer] = torch.cat([self._values[layer], values])
            seen_keys, seen_values = _rows(self._keys[layer], seen), _rows(self._values[layer], seen)
            attended = attend(self._shape.heads, queries.unsqueeze(1), seen_keys, seen_values).squeeze(1)
            hidden = finish_layer(self._p, layer, hidden, attended)
        return log_probabilities(self._p, hidden)
