"""The plain way, kept as the oracle of tests and benchmark: no cache, no sharing, every sequence on its own.

It does what the author's artefact does (arXiv 2604.06159): shapes are fixed, so every sampled token costs a forward
pass over a whole sequence of 2H tokens; every candidate is trained with a prompt of its own; a token-level group runs
one whole sequence per prefix state. Whatever stands after a position cannot be seen from it.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from common.draws import categorical
from sequence_tasks.policy import Architecture, Parameters, attend, embed, finish_layer, log_probabilities, project

SKIPS, STACKS = False, False


def sequence_log_probabilities(p: Parameters, shape: Architecture, sequences: Tensor) -> Tensor:
    """Return log π of the next token after every position of whole sequences, [N, L, V] from int64 [N, L]."""
    count, length = sequences.shape
    positions = torch.arange(length, device=sequences.device).expand(count, length).flatten()
    causal = torch.ones(length, length, dtype=torch.bool, device=sequences.device).tril()
    hidden = embed(p, sequences.flatten(), positions)
    for layer in range(shape.layers):
        queries, keys, values = project(p, layer, hidden).view(count, length, -1).chunk(3, -1)
        hidden = finish_layer(p, layer, hidden, attend(shape.heads, queries, keys, values, causal).flatten(0, 1))
    return log_probabilities(p, hidden).view(count, length, -1)


@torch.no_grad()
def sample(p: Parameters, shape: Architecture, prompts: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Sample completions token by token, each from a pass over its whole sequence.

    Args:
        p: one seed's parameters.
        shape: the architecture.
        prompts: int64 [B, H].
        noise: uniform, [B, K, H].

    Returns:
        Tokens, int64 [B, K, H], and log π over the vocabulary where they were drawn, [B, K, H, V].
    """
    batch, candidates, length = noise.shape
    first = prompts.shape[1]
    sequences = prompts.new_zeros(batch * candidates, first + length)
    sequences[:, :first] = prompts.repeat_interleave(candidates, 0)
    log_probs = []
    for position in range(length):
        logp = sequence_log_probabilities(p, shape, sequences)[:, first + position - 1]
        sequences[:, first + position] = categorical(logp, noise[:, :, position].flatten())
        log_probs.append(logp)
    tokens = sequences[:, first:].view(batch, candidates, length)
    return tokens, torch.stack(log_probs, 1).view(batch, candidates, length, -1)


@dataclass(frozen=True)
class Sequences:
    """Prompts, int64 [B, H], and their completions, int64 [B, K, H]."""

    prompts: Tensor
    tokens: Tensor


def lay_out(shape: Architecture, prompts: Tensor, tokens: Tensor) -> Sequences:
    """Keep prompts and completions as they are."""
    return Sequences(prompts, tokens)


def token_log_probabilities(p: Parameters, shape: Architecture, sequences: Sequences) -> Tensor:
    """Return log π of every emitted token, [B, K, H], each candidate run with a prompt of its own; differentiable."""
    prompts, tokens = sequences.prompts, sequences.tokens
    batch, candidates, length = tokens.shape
    whole = torch.cat([prompts[:, None].expand(batch, candidates, -1), tokens], -1).flatten(0, 1)
    logp = sequence_log_probabilities(p, shape, whole)[:, prompts.shape[1] - 1 : -1]
    return logp.gather(-1, whole[:, prompts.shape[1] :, None]).view(batch, candidates, length)


def state_log_probabilities(p: Parameters, shape: Architecture, sequences: Sequences) -> Tensor:
    """Return log π over the vocabulary at every prefix state of one trajectory a prompt, [B, H, V]; differentiable.

    One sequence per state: B·H of them.
    """
    batch, _, length = sequences.tokens.shape
    whole = torch.cat([sequences.prompts, sequences.tokens[:, 0]], 1).repeat_interleave(length, 0)
    logp = sequence_log_probabilities(p, shape, whole).view(batch, length, whole.shape[1], -1)
    state = torch.arange(length, device=logp.device)
    return logp[:, state, sequences.prompts.shape[1] - 1 + state]
