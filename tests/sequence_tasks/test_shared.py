"""The fast way against the plain one: same samples from the same noise, same log-probabilities, same gradients."""

import pytest
import torch

from common import objectives
from common.objectives import reduce
from sequence_tasks import plain, shared
from sequence_tasks.policy import Architecture

SIZES = [(2, 1, 3, 4), (2, 5, 8, 20), (2, 10, 4, 12), (3, 2, 4, 5), (16, 6, 8, 6)]
"""V, H, K, B."""


def policy(vocabulary, length, dtype, sharpness=1.0, heads=2):
    shape = Architecture(vocabulary, 2 * length, heads=heads)
    parameters = {name: value[0] for name, value in shape.initial(0, [0], dtype).items()}
    parameters["output.weight"] = sharpness * parameters["output.weight"]
    return shape, {name: value.clone().requires_grad_() for name, value in parameters.items()}


def rollout_inputs(vocabulary, length, candidates, batch, dtype):
    generator = torch.Generator().manual_seed(1)
    prompts = torch.randint(vocabulary, (batch, length), generator=generator)
    return prompts, torch.rand(batch, candidates, length, generator=generator, dtype=torch.float64).to(dtype)


def scored(module, parameters, shape, prompts, tokens):
    return module.token_log_probabilities(parameters, shape, module.lay_out(shape, prompts, tokens))


def sampled_tokens(parameters, shape, prompts, noise):
    """Tokens and their log-probabilities, [B, K, H] each."""
    tokens, states = plain.sample(parameters, shape, prompts, noise)
    return tokens, states.gather(-1, tokens[..., None])[..., 0]


def gradients(loss, parameters):
    found = torch.autograd.grad(loss, list(parameters.values()), allow_unused=True)
    pairs = zip(found, parameters.values(), strict=True)
    return torch.cat([(torch.zeros_like(p) if g is None else g).flatten() for g, p in pairs])


def assert_same_gradient(fast, slow):
    """DESIGN's bounds: 1e-10 relative in float64; in float32 1e-5·‖g‖ + 1e-6."""
    if fast.dtype == torch.float64:
        assert (fast - slow).norm() <= 1e-10 * slow.norm() + 1e-14
    else:
        assert (fast - slow).norm() <= 1e-5 * slow.norm() + 1e-6


@pytest.mark.parametrize("heads", [1, 2, 4])
@pytest.mark.parametrize("size", SIZES)
def test_the_same_samples_from_the_same_noise(size, heads):
    vocabulary, length, candidates, batch = size
    shape, parameters = policy(vocabulary, length, torch.float64, heads=heads)
    prompts, noise = rollout_inputs(vocabulary, length, candidates, batch, torch.float64)
    fast_tokens, fast_logp = shared.sample(parameters, shape, prompts, noise)
    tokens, logp = plain.sample(parameters, shape, prompts, noise)
    assert logp.shape == (batch, candidates, length, vocabulary)
    assert torch.equal(fast_tokens, tokens)
    torch.testing.assert_close(fast_logp, logp, rtol=0, atol=1e-12)
    assert not fast_logp.requires_grad


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("sharpness", [1.0, 6.0], ids=["spread", "peaked"])
@pytest.mark.parametrize("size", SIZES)
def test_the_same_log_probabilities_and_gradients(size, sharpness, dtype):
    vocabulary, length, candidates, batch = size
    shape, parameters = policy(vocabulary, length, dtype, sharpness)
    prompts, noise = rollout_inputs(vocabulary, length, candidates, batch, dtype)
    tokens, sampled_logp = sampled_tokens(parameters, shape, prompts, noise)
    fast, slow = (scored(module, parameters, shape, prompts, tokens) for module in (shared, plain))
    tolerance = 1e-5 if dtype == torch.float32 else 1e-11
    torch.testing.assert_close(fast, slow, rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(slow, sampled_logp, rtol=tolerance, atol=tolerance)
    weights = torch.randn(fast.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64).to(dtype)
    assert_same_gradient(*(gradients((each * weights).sum(), parameters) for each in (fast, slow)))


def test_a_peaked_policy_repeats_itself():
    """So that "peaked" above tests what it is for."""
    shape, parameters = policy(2, 5, torch.float64, 6.0)
    tokens, _ = plain.sample(parameters, shape, *rollout_inputs(2, 5, 8, 20, torch.float64))
    distinct = sum(len(group.unique(dim=0)) for group in tokens)
    assert distinct < 0.6 * 8 * 20


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("size", SIZES)
def test_one_causal_pass_gives_every_prefix_state(size, dtype):
    vocabulary, length, _, batch = size
    shape, parameters = policy(vocabulary, length, dtype)
    prompts, noise = rollout_inputs(vocabulary, length, 1, batch, dtype)
    tokens, sampled = plain.sample(parameters, shape, prompts, noise)
    fast, slow = (
        module.state_log_probabilities(parameters, shape, module.lay_out(shape, prompts, tokens))
        for module in (shared, plain)
    )
    tolerance = 1e-5 if dtype == torch.float32 else 1e-11
    torch.testing.assert_close(slow, sampled[:, 0], rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(fast, slow, rtol=tolerance, atol=tolerance)
    weights = torch.randn(fast.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64).to(dtype)
    assert_same_gradient(*(gradients((each * weights).sum(), parameters) for each in (fast, slow)))


@pytest.mark.parametrize("scores", ["mixed", "all fail", "all succeed"])
@pytest.mark.parametrize("duplicates", ["none", "some", "all"])
@pytest.mark.parametrize("name", ["tpo", "tpo_no_anchor", "grpo", "grpo_no_kl", "grpo_zv_masked", "group_pg"])
def test_every_group_objective_has_the_same_gradient(name, duplicates, scores):
    """Off the snapshot, so that KL terms and the pull back to p_old take part."""
    shape, parameters = policy(2, 5, torch.float64)
    prompts, noise = rollout_inputs(2, 5, 6, 8, torch.float64)
    tokens, logp_old = sampled_tokens(parameters, shape, prompts, noise)
    if duplicates != "none":
        tokens[:, 1:4] = tokens[:, :1]
        logp_old[:, 1:4] = logp_old[:, :1]
    if duplicates == "all":
        tokens[:] = tokens[:, :1]
        logp_old[:] = logp_old[:, :1]
    values = {
        "mixed": (torch.arange(48).view(8, 6) % 3 == 0).double(),
        "all fail": torch.zeros(8, 6, dtype=torch.float64),
        "all succeed": torch.ones(8, 6, dtype=torch.float64),
    }[scores]
    with torch.no_grad():
        for value in parameters.values():
            value += 0.01 * torch.randn(value.shape, generator=torch.Generator().manual_seed(3), dtype=value.dtype)
    objective = objectives.get(name)
    old = logp_old.sum(-1)
    signal = objective.signal(values, old)

    def gradient(module):
        logp = scored(module, parameters, shape, prompts, tokens).sum(-1)
        return gradients(reduce(objective.loss(logp, old, signal), signal.weights, normaliser=8), parameters)

    assert_same_gradient(gradient(shared), gradient(plain))


@pytest.mark.parametrize("name", ["pg", "dg", "ppo"])
def test_every_token_objective_has_the_same_gradient(name):
    shape, parameters = policy(2, 5, torch.float64)
    prompts, noise = rollout_inputs(2, 5, 1, 30, torch.float64)
    tokens, logp_old = (each[:, 0] for each in sampled_tokens(parameters, shape, prompts, noise))
    rewards = (tokens == prompts.flip(-1)).double()
    objective = objectives.get(name)
    signal = objective.signal(rewards, logp_old, baseline=rewards.mean(0))

    def gradient(module):
        logp = scored(module, parameters, shape, prompts, tokens[:, None])[:, 0]
        return gradients(reduce(objective.loss(logp, logp_old, signal), normaliser=30), parameters)

    assert_same_gradient(gradient(shared), gradient(plain))
