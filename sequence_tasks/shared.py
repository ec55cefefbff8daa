"""The fast way: one pass over the trie of all prompts and completions, with keys and values cached while sampling.

Exactly what ``sequence_tasks.plain`` computes, but every distinct prefix is computed once: a prompt is shared by its
candidates, a common beginning by the candidates that have it, equal candidates and equal prompts by each other.
Projections, feed-forward blocks and norms run over the nodes [T, width]. Attention runs over rows of nodes: the
distinct prompts see themselves; the distinct completions of a prompt see its keys and their own.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from common.draws import categorical
from sequence_tasks.kernels import Layout, Rows, attention, gelu, softmax
from sequence_tasks.policy import Architecture, Parameters, embed, finish_layer, log_probabilities, project
from sequence_tasks.trie import Trie, TrieBuilder, build_trie

SKIPS, STACKS = True, False


@dataclass(frozen=True)
class Sequences:
    """Prompts with their completions as a trie, laid out once and then run under any parameters."""

    trie: Trie
    emitting: int
    """The first node after which a token is emitted: the prompts' last ones come first, then the completions'."""
    every_node: Layout
    emitting_nodes: Layout
    """For the last layer, where nothing else is needed of a prompt than what follows it."""
    states: Tensor
    """The states of each sequence, counted over the emitting nodes, int64 [N, H]."""
    emitted: Tensor
    """The tokens emitted there, int64 [N, H]."""
    candidates: int


def lay_out(shape: Architecture, prompts: Tensor, tokens: Tensor) -> Sequences:
    """Lay out prompts, int64 [B, H], and completions, int64 [B, K, H]."""
    batch, candidates, _ = tokens.shape
    length = prompts.shape[1]
    sequences = torch.cat([prompts[:, None].expand(batch, candidates, -1), tokens], -1).flatten(0, 1)
    trie = build_trie(sequences[:, :-1], shape.vocabulary)
    emitting, nodes, table = trie.levels[length - 1], len(trie.tokens), 3 * shape.heads * len(trie.tokens)
    if candidates == 1:  # nobody shares a prompt: whole sequences are the rows
        whole = trie.nodes.shape[1]
        every: tuple[Rows, ...] = (_rows_from(trie, whole, 0, shape.heads),)
        last: tuple[Rows, ...] = (_rows_from(trie, whole, length - 1, shape.heads),)
    else:
        completions = _completions(trie, length, shape.heads)
        every = (_rows_from(trie, length, 0, shape.heads), *completions)
        ends = _rows_from(trie, length, length - 1, shape.heads)
        last = (ends, *(rows.counted_from(emitting, shape.heads) for rows in completions))
    return Sequences(
        trie,
        emitting,
        Layout.of(every, nodes, table),
        Layout.of(last, nodes - emitting, table),
        trie.nodes[:, length - 1 :] - emitting,
        sequences[:, length:],
        candidates,
    )


def _distinct(trie: Trie, length: int) -> tuple[Tensor, Tensor]:
    """Return the nodes of the distinct beginnings of this length, [R, length], and to which each sequence belongs."""
    last, end = trie.levels[length - 1], trie.levels[length]
    return trie.nodes[trie.first[last:end], :length], trie.nodes[:, length - 1] - last


def _rows_from(trie: Trie, length: int, first: int, heads: int) -> Rows:
    """The nodes of the distinct beginnings of this length from a position on: each a row; what is before, its context.

    Outputs are counted from that position's first node.
    """
    rows, row_of_sequence = _distinct(trie, length)
    nodes = torch.arange(trie.levels[first], trie.levels[length])
    at = row_of_sequence[trie.first[nodes]] * (length - first) + trie.positions[nodes] - first
    return Rows.locate(rows[:, None, first:], rows[:, :first], nodes - trie.levels[first], at, heads)


def _completions(trie: Trie, length: int, heads: int) -> list[Rows]:
    """The nodes of the distinct completions: each a row, grouped by prompt, which is their context.

    Groups are padded to the next power of two of rows, and those of equal size computed together.
    """
    whole = trie.nodes.shape[1]
    if whole == length:
        return []
    rows, row_of_sequence = _distinct(trie, whole)
    prompts = rows[:, length - 1] - trie.levels[length - 1]  # ascending
    counts = torch.bincount(prompts)
    starts = counts.cumsum(0) - counts
    sizes = 2 ** (counts - 1).double().add(1).log2().ceil().long()
    nodes = torch.arange(trie.levels[length], trie.levels[whole])
    row_of_node = row_of_sequence[trie.first[nodes]]
    prompt_of_node = prompts[row_of_node]
    segments = []
    for size in sizes.unique().tolist():
        group = (sizes == size).nonzero()[:, 0]
        taken = starts[group, None] + torch.arange(size).minimum(counts[group, None] - 1)
        number = torch.zeros_like(counts).index_copy_(0, group, torch.arange(len(group)))
        here = sizes[prompt_of_node] == size
        prompt, row = prompt_of_node[here], row_of_node[here]
        place = number[prompt] * size + row - starts[prompt]
        at = place * (whole - length) + trie.positions[nodes[here]] - length
        own, context = rows[taken][..., length:], rows[starts[group], :length]
        segments.append(Rows.locate(own, context, nodes[here], at, heads))
    return segments


def log_probabilities_of_states(p: Parameters, shape: Architecture, sequences: Sequences) -> Tensor:
    """Return log π over the vocabulary at every emitting node, [T', V]; differentiable."""
    trie = sequences.trie
    hidden = embed(p, trie.tokens, trie.positions)
    for layer in range(shape.layers):
        projected = project(p, layer, hidden)
        if layer < shape.layers - 1:
            attended = attention(projected, shape.heads, sequences.every_node)
        else:
            attended = attention(projected, shape.heads, sequences.emitting_nodes)
            hidden = hidden[sequences.emitting :]
        hidden = finish_layer(p, layer, hidden, attended, gelu)
    return log_probabilities(p, hidden)


def token_log_probabilities(p: Parameters, shape: Architecture, sequences: Sequences) -> Tensor:
    """Return log π of every emitted token, [B, K, H]; differentiable.

    Args:
        p: one seed's parameters.
        shape: the architecture.
        sequences: from ``lay_out``.
    """
    logp = log_probabilities_of_states(p, shape, sequences).flatten()
    tokens = logp.index_select(0, (sequences.states * shape.vocabulary + sequences.emitted).flatten())
    return tokens.view(-1, sequences.candidates, sequences.states.shape[1])


def state_log_probabilities(p: Parameters, shape: Architecture, sequences: Sequences) -> Tensor:
    """Return log π over the vocabulary at every prefix state of one trajectory a prompt, [B, H, V]; differentiable.

    One causal pass gives all states.

    Args:
        p: one seed's parameters.
        shape: the architecture.
        sequences: from ``lay_out``, of one completion a prompt.
    """
    logp = log_probabilities_of_states(p, shape, sequences)
    return logp.index_select(0, sequences.states.flatten()).view(*sequences.states.shape, -1)


@torch.no_grad()
def sample(p: Parameters, shape: Architecture, prompts: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Sample completions with cached keys and values; the same tokens as ``plain.sample`` from the same noise.

    Args:
        p: one seed's parameters.
        shape: the architecture.
        prompts: int64 [B, H].
        noise: uniform, [B, K, H].

    Returns:
        Tokens, int64 [B, K, H], and log π over the vocabulary where they were drawn, [B, K, H, V].
    """
    batch, candidates, length = noise.shape
    noise = noise.flatten(0, 1)
    cache = _Cache(p, shape, build_trie(prompts, shape.vocabulary), candidates)
    states = cache.states_after_prompts()
    tokens, log_probs = [], []
    for position in range(length):
        log_probs.append(states.index_select(0, cache.branch))
        tokens.append(categorical(log_probs[-1], noise[:, position]))
        if position < length - 1:
            states = cache.states_after(tokens[-1])
    return (
        torch.stack(tokens, -1).view(batch, candidates, length),
        torch.stack(log_probs, 1).view(batch, candidates, length, -1),
    )


class _Cache:
    """Keys and values so far, of the prompts and of the completions' nodes, layer by layer."""

    def __init__(self, p: Parameters, shape: Architecture, prompts: Trie, candidates: int) -> None:
        self._p = p
        self._shape = shape
        self._prompts = prompts
        self._prompt_nodes, prompt_of_sequence = _distinct(prompts, prompts.nodes.shape[1])
        self._prompt = prompt_of_sequence.repeat_interleave(candidates)
        self._completions = TrieBuilder(self._prompt, shape.vocabulary)
        self._seen: list[tuple[Tensor, Tensor]] = []
        """Of each layer: the prompts' keys and values, [P·heads, H, d] each."""
        self._tables: list[Tensor] = []
        """Of each layer: keys and values of the completions' nodes, [T·2·heads, d]."""

    @property
    def branch(self) -> Tensor:
        """Which of the newest states each sequence is in, int64 [N]."""
        return self._completions.branch

    def states_after_prompts(self) -> Tensor:
        """Run the prompts; return log π after each distinct one, [P, V]."""
        shape, trie = self._shape, self._prompts
        rows = _rows_from(trie, self._prompt_nodes.shape[1], 0, shape.heads)
        layout = Layout.of((rows,), len(trie.tokens), 3 * shape.heads * len(trie.tokens))
        hidden = embed(self._p, trie.tokens, trie.positions)
        for layer in range(shape.layers):
            projected = project(self._p, layer, hidden)
            split = projected[self._prompt_nodes].unflatten(-1, (3, shape.heads, -1))  # [P, H, 3, heads, d]
            _, keys, values = split.permute(2, 0, 3, 1, 4).flatten(1, 2).contiguous()
            self._seen.append((keys, values))
            nodes = len(self._prompt) * (self._prompt_nodes.shape[1] - 1)  # there cannot be more
            self._tables.append(keys.new_empty(nodes * 2 * shape.heads, keys.shape[-1]))
            hidden = finish_layer(self._p, layer, hidden, attention(projected, shape.heads, layout), gelu)
        return log_probabilities(self._p, hidden[trie.levels[-2] :])

    def states_after(self, tokens: Tensor) -> Tensor:
        """Add a token to every sequence, int64 [N]; return log π after each distinct sequence, [R, V]."""
        first = self._completions.append(tokens)
        trie = self._completions.trie()
        path = trie.nodes.index_select(0, first)  # [R, t]
        new = path[:, -1]
        heads = self._shape.heads
        slots = (path.unsqueeze(1) * 2 * heads + torch.arange(heads)[:, None]).flatten()
        places, padded = self._padded_places(self._prompt.index_select(0, first), heads)
        step = _Step(slice(2 * heads * trie.levels[-2], 2 * heads * trie.levels[-1]), slots, places, padded)
        hidden = embed(self._p, trie.tokens[new], trie.positions[new] + self._prompt_nodes.shape[1])
        for layer in range(self._shape.layers):
            attended = self._attend(layer, project(self._p, layer, hidden), step)
            hidden = finish_layer(self._p, layer, hidden, attended, gelu)
        return log_probabilities(self._p, hidden)

    def _attend(self, layer: int, projected: Tensor, step: "_Step") -> Tensor:
        """Cache the new nodes' keys and values; return attention's output at them, [R, width] from [R, 3·width]."""
        width = projected.shape[1] // 3
        depth = width // self._shape.heads
        queries, added = projected.split([width, 2 * width], 1)
        queries = queries.reshape(-1, depth) * depth**-0.5  # [R·heads, d]
        table = self._tables[layer]
        table[step.new] = added.reshape(-1, depth)
        keys = table.index_select(0, step.slots).view(len(queries), -1, depth)
        values = table.index_select(0, step.slots + self._shape.heads).view(len(queries), -1, depth)
        seen_keys, seen_values = self._seen[layer]
        to_prompt = torch.bmm(_spread(queries, step), seen_keys.mT).flatten(0, 1).index_select(0, step.places)
        to_own = torch.bmm(queries[:, None], keys.mT)[:, 0]
        weights = softmax(torch.cat([to_prompt, to_own], -1))
        context = seen_keys.shape[1]
        output = (weights[:, context:, None] * values).sum(1)  # faster than a product of single rows
        from_prompt = torch.bmm(_spread(weights[:, :context], step), seen_values)
        output += from_prompt.flatten(0, 1).index_select(0, step.places)
        return output.view(len(projected), width)

    def _padded_places(self, prompt: Tensor, heads: int) -> tuple[Tensor, tuple[int, int]]:
        """Return where rows, of ascending prompts [R], stand in [P·heads, m], int64 [R·heads], and that shape."""
        prompts = len(self._prompt_nodes)
        counts = torch.bincount(prompt, minlength=prompts)
        largest = int(counts.max())
        within = torch.arange(len(prompt)) - (counts.cumsum(0) - counts)[prompt]
        places = (prompt[:, None] * heads + torch.arange(heads)) * largest + within[:, None]
        return places.flatten(), (prompts * heads, largest)


class _Step(NamedTuple):
    """Where things lie when a token has been added."""

    new: slice
    """The new nodes' keys and values in a layer's table."""
    slots: Tensor
    """Of the keys along each sequence, int64 [R·heads·t]; the values lie ``heads`` further on."""
    places: Tensor
    """Of the sequences among their prompt's, padded, int64 [R·heads]."""
    padded: tuple[int, int]
    """P·heads, and the most sequences that a prompt has."""


def _spread(values: Tensor, step: _Step) -> Tensor:
    """Put rows [R·heads, n] at their places among their prompt's, [P·heads, m, n], zeros elsewhere."""
    groups, most = step.padded
    spread = values.new_zeros(groups * most, values.shape[-1])
    return spread.index_copy_(0, step.places, values).view(groups, most, -1)
