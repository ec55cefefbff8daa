"""What takes part in a gradient epoch, and that it may be cut anywhere."""

import pytest
import torch

from common import objectives
from sequence_tasks import episode, plain, shared
from sequence_tasks.episode import Draws, part_loss, parts, roll_out, trained_on, whole
from sequence_tasks.policy import Architecture
from sequence_tasks.settings import SequenceTask

KINDS = [
    ("tpo", "sequence", "bag_of_tokens"),
    ("grpo_zv_masked", "sequence", "terminal"),
    ("tpo", "token", "sequential"),
    ("grpo_zv_masked", "token", "bag_of_tokens"),
    ("ppo", "sequence", "bag_of_tokens"),
    ("dg", "sequence", "terminal"),
]


def rollout_of(name, level="sequence", reward="bag_of_tokens", sharpness=1.0, wanted=None, batch=12):
    """Roll out under a policy of some sharpness, and if wanted, one that always emits one token."""
    objective = objectives.get(name)
    epochs = 1 if objective.single_epoch else 2
    settings = SequenceTask(
        objective=name, level=level, reward=reward, length=4, batch=batch, candidates=4, epochs=epochs
    )
    shape = Architecture(2, 8)
    parameters = {key: value[0] for key, value in shape.initial(0, [0], torch.float64).items()}
    parameters["output.weight"] *= sharpness
    if wanted is not None:
        parameters["output.bias"] = torch.tensor([100.0, -100.0], dtype=torch.float64) * (1 - 2 * wanted)
    generator = torch.Generator().manual_seed(0)
    prompts = torch.randint(2, (batch, 4), generator=generator)
    if wanted is not None:
        prompts[: batch // 2] = wanted  # half of the prompts are solved
    behaviours = 4 if objective.grouped and level == "sequence" else 1
    noise = torch.rand(batch, behaviours, 4, generator=generator, dtype=torch.float64)
    others = torch.rand(batch, 4, 3, generator=generator, dtype=torch.float64) if level == "token" else None
    rollout = roll_out(shared, parameters, shape, settings, objective, Draws(prompts, noise, others))
    return objective, shape, parameters, rollout


def gradient(engine, shape, objective, parameters, laid_out):
    total = torch.zeros(sum(value.numel() for value in parameters.values()), dtype=torch.float64)
    for part in laid_out:
        leaves = {key: value.detach().requires_grad_() for key, value in parameters.items()}
        loss = part_loss(engine, leaves, shape, objective, part)
        total += torch.cat([each.flatten() for each in torch.autograd.grad(loss, list(leaves.values()))])
    return total


def moved(parameters):
    generator = torch.Generator().manual_seed(1)
    noise = {key: torch.randn(value.shape, generator=generator, dtype=value.dtype) for key, value in parameters.items()}
    return {key: value + 0.03 * noise[key] for key, value in parameters.items()}


@pytest.mark.parametrize("tokens", [1, 20, 45, 10_000])
@pytest.mark.parametrize(("name", "level", "reward"), KINDS)
def test_parts_add_up_wherever_they_are_cut(name, level, reward, tokens, monkeypatch):
    monkeypatch.setattr(episode, "_TOKENS", tokens)
    objective, shape, parameters, rollout = rollout_of(name, level, reward, sharpness=4.0)
    chosen = trained_on(objective, rollout, snapshot=False)
    laid_out = parts(shared, shape, rollout, chosen)
    if tokens == 1:
        assert len(laid_out) == len(chosen)
    if tokens == 10_000:
        assert len(laid_out) == 1
    later = moved(parameters)
    found = gradient(shared, shape, objective, later, laid_out)
    expected = gradient(plain, shape, objective, later, [whole(plain, shape, rollout)])
    assert (found - expected).norm() <= 1e-10 * expected.norm() + 1e-13


@pytest.mark.parametrize("wanted", [0, 1])
@pytest.mark.parametrize(("name", "level", "reward"), KINDS)
def test_a_policy_that_never_varies(name, level, reward, wanted):
    """All candidates the same: TPO has nothing to do, and what others do is what plain does."""
    objective, shape, parameters, rollout = rollout_of(name, level, reward, wanted=wanted)
    for snapshot, at in ((True, parameters), (False, moved(parameters))):
        chosen = trained_on(objective, rollout, snapshot=snapshot)
        if name == "tpo":
            assert not len(chosen)
        found = gradient(shared, shape, objective, at, parts(shared, shape, rollout, chosen))
        expected = gradient(plain, shape, objective, at, [whole(plain, shape, rollout)])
        assert (found - expected).norm() <= 1e-10 * expected.norm() + 1e-13


def test_trajectories_without_an_advantage_are_left_out():
    """All prompts fail, so every reward is its baseline."""
    objective, _, _, rollout = rollout_of("ppo", reward="terminal", wanted=0)
    rollout.signal.advantage.zero_()
    assert not len(trained_on(objective, rollout, snapshot=False))
    pulled = objectives.get("ppo", {"beta": 0.1})
    assert not len(trained_on(pulled, rollout, snapshot=True))
    assert len(trained_on(pulled, rollout, snapshot=False)) == 12


def test_all_groups_that_fail_are_left_out_on_the_snapshot_only():
    objective, _, _, rollout = rollout_of("tpo", reward="terminal")
    rollout.signal.varied.zero_()
    identical = (rollout.tokens == rollout.tokens[:, :1]).flatten(1).all(1)
    assert not identical.all()
    assert not len(trained_on(objective, rollout, snapshot=True))
    assert trained_on(objective, rollout, snapshot=False).tolist() == (~identical).nonzero()[:, 0].tolist()
