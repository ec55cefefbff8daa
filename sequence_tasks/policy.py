"""The small decoder-only transformer: its parameters, stacked over seeds, and the parts of a layer for one seed.

Pre-norm LayerNorm, learned positions, GELU (tanh form), biases everywhere. Weights are laid out [in, out]; the
attention's as [width, heads, width / heads] and back, as in the author's artefact, whose optimiser grouping goes by the
number of axes (arXiv 2604.06159; PAPER notes on the optimiser).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from common import draws

Parameters = Mapping[str, Tensor]
"""One seed's parameters by name."""

NORM_EPSILON = 1e-6


@dataclass(frozen=True)
class Architecture:
    """Sizes of the transformer."""

    vocabulary: int
    positions: int
    """2H: prompt and output."""
    width: int = 64
    layers: int = 2
    feed_forward: int = 256
    heads: int = 2

    def __post_init__(self) -> None:
        """Raise ValueError for heads that do not divide the width."""
        if self.heads < 1 or self.width % self.heads:
            raise ValueError(f"heads: {self.heads} does not divide width={self.width}")

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return every parameter's shape by name."""
        head = (self.heads, self.width // self.heads)
        shapes: dict[str, tuple[int, ...]] = {
            "token": (self.vocabulary, self.width),
            "position": (self.positions, self.width),
        }
        for layer in range(self.layers):
            for name in ("query", "key", "value"):
                shapes[f"{layer}.{name}.weight"] = (self.width, *head)
                shapes[f"{layer}.{name}.bias"] = head
            shapes[f"{layer}.attended.weight"] = (*head, self.width)
            shapes[f"{layer}.attended.bias"] = (self.width,)
            shapes[f"{layer}.expand.weight"] = (self.width, self.feed_forward)
            shapes[f"{layer}.expand.bias"] = (self.feed_forward,)
            shapes[f"{layer}.contract.weight"] = (self.feed_forward, self.width)
            shapes[f"{layer}.contract.bias"] = (self.width,)
            for norm in ("before_attention", "before_feed_forward"):
                shapes[f"{layer}.{norm}.scale"] = (self.width,)
                shapes[f"{layer}.{norm}.bias"] = (self.width,)
        shapes["final.scale"] = shapes["final.bias"] = (self.width,)
        shapes["output.weight"] = (self.width, self.vocabulary)
        shapes["output.bias"] = (self.vocabulary,)
        return shapes

    def initial(self, experiment_seed: int, seeds: Sequence[int], dtype: torch.dtype) -> dict[str, Tensor]:
        """Draw initial parameters, [S, *shape] each.

        Weights are truncated-normal LeCun (variance 1 / fan-in), biases 0, LayerNorm scales 1; token embeddings have
        standard deviation 1/√width, positions 0.02 (both normal).
        """
        parameters = {}
        for name, shape in self.shapes().items():
            if name in ("token", "position"):
                spread = self.width**-0.5 if name == "token" else 0.02
                values = spread * draws.normal(experiment_seed, seeds, f"initial {name}", 0, shape)
            elif name.endswith("weight"):
                fan_in = self.feed_forward if "contract" in name else self.width
                values = draws.truncated_normal(experiment_seed, seeds, f"initial {name}", shape, variance=1 / fan_in)
            else:
                values = torch.full((len(seeds), *shape), float(name.endswith("scale")))
            parameters[name] = values.to(dtype)
        return parameters

    def matrices(self, grouping: str) -> set[str]:
        """Return the names of the parameters that Muon updates; the rest are Adam's.

        ``artefact``: every parameter of two axes, which takes in embeddings, the output layer and the biases of query,
        key and value, and leaves out the attention's weights (three axes). ``standard``: the matrices of attention and
        feed-forward layers.
        """
        shapes = self.shapes()
        if grouping == "artefact":
            return {name for name, shape in shapes.items() if len(shape) == 2}
        if grouping == "standard":
            return {name for name in shapes if name[0].isdigit() and name.endswith("weight")}
        raise ValueError(f"grouping: {grouping!r} is not allowed; choose artefact or standard")

    def as_matrices(self, parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """View stacked parameters so that every weight has two axes, [S, in, out]; for Muon under ``standard``."""
        views = {}
        for name, value in parameters.items():
            views[name] = value.view(len(value), self.width, self.width) if value.ndim == 4 else value
        return views


def embed(p: Parameters, tokens: Tensor, positions: Tensor) -> Tensor:
    """Embed tokens at positions, both int64 [T], as [T, width]."""
    return F.embedding(tokens, p["token"]) + F.embedding(positions, p["position"])


def project(p: Parameters, layer: int, hidden: Tensor) -> Tensor:
    """Normalise the residual stream [T, width] and project it to queries, keys and values, [T, 3·width]."""
    normed = _norm(p, f"{layer}.before_attention", hidden)
    weight = torch.cat([p[f"{layer}.{name}.weight"].flatten(1) for name in ("query", "key", "value")], 1)
    bias = torch.cat([p[f"{layer}.{name}.bias"].flatten() for name in ("query", "key", "value")])
    return torch.addmm(bias, normed, weight)


def gelu(x: Tensor) -> Tensor:
    """GELU in its tanh form."""
    return F.gelu(x, approximate="tanh")


def finish_layer(
    p: Parameters, layer: int, hidden: Tensor, attended: Tensor, activation: Callable[[Tensor], Tensor] = gelu
) -> Tensor:
    """Add attention's output and the feed-forward block to the residual stream, all [T, width].

    Args:
        p: one seed's parameters.
        layer: its number.
        hidden: the residual stream.
        attended: attention's output.
        activation: ``gelu``, or a faster way to compute it.
    """
    hidden = hidden + torch.addmm(p[f"{layer}.attended.bias"], attended, p[f"{layer}.attended.weight"].flatten(0, 1))
    normed = _norm(p, f"{layer}.before_feed_forward", hidden)
    inner = activation(torch.addmm(p[f"{layer}.expand.bias"], normed, p[f"{layer}.expand.weight"]))
    return hidden + torch.addmm(p[f"{layer}.contract.bias"], inner, p[f"{layer}.contract.weight"])


def log_probabilities(p: Parameters, hidden: Tensor) -> Tensor:
    """Return log π over the vocabulary, [T, V], from the residual stream [T, width]."""
    return torch.log_softmax(torch.addmm(p["output.bias"], _norm(p, "final", hidden), p["output.weight"]), -1)


def attend(heads: int, queries: Tensor, keys: Tensor, values: Tensor, allowed: Tensor | None = None) -> Tensor:
    """Scaled dot-product attention over several heads, [N, Q, width].

    Args:
        heads: how many.
        queries: [N, Q, width].
        keys: [N, L, width].
        values: [N, L, width].
        allowed: which keys a query may see, bool broadcastable to [N, 1, Q, L]; None is all.
    """
    q, k, v = (each.unflatten(-1, (heads, -1)).transpose(1, 2) for each in (queries, keys, values))
    return F.scaled_dot_product_attention(q, k, v, attn_mask=allowed).transpose(1, 2).flatten(2)


def _norm(p: Parameters, name: str, hidden: Tensor) -> Tensor:
    return F.layer_norm(hidden, hidden.shape[-1:], p[f"{name}.scale"], p[f"{name}.bias"], NORM_EPSILON)
