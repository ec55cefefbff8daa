"""The operations written out for speed against the library's: values and gradients."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from sequence_tasks import kernels, shared
from sequence_tasks.kernels import Layout, Rows, attention, gelu, softmax
from sequence_tasks.policy import Architecture

FLOATS = [torch.float32, torch.float64]


def tolerance(dtype):
    """A few roundings of numbers up to 16."""
    return {"rtol": 1e-6, "atol": 1e-5} if dtype == torch.float32 else {"rtol": 1e-12, "atol": 1e-12}


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", [(3, 5), (1, 1), (0, 4), (300, 257)], ids=str)
def test_gelu_is_the_tanh_form(shape, dtype, monkeypatch):
    """Also where it is cut into several blocks."""
    monkeypatch.setattr(kernels, "_BLOCK", 1000)
    values = 4 * torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(dtype)
    outer = torch.randn(shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64).to(dtype)
    found = []
    for function in (gelu, lambda x: F.gelu(x, approximate="tanh")):
        x = values.clone().requires_grad_()
        y = function(x)
        found.append((y.detach(), *torch.autograd.grad(y, x, outer)))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, **tolerance(dtype))
    with torch.no_grad():
        torch.testing.assert_close(gelu(values), found[1][0], **tolerance(dtype))
        torch.testing.assert_close(gelu(values.T), found[1][0].T, **tolerance(dtype))  # not contiguous


def test_gelu_at_the_real_block_and_of_a_view():
    """A float32 sum of terms up to 4 rounds to 1e-6; one element too many makes a second block."""
    for size in (kernels._BLOCK - 1, kernels._BLOCK, kernels._BLOCK + 1):
        base = torch.randn(2 * size, generator=torch.Generator().manual_seed(0)).requires_grad_()
        view = base[::2]
        assert not view.is_contiguous()
        outer = torch.randn(1, generator=torch.Generator().manual_seed(1)).expand(size)  # not contiguous either
        found, expected = (
            torch.autograd.grad(function(view), base, outer, retain_graph=True)[0]
            for function in (gelu, lambda x: F.gelu(x, approximate="tanh"))
        )
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
        with torch.no_grad():
            before = view.clone()
            torch.testing.assert_close(gelu(view), F.gelu(view, approximate="tanh"), rtol=1e-6, atol=1e-6)
            assert torch.equal(view, before)


def test_gelu_far_out():
    x = torch.tensor([-1e4, -50.0, 0.0, 50.0, 1e4], requires_grad=True)
    y = gelu(x)
    assert y.tolist() == [0, 0, 0, 50, 1e4]
    assert torch.autograd.grad(y.sum(), x)[0].tolist() == [0, 0, 0.5, 1, 1]


@pytest.mark.parametrize("length", [1, 2, 9, 15, 16, 17, 40])
@pytest.mark.parametrize("size", [1.0, 1e4])
def test_softmax_and_its_gradient(length, size):
    scores = size * torch.randn(7, 3, length, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    scores[0, 0, length // 2 :] = -torch.inf if length > 1 else 0.0
    outer = torch.randn(scores.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    leaf = scores.clone().requires_grad_()
    expected = torch.softmax(leaf, -1)
    (gradient,) = torch.autograd.grad(expected, leaf, outer)
    weights = softmax(scores.clone())
    torch.testing.assert_close(weights, expected.detach(), rtol=1e-12, atol=1e-15)
    torch.testing.assert_close(kernels._softmax_backward(outer.clone(), weights), gradient, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("length", [15, 16])
def test_softmax_of_huge_scores_in_float32(length):
    """exp overflows from 89 on; a tie at the top is shared."""
    scores = torch.full((2, length), -3e38)
    scores[0, :2] = 3e38
    weights = softmax(scores)
    assert weights[0].tolist() == [0.5, 0.5] + [0.0] * (length - 2)
    torch.testing.assert_close(weights[1], torch.full((length,), 1 / length))


def layout_of(sizes, heads):
    """Rows of several segments over a table whose nodes some rows share; their outputs at every own node once."""
    segments, outputs, table = [], 0, 0
    inputs = []
    for groups, rows, length, context in sizes:
        own = table + torch.arange(groups * rows * length).view(groups, rows, length)
        seen = own.max() + 1 + torch.arange(groups * context).view(groups, context)
        table = int(own.max()) + 1 + groups * context
        if rows > 1:
            own[:, 1, 0] = own[:, 0, 0]  # two rows begin with the same node
        nodes = own.flatten().unique()
        at = torch.stack([(own.flatten() == node).nonzero()[0, 0] for node in nodes])
        wanted = torch.arange(outputs, outputs + len(nodes))
        outputs += len(nodes)
        segments.append(Rows.locate(own, seen, wanted, at, heads))
        inputs.append((own, seen, at))
    return Layout.of(tuple(segments), outputs, 3 * heads * table), inputs, table


def written_out(projected, heads, inputs):
    """The same with the library's attention and explicit masks, row by row."""
    queries, keys, values = projected.chunk(3, -1)
    outputs = []
    for own, seen, at in inputs:
        groups, rows, length = own.shape
        found = []
        for group in range(groups):
            for row in range(rows):
                visible = torch.cat([seen[group], own[group, row]])
                mask = torch.ones(length, len(visible), dtype=torch.bool).tril(seen.shape[1])
                q, k, v = (
                    each[index].unflatten(-1, (heads, -1)).transpose(0, 1)
                    for each, index in ((queries, own[group, row]), (keys, visible), (values, visible))
                )
                attended = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
                found.append(attended.transpose(0, 1).flatten(1))
        outputs.append(torch.cat(found)[at])
    return torch.cat(outputs)


@pytest.mark.parametrize("heads", [1, 2, 4])
@pytest.mark.parametrize(
    "sizes",
    [[(1, 1, 1, 0)], [(1, 5, 4, 0)], [(3, 1, 1, 4)], [(3, 4, 5, 6)], [(1, 3, 10, 0), (2, 4, 9, 10), (1, 2, 9, 10)]],
    ids=str,
)
def test_attention_is_the_librarys(sizes, heads):
    layout, inputs, nodes = layout_of(sizes, heads)
    projected = torch.randn(nodes, 24, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = []
    for function in (lambda x: attention(x, heads, layout), lambda x: written_out(x, heads, inputs)):
        leaf = projected.clone().requires_grad_()
        output = function(leaf)
        outer = torch.randn(output.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        found.append((output.detach(), *torch.autograd.grad(output, leaf, outer)))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-12)


def test_gradients_by_differences():
    layout, _, nodes = layout_of([(2, 2, 2, 2)], 2)
    projected = torch.randn(nodes, 12, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda x: attention(x, 2, layout), projected.requires_grad_())
    assert torch.autograd.gradcheck(gelu, torch.randn(20, dtype=torch.float64, requires_grad=True))


@st.composite
def tries(draw):
    """V, heads, prompts [B, H] and completions [B, K, H] with many repetitions: all, some, or none on purpose."""
    vocabulary, length = draw(st.integers(2, 5)), draw(st.integers(1, 6))
    batch, candidates = draw(st.integers(1, 6)), draw(st.integers(1, 9))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32)))
    prompts = torch.randint(vocabulary, (batch, length), generator=generator)
    tokens = torch.randint(vocabulary, (batch, candidates, length), generator=generator)
    if draw(st.booleans()):
        prompts = prompts[torch.randint(draw(st.integers(1, batch)), (batch,), generator=generator)]
    if draw(st.booleans()):
        tokens = tokens[:, torch.randint(draw(st.integers(1, candidates)), (candidates,), generator=generator)]
    return vocabulary, draw(st.sampled_from([1, 2, 4])), prompts, tokens


def beginnings(sequences, trie):
    """The tokens up to each node, from the sequences themselves."""
    return [tuple(sequences[row, : end + 1].tolist()) for row, end in zip(trie.first, trie.positions, strict=True)]


@settings(deadline=None, max_examples=60, derandomize=True)
@given(tries())
def test_attention_over_random_tries(drawn):
    """A node sees the nodes whose beginning begins its own, and nothing else: the library's, with that as its mask."""
    vocabulary, heads, prompts, tokens = drawn
    batch, candidates, length = tokens.shape
    laid_out = shared.lay_out(Architecture(vocabulary, 2 * length, heads=heads), prompts, tokens)
    sequences = torch.cat([prompts[:, None].expand(batch, candidates, -1), tokens], -1).flatten(0, 1)
    nodes = beginnings(sequences, laid_out.trie)
    assert set(nodes) == {tuple(row[:end]) for row in sequences.tolist() for end in range(1, 2 * length)}
    assert len(set(nodes)) == len(nodes)
    mask = torch.tensor([[above == node[: len(above)] for above in nodes] for node in nodes])
    generator = torch.Generator().manual_seed(0)
    projected = torch.randn(len(nodes), 3 * 4 * heads, generator=generator, dtype=torch.float64)
    outer = torch.randn(len(nodes), 4 * heads, generator=generator, dtype=torch.float64)
    for layout, first in ((laid_out.every_node, 0), (laid_out.emitting_nodes, laid_out.emitting)):
        leaf = projected.clone().requires_grad_()
        output = attention(leaf, heads, layout)
        (gradient,) = torch.autograd.grad(output, leaf, outer[first:], retain_graph=True)
        (again,) = torch.autograd.grad(output, leaf, outer[first:])
        assert torch.equal(gradient, again)  # nothing that was kept is written over
        q, k, v = (each.unflatten(-1, (heads, -1)).transpose(0, 1) for each in leaf.chunk(3, -1))
        expected = F.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(0, 1).flatten(1)[first:]
        torch.testing.assert_close(output, expected, rtol=1e-10, atol=1e-12)
        (wanted,) = torch.autograd.grad(expected, leaf, outer[first:])
        assert (gradient - wanted).norm() <= 1e-10 * wanted.norm() + 1e-12
