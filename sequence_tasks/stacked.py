"""The static way: all seeds in one program of fixed shapes, for GPUs, and for sampling single trajectories.

Keys and values are cached while sampling and a prompt is computed once for all its candidates, as in
``sequence_tasks.shared``; but equal candidates are computed again and nothing depends on what was sampled, so that
every episode is the same sequence of operations. Parameters and everything else carry the seeds on the first axis.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from common.draws import categorical
from sequence_tasks.policy import NORM_EPSILON, Architecture, Parameters, gelu

SKIPS, STACKS = False, True


@dataclass(frozen=True)
class Sequences:
    """Prompts, int64 [S, B, H], and their completions, int64 [S, B, K, H]."""

    prompts: Tensor
    tokens: Tensor


def lay_out(shape: Architecture, prompts: Tensor, tokens: Tensor) -> Sequences:
    """Keep prompts and completions as they are."""
    return Sequences(prompts, tokens)


def token_log_probabilities(p: Parameters, shape: Architecture, sequences: Sequences) -> Tensor:
    """Return log π of every emitted token, [S, B, K, H]; differentiable."""
    return _log_probabilities(p, shape, sequences).gather(-1, sequences.tokens[..., None])[..., 0]


def state_log_probabilities(p: Parameters, shape: Architecture, sequences: Sequences) -> Tensor:
    """Return log π over the vocabulary at every state of one trajectory a prompt, [S, B, H, V]; differentiable."""
    return _log_probabilities(p, shape, sequences)[:, :, 0]


def _log_probabilities(p: Parameters, shape: Architecture, sequences: Sequences) -> Tensor:
    """Return log π over the vocabulary wherever a token is emitted, [S, B, K, H, V]: prompts once, candidates each."""
    seeds, batch, candidates, length = sequences.tokens.shape
    inputs = sequences.tokens[..., :-1].reshape(seeds, batch * candidates, length - 1)
    prompt = embed(p, sequences.prompts, 0)
    own = embed(p, inputs, length)
    for layer in range(shape.layers):
        queries, keys, values = _project(p, shape, layer, prompt)
        attended = _attend(queries, keys, values, None, None)
        prompt = _finish(p, layer, prompt, attended)
        if length > 1:
            own_queries, own_keys, own_values = _project(p, shape, layer, own)
            attended = _attend(own_queries, own_keys, own_values, keys, values)
            own = _finish(p, layer, own, attended)
    after_prompt = prompt[:, :, None, -1:].expand(-1, -1, candidates, -1, -1)
    hidden = torch.cat([after_prompt, own.unflatten(1, (batch, candidates))], 3)
    return output(p, hidden.flatten(1, 3)).view(seeds, batch, candidates, length, -1)


@torch.no_grad()
def sample(p: Parameters, shape: Architecture, prompts: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Sample completions with cached keys and values; the same tokens as ``plain.sample`` from the same noise.

    Args:
        p: parameters, [S, ...] each.
        shape: the architecture.
        prompts: int64 [S, B, H].
        noise: uniform, [S, B, K, H].

    Returns:
        Tokens, int64 [S, B, K, H], and log π over the vocabulary where they were drawn, [S, B, K, H, V].
    """
    seeds, batch, candidates, length = noise.shape
    hidden = embed(p, prompts, 0)
    seen, cache = [], []
    for layer in range(shape.layers):
        queries, keys, values = _project(p, shape, layer, hidden)
        seen.append((keys, values))
        cache.append(keys.new_zeros(2, seeds, batch * candidates, shape.heads, length - 1, keys.shape[-1]))
        hidden = _finish(p, layer, hidden, _attend(queries, keys, values, None, None))
    logp = output(p, hidden[:, :, -1]).repeat_interleave(candidates, 1)
    tokens, log_probs = [], []
    for position in range(length):
        log_probs.append(logp)
        tokens.append(categorical(logp, noise[..., position].flatten(1)))
        if position == length - 1:
            break
        hidden = embed(p, tokens[-1][..., None], length + position)
        for layer in range(shape.layers):
            queries, keys, values = _project(p, shape, layer, hidden)
            cache[layer][0, ..., position, :] = keys[..., 0, :]
            cache[layer][1, ..., position, :] = values[..., 0, :]
            own_keys, own_values = cache[layer][..., : position + 1, :]
            hidden = _finish(p, layer, hidden, _attend(queries, own_keys, own_values, *seen[layer], last=True))
        logp = output(p, hidden[:, :, 0])
    shaped = (seeds, batch, candidates, length)
    return torch.stack(tokens, -1).view(shaped), torch.stack(log_probs, 2).view(*shaped, -1)


def embed(p: Parameters, tokens: Tensor, first: int) -> Tensor:
    """Embed tokens [S, N, L] that stand at positions ``first``, ``first`` + 1, ..., as [S, N, L, width]."""
    seeds, _, length = tokens.shape
    vocabulary, width = p["token"].shape[1:]
    offset = vocabulary * torch.arange(seeds, device=tokens.device).view(-1, 1, 1)
    embedded = F.embedding(tokens + offset, p["token"].reshape(seeds * vocabulary, width))
    return embedded + p["position"][:, None, first : first + length]


def output(p: Parameters, hidden: Tensor) -> Tensor:
    """Return log π over the vocabulary, [S, N, V], from the residual stream [S, N, width]."""
    return torch.log_softmax(_linear(p["output.weight"], p["output.bias"], _norm(p, "final", hidden)), -1)


def _project(p: Parameters, shape: Architecture, layer: int, hidden: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return queries, keys and values of [S, N, L, width], each [S, N, heads, L, d]."""
    normed = _norm(p, f"{layer}.before_attention", hidden)
    names = ("query", "key", "value")
    weight = torch.cat([p[f"{layer}.{name}.weight"].flatten(2) for name in names], 2)
    bias = torch.cat([p[f"{layer}.{name}.bias"].flatten(1) for name in names], 1)
    projected = _linear(weight, bias, normed.flatten(1, 2)).view(*hidden.shape[:3], 3, shape.heads, -1)
    queries, keys, values = projected.permute(3, 0, 1, 4, 2, 5).unbind(0)
    return queries, keys, values


def _attend(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    seen_keys: Tensor | None,
    seen_values: Tensor | None,
    last: bool = False,
) -> Tensor:
    """Attend to one's own row up to oneself and, if given, to all of the prompt; return [S, N, Q, width].

    Args:
        queries: [S, N, heads, Q, d].
        keys: of the own rows, [S, N, heads, L, d].
        values: the same.
        seen_keys: of the prompts, [S, B, heads, H, d], each seen by N / B rows.
        seen_values: the same.
        last: the queries are those of the last position, which sees its whole row.
    """
    seeds, _, heads, asked, depth = queries.shape
    queries = queries * depth**-0.5
    scores = queries @ keys.mT
    if not last:
        ahead = torch.ones(asked, asked, dtype=torch.bool, device=queries.device).triu(1)
        scores = scores.masked_fill(ahead, -torch.inf)
    if seen_keys is None or seen_values is None:
        attended = torch.softmax(scores, -1) @ values
    else:
        groups = (seeds, seen_keys.shape[1], -1, heads, asked)
        by_prompt = queries.unflatten(1, groups[1:3]).transpose(2, 3).flatten(3, 4)  # [S, B, heads, K·Q, d]
        to_prompt = (by_prompt @ seen_keys.mT).unflatten(3, (-1, asked)).transpose(2, 3).flatten(1, 2)
        weights = torch.softmax(torch.cat([to_prompt, scores], -1), -1)
        context = seen_keys.shape[-2]
        spread = weights[..., :context].unflatten(1, groups[1:3]).transpose(2, 3).flatten(3, 4)
        from_prompt = (spread @ seen_values).unflatten(3, (-1, asked)).transpose(2, 3).flatten(1, 2)
        attended = weights[..., context:] @ values + from_prompt
    return attended.transpose(2, 3).flatten(3)


def _finish(p: Parameters, layer: int, hidden: Tensor, attended: Tensor) -> Tensor:
    """Add attention's output and the feed-forward block to the residual stream, [S, N, L, width]."""
    rows = attended.flatten(1, 2)
    weight = p[f"{layer}.attended.weight"].flatten(1, 2)
    stream = hidden.flatten(1, 2) + _linear(weight, p[f"{layer}.attended.bias"], rows)
    normed = _norm(p, f"{layer}.before_feed_forward", stream)
    inner = gelu(_linear(p[f"{layer}.expand.weight"], p[f"{layer}.expand.bias"], normed))
    stream = stream + _linear(p[f"{layer}.contract.weight"], p[f"{layer}.contract.bias"], inner)
    return stream.view_as(hidden)


def _linear(weight: Tensor, bias: Tensor, rows: Tensor) -> Tensor:
    """Return rows·W + b of every seed, [S, N, out] from [S, N, in]."""
    return torch.baddbmm(bias[:, None], rows, weight)


def _norm(p: Parameters, name: str, hidden: Tensor) -> Tensor:
    between = (1,) * (hidden.ndim - 2)
    scale, bias = (p[f"{name}.{part}"].view(len(hidden), *between, -1) for part in ("scale", "bias"))
    return F.layer_norm(hidden, hidden.shape[-1:], eps=NORM_EPSILON) * scale + bias
