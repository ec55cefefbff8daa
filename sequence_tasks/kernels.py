"""Two operations of the fast engine with their gradients written out, because the library's are slow at these shapes.

On a CPU the tanh form of GELU costs six times a bare tanh in torch 2.13, and scaled dot-product attention over rows of
ten or twenty keys several times its products. Tests compare both with the library's; docs/performance.md measures them.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

_LINEAR = 2 * math.sqrt(2 / math.pi)
_CUBIC = _LINEAR * 0.044715
_BLOCK = 64 * 1024
"""Elements that GELU takes at a time, so that its intermediate results stay in a core's cache."""
_VECTORISED = 16
"""From this length on torch's softmax over the last axis is fast."""


class _Gelu(torch.autograd.Function):
    """y = x·σ(v) with v = x·(a + b·x²), and dy/dx = σ + x·σ(1 − σ)·(a + 3b·x²)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        flat = x.reshape(-1)
        gates, result = torch.empty_like(flat), torch.empty_like(flat)
        for inputs, gate, output in _blocks(flat, gates, result):
            torch.mul(inputs, inputs, out=gate)
            gate.mul_(_CUBIC).add_(_LINEAR).mul_(inputs).sigmoid_()
            torch.mul(inputs, gate, out=output)
        ctx.save_for_backward(flat, gates)
        return result.view_as(x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        flat, gates = ctx.saved_tensors
        result = torch.empty_like(flat)
        for inputs, gate, outer, output in _blocks(flat, gates, gradient.reshape(-1), result):
            torch.mul(inputs, inputs, out=output)
            slope = torch.ops.aten.sigmoid_backward(inputs, gate)
            output.mul_(3 * _CUBIC).add_(_LINEAR).mul_(slope).add_(gate).mul_(outer)
        return result.view_as(gradient)


def _blocks(*tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    return zip(*(tensor.split(_BLOCK) for tensor in tensors), strict=True)


def gelu(x: Tensor) -> Tensor:
    """GELU in its tanh form, x/2·(1 + tanh(√(2/π)·(x + 0.044715·x³)))."""
    if torch.is_grad_enabled() or x.numel() > _BLOCK:
        return _Gelu.apply(x)
    return (x * x).mul_(_CUBIC).add_(_LINEAR).mul_(x).sigmoid_().mul_(x)


def softmax(scores: Tensor) -> Tensor:
    """Softmax over the last axis; may overwrite ``scores``."""
    if scores.shape[-1] >= _VECTORISED:
        return torch.softmax(scores, -1)
    weights = scores.sub_(scores.amax(-1, keepdim=True)).exp_()
    return weights.div_(weights.sum(-1, keepdim=True))


def _softmax_backward(gradient: Tensor, weights: Tensor) -> Tensor:
    if weights.shape[-1] >= _VECTORISED:
        return torch.ops.aten._softmax_backward_data(gradient, weights, -1, weights.dtype)
    product = gradient.mul_(weights)
    return torch.addcmul(product, weights, product.sum(-1, keepdim=True), value=-1)


@dataclass(frozen=True)
class Rows:
    """Sequences whose attention is computed together: G groups of m rows of Q nodes.

    A row's nodes see those of the row up to themselves, and C nodes that the whole group sees (its context). A *slot*
    is a place in the table [T·3·heads, width / heads] of the queries, keys and values of all T nodes, head by head.
    """

    groups: int
    rows: int
    length: int
    context: int
    slots: Tensor
    """Of the rows' queries, keys and values [G, heads, m, Q] each, then of the contexts' keys and values [G, heads, C]
    each, one after the other."""
    outputs: Tensor
    """Which outputs, counted over nodes and heads, these rows give, int64 [T'·heads]."""
    places: Tensor
    """Where each of them stands among the rows' own, [G·heads·m·Q], int64 [T'·heads]."""

    @staticmethod
    def locate(own: Tensor, context: Tensor, wanted: Tensor, at: Tensor, heads: int) -> "Rows":
        """Work out the slots and places.

        Args:
            own: nodes of the rows, int64 [G, m, Q].
            context: nodes of the contexts, int64 [G, C].
            wanted: outputs to be given, each the number of a node's output, int64 [T'].
            at: where each of them stands in ``own``, flattened, int64 [T'].
            heads: how many.
        """
        groups, rows, length = own.shape
        head = torch.arange(heads, device=own.device)

        def slots(nodes: Tensor, part: int) -> Tensor:
            by_head = head.view(1, heads, *(1,) * (nodes.ndim - 1))
            return ((nodes.unsqueeze(1) * 3 + part) * heads + by_head).flatten()

        group, within = at // (rows * length), at % (rows * length)
        return Rows(
            groups,
            rows,
            length,
            context.shape[1],
            torch.cat([slots(own, 0), slots(own, 1), slots(own, 2), slots(context, 1), slots(context, 2)]),
            (wanted[:, None] * heads + head).flatten(),
            ((group[:, None] * heads + head) * (rows * length) + within[:, None]).flatten(),
        )

    def counted_from(self, first: int, heads: int) -> "Rows":
        """Return the rows with their outputs counted from a later node."""
        return replace(self, outputs=self.outputs - first * heads)

    def parts(self, gathered: Tensor, heads: int) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """View what lies in the slots as queries, keys, values [G·heads·m, Q, d] and the contexts' [G·heads, C, d]."""
        own, seen = self.groups * heads * self.rows * self.length, self.groups * heads * self.context
        queries, keys, values, seen_keys, seen_values = gathered.split([own, own, own, seen, seen])
        depth = gathered.shape[-1]
        row = (self.groups * heads * self.rows, self.length, depth)
        group = (self.groups * heads, self.context, depth)
        return queries.view(row), keys.view(row), values.view(row), seen_keys.view(group), seen_values.view(group)

    def by_group(self, rows: Tensor, heads: int) -> Tensor:
        """View [G·heads·m, Q, n] as [G·heads, m·Q, n]."""
        return rows.view(self.groups * heads, self.rows * self.length, rows.shape[-1])


@dataclass(frozen=True)
class Layout:
    """All rows of a layer, and the way back from slots to nodes."""

    segments: tuple[Rows, ...]
    nodes: int
    """Whose outputs are given."""
    order: Tensor
    """The entries of all segments' slots, in the order of what they hold."""
    starts: Tensor
    """Where in ``order`` those of each slot of the table begin."""

    @staticmethod
    def of(segments: tuple[Rows, ...], nodes: int, table: int) -> "Layout":
        """Join segments; ``table`` is how many slots there are."""
        slots = torch.cat([rows.slots for rows in segments])
        counts = torch.bincount(slots, minlength=table)
        order = slots.int().argsort(stable=True)  # of 32 bits it takes a third of the time
        return Layout(segments, nodes, order, counts.cumsum(0) - counts)


class _Attention(torch.autograd.Function):
    """Attention of a layer, segment by segment; what was gathered is kept for the backward pass."""

    @staticmethod
    def forward(ctx: Any, projected: Tensor, heads: int, layout: Layout) -> Tensor:
        width = projected.shape[1] // 3
        depth = width // heads
        table = projected.view(-1, depth)
        result = projected.new_empty(layout.nodes * heads, depth)
        saved = []
        for rows in layout.segments:
            gathered = table.index_select(0, rows.slots)
            queries, keys, values, seen_keys, seen_values = rows.parts(gathered, heads)
            queries.mul_(depth**-0.5)
            shared = torch.bmm(rows.by_group(queries, heads), seen_keys.mT)
            own = torch.baddbmm(_causal(rows.length, queries), queries, keys.mT)
            weights = softmax(torch.cat([shared.view(*own.shape[:2], -1), own], -1))
            output = torch.bmm(weights[..., rows.context :], values)
            rows.by_group(output, heads).baddbmm_(rows.by_group(weights, heads)[..., : rows.context], seen_values)
            result.index_copy_(0, rows.outputs, output.view(-1, depth).index_select(0, rows.places))
            saved += [gathered, weights]
        ctx.heads, ctx.layout = heads, layout
        ctx.save_for_backward(*saved)
        return result.view(layout.nodes, width)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        heads, layout = ctx.heads, ctx.layout
        saved = ctx.saved_tensors
        depth = saved[0].shape[-1]
        gradient = gradient.reshape(-1, depth)
        found = gradient.new_empty(len(layout.order), depth)
        first = 0
        for index, rows in enumerate(layout.segments):
            gathered, weights = saved[2 * index : 2 * index + 2]
            queries, keys, values, seen_keys, seen_values = rows.parts(gathered, heads)
            outer = torch.zeros_like(queries)
            outer.view(-1, depth).index_copy_(0, rows.places, gradient.index_select(0, rows.outputs))
            outer_by_group = rows.by_group(outer, heads)
            of_shared = torch.bmm(outer_by_group, seen_values.mT)
            of_own = torch.bmm(outer, values.mT)
            scores = _softmax_backward(torch.cat([of_shared.view(*of_own.shape[:2], -1), of_own], -1), weights)
            own, shared = scores[..., rows.context :], rows.by_group(scores, heads)[..., : rows.context]
            here = found[first : first + len(rows.slots)]
            first += len(rows.slots)
            of_queries, of_keys, of_values, of_seen_keys, of_seen_values = rows.parts(here, heads)
            torch.bmm(own, keys, out=of_queries)
            rows.by_group(of_queries, heads).baddbmm_(shared, seen_keys)
            of_queries.mul_(depth**-0.5)
            torch.bmm(own.mT, queries, out=of_keys)
            torch.bmm(weights[..., rows.context :].mT, outer, out=of_values)
            torch.bmm(shared.mT, rows.by_group(queries, heads), out=of_seen_keys)
            torch.bmm(rows.by_group(weights, heads)[..., : rows.context].mT, outer_by_group, out=of_seen_values)
        summed = F.embedding_bag(layout.order, found, layout.starts, mode="sum")
        return summed.view(-1, 3 * heads * depth), None, None


def attention(projected: Tensor, heads: int, layout: Layout) -> Tensor:
    """Scaled dot-product attention at the nodes of a layout, [T', width].

    Args:
        projected: queries, keys and values of all nodes, [T, 3·width].
        heads: how many.
        layout: who sees whom.
    """
    return _Attention.apply(projected, heads, layout)


def _causal(length: int, like: Tensor) -> Tensor:
    """Return 0 where a query may see a key of its row and −∞ elsewhere, [Q, Q]."""
    return like.new_full((length, length), -math.inf).triu_(1)
