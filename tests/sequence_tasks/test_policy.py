"""The transformer: against torch's own layers, its initial weights, and the optimiser's grouping."""

import pytest
import torch
from torch import nn

from sequence_tasks.plain import sequence_log_probabilities
from sequence_tasks.policy import Architecture


def reference(p, shape, sequences):
    """The same network from ``torch.nn`` layers."""
    width = shape.width
    positions = torch.arange(sequences.shape[1])
    x = p["token"][sequences] + p["position"][positions]
    causal = nn.Transformer.generate_square_subsequent_mask(sequences.shape[1], dtype=x.dtype)
    for i in range(shape.layers):
        layer = nn.TransformerEncoderLayer(
            width, shape.heads, shape.feed_forward, 0.0, nn.GELU("tanh"), 1e-6, batch_first=True, norm_first=True
        ).to(x.dtype)
        qkv = [p[f"{i}.{name}.weight"].reshape(width, width).T for name in ("query", "key", "value")]
        state = {
            "self_attn.in_proj_weight": torch.cat(qkv),
            "self_attn.in_proj_bias": torch.cat([p[f"{i}.{n}.bias"].flatten() for n in ("query", "key", "value")]),
            "self_attn.out_proj.weight": p[f"{i}.attended.weight"].reshape(width, width).T,
            "self_attn.out_proj.bias": p[f"{i}.attended.bias"],
            "linear1.weight": p[f"{i}.expand.weight"].T,
            "linear1.bias": p[f"{i}.expand.bias"],
            "linear2.weight": p[f"{i}.contract.weight"].T,
            "linear2.bias": p[f"{i}.contract.bias"],
            "norm1.weight": p[f"{i}.before_attention.scale"],
            "norm1.bias": p[f"{i}.before_attention.bias"],
            "norm2.weight": p[f"{i}.before_feed_forward.scale"],
            "norm2.bias": p[f"{i}.before_feed_forward.bias"],
        }
        layer.load_state_dict(state)
        x = layer.train()(x, src_mask=causal)
    x = torch.nn.functional.layer_norm(x, (width,), p["final.scale"], p["final.bias"], 1e-6)
    return (x @ p["output.weight"] + p["output.bias"]).log_softmax(-1)


@pytest.mark.parametrize("heads", [2, 4])
def test_is_torchs_pre_norm_transformer(heads):
    shape = Architecture(5, 8, heads=heads)
    generator = torch.Generator().manual_seed(0)
    p = {
        name: value[0] + 0.1 * torch.randn(value[0].shape, generator=generator, dtype=torch.float64)
        for name, value in shape.initial(0, [0], torch.float64).items()
    }
    sequences = torch.randint(5, (7, 8), generator=generator)
    torch.testing.assert_close(sequence_log_probabilities(p, shape, sequences), reference(p, shape, sequences))


def test_initial_weights_are_a_seeds_own_and_of_the_stated_variance():
    shape = Architecture(16, 20)
    together = shape.initial(0, range(4), torch.float64)
    alone = shape.initial(0, [2], torch.float64)
    for name, value in together.items():
        assert torch.equal(value[2:3], alone[name])
        if value[0].numel() < 500:
            continue
        variance = {"token": 1 / 64, "position": 0.02**2}.get(name, 1 / (256 if "contract" in name else 64))
        assert value.var().item() == pytest.approx(variance, rel=5 * (2 / value.numel()) ** 0.5)
        assert not torch.equal(value[0], value[1])
    assert all((value == 0).all() for name, value in together.items() if name.endswith("bias"))
    assert all((value == 1).all() for name, value in together.items() if name.endswith("scale"))


def test_groupings():
    shape = Architecture(2, 20)
    artefact, standard = shape.matrices("artefact"), shape.matrices("standard")
    assert {"token", "position", "output.weight", "0.query.bias", "1.expand.weight"} <= artefact
    assert not any("query.weight" in name or "attended" in name or "scale" in name for name in artefact)
    assert len(artefact) == 3 + 2 * 5
    assert standard == {
        f"{i}.{n}.weight" for i in (0, 1) for n in ("query", "key", "value", "attended", "expand", "contract")
    }
    with pytest.raises(ValueError, match=r"^grouping: 'muon' is not allowed; choose artefact or standard$"):
        shape.matrices("muon")


def test_heads_must_divide_the_width():
    with pytest.raises(ValueError, match=r"^heads: 3 does not divide width=64$"):
        Architecture(2, 20, heads=3)
