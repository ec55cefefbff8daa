"""Episodes: rollouts of three kinds, the fast engine against the plain one, stopping and resuming, metrics."""

import re

import pytest
import torch

from common import objectives
from common.runs.trainer import NonFiniteError
from sequence_tasks import plain, shared
from sequence_tasks.episode import Draws, part_loss, parts, roll_out, trained_on, whole
from sequence_tasks.policy import Architecture
from sequence_tasks.settings import SequenceTask
from sequence_tasks.training import SequenceTrainer

CPU = torch.device("cpu")
SMALL = {"length": 3, "batch": 6, "candidates": 4, "episodes": 6, "dtype": "float64"}
GROUPED = [name for name in objectives.names() if objectives.get(name).grouped and name != "ce"]
CASES = [
    *((name, "sequence", reward) for name in GROUPED for reward in ("terminal", "bag_of_tokens")),
    *((name, "token", reward) for name in GROUPED for reward in ("bag_of_tokens", "sequential")),
    *((name, "sequence", reward) for name in ("pg", "dg", "ppo") for reward in ("terminal", "sequential")),
]


def settings_of(name, **changes):
    epochs = 1 if objectives.get(name).single_epoch else 3
    return SequenceTask(objective=name, **({"epochs": epochs} | SMALL | changes))


def trainer(name, seeds=range(2), engine=shared, **changes):
    return SequenceTrainer(settings_of(name, **changes), seeds, CPU, engine)


@pytest.mark.parametrize(("name", "level", "reward"), CASES)
def test_the_fast_engine_has_the_plain_ones_gradients(name, level, reward):
    """On the snapshot, where provably zero groups are skipped, and off it."""
    settings = settings_of(name, level=level, reward=reward)
    objective = objectives.get(name)
    shape = Architecture(settings.vocabulary, 2 * settings.length)
    parameters = {key: value[0] for key, value in shape.initial(0, [0], torch.float64).items()}
    drawn = trainer(name, level=level, reward=reward)._draw().of(0)
    fast, slow = (roll_out(engine, parameters, shape, settings, objective, drawn) for engine in (shared, plain))
    assert torch.equal(fast.tokens, slow.tokens)
    assert torch.equal(fast.scores, slow.scores)
    generator = torch.Generator().manual_seed(0)
    for epoch in range(2):
        leaves = {key: value.clone().requires_grad_() for key, value in parameters.items()}
        found = []
        for engine, rollout in ((shared, fast), (plain, slow)):
            total = torch.zeros(sum(value.numel() for value in leaves.values()), dtype=torch.float64)
            laid_out = [whole(engine, shape, rollout)]
            if engine is shared:
                laid_out = parts(engine, shape, rollout, trained_on(objective, rollout, snapshot=epoch == 0))
            for part in laid_out:
                loss = part_loss(engine, leaves, shape, objective, part)
                total += torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(leaves.values()))])
            found.append(total)
        assert (found[0] - found[1]).norm() <= 1e-10 * found[1].norm() + 1e-12
        for value in parameters.values():
            value += 0.05 * torch.randn(value.shape, generator=generator, dtype=value.dtype)


@pytest.mark.parametrize(("name", "level", "reward"), CASES)
def test_stopping_and_resuming_changes_no_bit(name, level, reward):
    whole = trainer(name, level=level, reward=reward)
    expected = whole.advance(6)
    assert expected.metrics["error"].shape == (2, 6)
    assert ((expected.metrics["error"] >= 0) & (expected.metrics["error"] <= 1)).all()
    first = trainer(name, level=level, reward=reward)
    before = first.advance(2)
    second = trainer(name, level=level, reward=reward)
    second.load_state_dict({key: value.clone() for key, value in first.state_dict().items()})
    second.step = first.step
    after = second.advance(6)
    for metric, values in expected.metrics.items():
        joined = torch.cat([before.metrics[metric], after.metrics[metric]], 1)
        assert torch.equal(joined.nan_to_num(-1), values.nan_to_num(-1)), metric
    for key, value in whole.state_dict().items():
        assert torch.equal(value, second.state_dict()[key]), key


@pytest.mark.parametrize("grouping", ["artefact", "standard"])
def test_a_seed_is_the_same_alone_and_in_company(grouping):
    together = trainer("tpo", range(3), reward="bag_of_tokens", grouping=grouping).advance(6).metrics["error"]
    alone = trainer("tpo", [1], reward="bag_of_tokens", grouping=grouping).advance(6).metrics["error"]
    torch.testing.assert_close(together[1:2], alone)


def test_objectives_see_the_same_prompts():
    first, second = trainer("tpo")._draw(), trainer("ppo")._draw()
    assert torch.equal(first.prompts, second.prompts)
    assert not torch.equal(first.prompts[0], first.prompts[1])


def test_the_first_candidate_of_a_token_group_is_the_behaviours():
    settings = settings_of("tpo", level="token", reward="sequential")
    shape = Architecture(2, 6)
    parameters = {key: value[0] for key, value in shape.initial(0, [0], torch.float64).items()}
    drawn = trainer("tpo", level="token", reward="sequential")._draw().of(0)
    rollout = roll_out(shared, parameters, shape, settings, objectives.get("tpo"), drawn)
    assert torch.equal(rollout.picked[..., 0], rollout.tokens[:, 0])
    wrong_before = (rollout.rewards[:, 0] == 0)[:, :-1]
    assert (rollout.scores[:, 1:][wrong_before] == 0).all()  # zero for every candidate once the prefix has erred


def test_metrics_of_a_hand_made_episode():
    """A policy that always emits 0, reverse copy, V = 2: right on prompts of zeros alone."""
    shape = Architecture(2, 4)
    parameters = {key: value[0] for key, value in shape.initial(0, [0], torch.float64).items()}
    parameters["output.bias"] = torch.tensor([50.0, -50.0], dtype=torch.float64)
    made = trainer("tpo", [0], length=2, batch=4, candidates=3)
    for key, value in parameters.items():
        made._parameters[key][0] = value
    prompts = torch.tensor([[0, 0], [0, 1], [1, 0], [1, 1]])
    made._draw = lambda: Draws(prompts[None], torch.full((1, 4, 3, 2), 0.5, dtype=torch.float64), None)
    metrics = {name: values.item() for name, values in made.advance(1).metrics.items()}
    assert metrics["error"] == metrics["exact_match_error"] == metrics["all_fail"] == 0.75
    assert metrics["success"] == 0.25
    assert metrics["winner_weight"] == metrics["loser_weight"] == pytest.approx(1 / 3)
    assert metrics["gradient_norm"] == metrics["update_norm"] == 0  # every group is of identical completions


def test_tpo_learns_dense_reversal():
    records = SequenceTrainer(
        SequenceTask(objective="tpo", level="token", reward="bag_of_tokens", length=4, episodes=40), range(2), CPU
    ).advance(40)
    error = records.metrics["error"].mean(0)
    assert error[0] > 0.4
    assert error[-1] < 0.1


def test_numbers_that_are_not_finite_stop_the_run():
    """Also where every group would be skipped: a policy of NaN samples the same completion again and again."""
    made = trainer("tpo")
    made._parameters["token"][1] = torch.nan
    expected = "log-probability of a rollout: not finite at step 0 for seed 1; no step before it"
    with pytest.raises(NonFiniteError, match=f"^{expected}$"):
        made.advance(1)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"length": 0}, "length: 0 is not allowed; it must be at least 1"),
        ({"vocabulary": 1}, "vocabulary: 1 is not allowed; it must be at least 2"),
        ({"candidates": 1}, "candidates: 1 is not allowed; it must be at least 2"),
        ({"level": "token"}, "level: 'token' is not allowed with reward=terminal, which single tokens do not have"),
        ({"objective": "dg"}, "epochs: 4 is not allowed; dg is meant for 1 (allow_unstable=true permits)"),
        ({"objective": "ce"}, "objective: 'ce' needs labels, which these tasks do not give"),
        ({"target": "sort"}, "target: 'sort' is not allowed; choose from copy, flip, reverse_copy, reverse_flip"),
        ({"reward": "dense"}, "reward: 'dense' is not allowed; choose from bag_of_tokens, sequential, terminal"),
        ({"heads": 5}, "heads: 5 does not divide width=64"),
        ({"episodes": -1}, "episodes: -1 is not allowed; it must be at least 1"),
        ({"momentum_form": "adam"}, "momentum_form: 'adam' is not allowed; choose from optax, torch"),
    ],
)
def test_settings_that_make_no_sense_are_refused_by_key(changes, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        SequenceTask(**changes)


def test_one_candidate_is_enough_for_objectives_without_groups():
    SequenceTask(objective="ppo", candidates=1)
    SequenceTask(objective="dg", epochs=4, allow_unstable=True)
