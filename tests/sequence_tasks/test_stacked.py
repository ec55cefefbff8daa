"""The static engine, all seeds at once: the same samples and gradients as the plain one, and the same training."""

import shutil

import pytest
import torch

from common import draws, objectives
from common.errors import UserError
from sequence_tasks import engines, plain, shared, stacked
from sequence_tasks.policy import Architecture
from sequence_tasks.settings import SequenceTask
from sequence_tasks.training import SequenceTrainer

CPU = torch.device("cpu")
SEEDS = range(3)
CASES = [
    ("tpo", "sequence", "terminal"),
    ("grpo_zv_masked", "sequence", "terminal"),
    ("tpo", "token", "bag_of_tokens"),
    ("grpo_zv_masked", "token", "sequential"),
    ("ppo", "sequence", "terminal"),
    ("dg", "sequence", "sequential"),
]


def episode_inputs(vocabulary, length, candidates, batch):
    shape = Architecture(vocabulary, 2 * length)
    parameters = shape.initial(0, SEEDS, torch.float64)
    prompts = draws.integers(0, SEEDS, "prompts", 0, vocabulary, (batch, length))
    noise = draws.uniform(0, SEEDS, "completions", 0, (batch, candidates, length))
    return shape, parameters, prompts, noise


@pytest.mark.parametrize("size", [(2, 1, 3, 4), (2, 5, 4, 6), (3, 4, 1, 5), (16, 3, 2, 4)])
def test_samples_and_gradients_are_the_plain_ones(size):
    shape, parameters, prompts, noise = episode_inputs(*size)
    tokens, states = stacked.sample(parameters, shape, prompts, noise)
    weights = torch.randn(tokens.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    leaves = {name: value.requires_grad_() for name, value in parameters.items()}
    logp = stacked.token_log_probabilities(leaves, shape, stacked.lay_out(shape, prompts, tokens))
    found = torch.autograd.grad((logp * weights).sum(), list(leaves.values()))
    for seed in SEEDS:
        own = {name: value.detach()[seed].requires_grad_() for name, value in parameters.items()}
        plain_tokens, plain_states = plain.sample(own, shape, prompts[seed], noise[seed])
        assert torch.equal(tokens[seed], plain_tokens)
        torch.testing.assert_close(states[seed], plain_states, rtol=0, atol=1e-12)
        laid_out = plain.lay_out(shape, prompts[seed], tokens[seed])
        expected = (plain.token_log_probabilities(own, shape, laid_out) * weights[seed]).sum()
        for name, one, other in zip(own, found, torch.autograd.grad(expected, list(own.values())), strict=True):
            assert (one[seed] - other).norm() <= 1e-10 * other.norm() + 1e-12, name


@pytest.mark.parametrize(("name", "level", "reward"), CASES)
def test_it_trains_as_the_shared_engine_does(name, level, reward):
    """Gradients and metrics of the first episode; later ones would compare trajectories."""
    settings = SequenceTask(
        objective=name,
        level=level,
        reward=reward,
        length=3,
        batch=6,
        candidates=4,
        epochs=1 if objectives.get(name).single_epoch else 2,
        episodes=1,
        dtype="float64",
    )
    records = []
    for engine in (shared, stacked):
        made = SequenceTrainer(settings, SEEDS, CPU, engine)
        records.append((made.advance(1).metrics, made.state_dict()))
    for metric, values in records[0][0].items():
        torch.testing.assert_close(records[1][0][metric], values, rtol=1e-6, atol=1e-9, equal_nan=True, msg=metric)
    momenta = [key for key in records[0][1] if "moment" in key]
    assert momenta
    for key in momenta:  # of the gradients, before they are normalised
        torch.testing.assert_close(records[1][1][key], records[0][1][key], rtol=1e-6, atol=1e-10, msg=key)


def test_a_gpu_gets_the_static_engine():
    assert engines.engine_for(SequenceTask(), CPU) is shared
    assert engines.engine_for(SequenceTask(), torch.device("cuda")) is stacked


def test_a_compiled_gradient_that_differs_stops_the_run(monkeypatch):
    """Here the "compiled" engine answers something else."""
    wrong = engines.engine_for(SequenceTask(), torch.device("cuda"))
    twice = type("Wrong", (), dict(vars(wrong)))
    twice.token_log_probabilities = staticmethod(lambda *inputs: 2 * stacked.token_log_probabilities(*inputs))
    monkeypatch.setattr(engines, "compiled", lambda: twice)
    settings = SequenceTask(length=3, batch=4, episodes=2, compile=True, reward="bag_of_tokens")
    with pytest.raises(UserError, match=r"^compile: the compiled gradient differs .*; use compile=false$"):
        SequenceTrainer(settings, SEEDS, CPU).advance(1)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler on a CPU")
@pytest.mark.parametrize(("name", "level", "reward"), CASES)
def test_compiled_is_eager(name, level, reward):
    """The comparison that every compiled run makes, and two episodes of training."""
    changes = {"level": level, "reward": reward, "epochs": 1 if objectives.get(name).single_epoch else 2}
    settings = SequenceTask(objective=name, length=3, batch=6, candidates=4, episodes=2, compile=True, **changes)
    records = SequenceTrainer(settings, SEEDS, CPU).advance(2)
    assert records.metrics["error"].isfinite().all()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_on_a_gpu_the_first_episode_is_the_same():
    settings = SequenceTask(length=4, batch=8, episodes=1, dtype="float64", reward="bag_of_tokens")
    of_cpu = SequenceTrainer(settings, SEEDS, CPU).advance(1).metrics
    of_gpu = SequenceTrainer(settings, SEEDS, torch.device("cuda")).advance(1).metrics
    for metric, values in of_cpu.items():
        torch.testing.assert_close(of_gpu[metric].cpu(), values, rtol=1e-6, atol=1e-9, msg=metric)
