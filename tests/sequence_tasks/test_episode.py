"""What takes part in a gradient epoch, and that it may be cut anywhere."""

from dataclasses import fields, replace

import pytest
import torch

from common import objectives
from sequence_tasks import episode, plain, shared
from sequence_tasks.episode import Draws, part_loss, parts, roll_out, trained_on, whole
from sequence_tasks.policy import Architecture
from sequence_tasks.settings import SequenceTask
from sequence_tasks.task import TARGETS

KINDS = [
    ("tpo", "sequence", "bag_of_tokens"),
    ("grpo_zv_masked", "sequence", "terminal"),
    ("tpo", "token", "sequential"),
    ("grpo_zv_masked", "token", "bag_of_tokens"),
    ("ppo", "sequence", "bag_of_tokens"),
    ("dg", "sequence", "terminal"),
]


def rollout_of(
    name, level="sequence", reward="bag_of_tokens", sharpness=1.0, wanted=None, batch=12, options=None, objective=None
):
    """Roll out under a policy of some sharpness, and if wanted, one that always emits one token."""
    objective = objective or objectives.get(name, options)
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


GROUPED = [name for name in objectives.names() if objectives.get(name).grouped and name != "ce"]
EVERY = [
    *((name, level, {}) for name in GROUPED for level in ("sequence", "token")),
    ("tpo", "token", {"anchored": False, "eta": 0.5}),
    ("grpo_zv_masked", "sequence", {"beta": 0.0}),
    *((name, "sequence", {}) for name in ("pg", "dg", "ppo")),
    ("ppo", "sequence", {"beta": 0.5}),
]
SCORES = ["all fail", "all succeed", "mixed"]


def give_scores(scores, monkeypatch):
    """Make every token wrong, or every token right."""
    if scores == "mixed":
        return
    value = {"all fail": 0.0, "all succeed": 1.0}[scores]
    monkeypatch.setitem(TARGETS, "reverse_copy", lambda prompts, vocabulary: torch.full_like(prompts, -1))
    monkeypatch.setattr(
        episode, "token_rewards", lambda tokens, targets, reward: torch.full(tokens.shape, value).double()
    )


def assert_parts_are_the_whole(objective, shape, rollout, snapshot, at, monkeypatch):
    """Cut anywhere, with what may be left out left out; return the gradient's size."""
    expected = gradient(plain, shape, objective, at, [whole(plain, shape, rollout)])
    together = gradient(shared, shape, objective, at, [whole(shared, shape, rollout)])
    assert (together - expected).norm() <= 1e-10 * expected.norm() + 1e-13
    chosen = trained_on(objective, rollout, snapshot=snapshot)
    for tokens in (1, 37, 10_000):
        monkeypatch.setattr(episode, "_TOKENS", tokens)
        laid_out = parts(shared, shape, rollout, chosen)
        assert sum(len(part.logp_old) for part in laid_out) == len(chosen)
        found = gradient(shared, shape, objective, at, laid_out)
        assert (found - expected).norm() <= 1e-10 * expected.norm() + 1e-13
    return float(expected.norm())


@pytest.mark.parametrize("scores", SCORES)
@pytest.mark.parametrize(("name", "level", "options"), EVERY, ids=str)
def test_every_objective_on_every_kind_of_batch(name, level, options, scores, monkeypatch):
    give_scores(scores, monkeypatch)
    objective, shape, parameters, rollout = rollout_of(name, level, batch=6, options=options)
    if scores != "mixed":
        assert rollout.signal.varied is None or not rollout.signal.varied.any()
    for snapshot, at in ((True, parameters), (False, moved(parameters))):
        size = assert_parts_are_the_whole(objective, shape, rollout, snapshot, at, monkeypatch)
        chosen = trained_on(objective, rollout, snapshot=snapshot)
        assert (size > 1e-6) <= (len(chosen) > 0)
        if scores == "mixed":
            assert size > 1e-6  # there is something to get wrong


@pytest.mark.parametrize("scores", ["all fail", "all succeed"])
def test_what_is_left_out_of_a_batch_that_says_nothing(scores, monkeypatch):
    """By objective: how many of six prompts take part on the snapshot, and later."""
    give_scores(scores, monkeypatch)
    found = {}
    for name, options in (
        *((name, {}) for name in (*GROUPED, "pg", "dg", "ppo")),
        ("ppo", {"beta": 0.5}),
        ("grpo", {"beta": 0.0}),
    ):
        objective, _, _, rollout = rollout_of(name, batch=6, options=options)
        if objective.grouped:
            assert not (rollout.tokens == rollout.tokens[:, :1]).flatten(1).all(1).any()
        found[name, *options.values()] = [
            len(trained_on(objective, rollout, snapshot=snapshot)) for snapshot in (True, False)
        ]
    nothing, later, always = [0, 0], [0, 6], [6, 6]
    assert found == {
        ("tpo",): later,
        ("tpo_no_anchor",): always,
        ("grpo",): later,
        ("grpo_no_kl",): nothing,
        ("grpo_zv_masked",): nothing,
        ("group_pg",): nothing,
        ("pg",): nothing,
        ("dg",): nothing,
        ("ppo",): nothing,
        ("ppo", 0.5): later,
        ("grpo", 0.0): nothing,
    }


def own_rule(rule, terms=None):
    """A user's subclass of a built-in rule; a loss may add terms of its own."""
    body = {}
    if terms is not None:
        body["__call__"] = lambda self, logp, logp_old, signal: (
            type(rule).__call__(self, logp, logp_old, signal) + terms(logp)
        )
    kind = type("Own", (type(rule),), body)
    return kind(**{field.name: getattr(rule, field.name) for field in fields(rule)})


@pytest.mark.parametrize(("name", "level"), [(name, level) for name, level, options in EVERY if not options])
def test_a_term_of_ones_own_is_never_skipped(name, level, monkeypatch):
    """Neither where all fail nor where all candidates are the same: a pull towards the improbable, for example."""
    registered = objectives.get(name)
    objective = replace(registered, loss=own_rule(registered.loss, lambda logp: 0.1 * logp.exp()))
    give_scores("all fail", monkeypatch)
    for wanted in (None, 1):
        _, shape, parameters, rollout = rollout_of(name, level, batch=6, objective=objective, wanted=wanted)
        weights = rollout.signal.weights
        for snapshot, at in ((True, parameters), (False, moved(parameters))):
            assert len(trained_on(objective, rollout, snapshot=snapshot)) == 6
            size = assert_parts_are_the_whole(objective, shape, rollout, snapshot, at, monkeypatch)
            # groups that the signal drops have weight 0; a policy that is certain has no slope at its own tokens
            assert size > 1e-6 or weights is not None or wanted is not None


@pytest.mark.parametrize("name", [*GROUPED, "pg", "dg", "ppo"])
def test_a_signal_of_ones_own_is_never_skipped(name, monkeypatch):
    registered = objectives.get(name)
    objective = replace(registered, signal=own_rule(registered.signal))
    give_scores("all fail", monkeypatch)
    _, _, _, rollout = rollout_of(name, batch=6, objective=objective, wanted=1)
    for snapshot in (True, False):
        assert trained_on(objective, rollout, snapshot=snapshot).tolist() == list(range(6))


def test_a_trajectory_takes_part_for_a_single_advantage():
    objective, shape, parameters, rollout = rollout_of("ppo", batch=6)
    advantage = rollout.signal.advantage
    advantage.zero_()
    advantage[3, 2] = 1e-30
    assert trained_on(objective, rollout, snapshot=True).tolist() == [3]
    advantage[5, 0] = torch.nan
    assert trained_on(objective, rollout, snapshot=True).tolist() == [3, 5]  # and is then found not to be finite
    (part,) = parts(shared, shape, rollout, torch.tensor([3, 5]))
    assert part_loss(shared, parameters, shape, objective, part).isnan()


def test_cuts_count_what_is_distinct():
    """Eight equal completions of H = 5 are a tenth of eight different ones and the prompt."""
    tokens = torch.stack([torch.tensor([[index >> bit & 1 for bit in range(5)] for index in range(8)])] * 400)
    equal = tokens[:, :1].expand(-1, 8, -1)
    for each, distinct in ((tokens, 8), (equal, 1)):
        cuts = torch.tensor([0, *episode._cuts(each), 400])
        sizes = cuts.diff() * 5 * (distinct + 1)
        assert (sizes > 0).all()
        assert sizes.max() <= episode._TOKENS + 5 * (distinct + 1)
        assert sizes[:-1].min() >= episode._TOKENS - 5 * (distinct + 1)
    assert episode._cuts(tokens[:0]) == episode._cuts(tokens[:1]) == []


@pytest.mark.parametrize(("name", "level", "options"), EVERY, ids=str)
def test_the_loss_is_summed_over_candidates_and_averaged_over_what_they_answer(name, level, options):
    """Group by group, with no reduction of the product's: Σ over K and mean over B (and states), or Σ over H."""
    objective, shape, parameters, rollout = rollout_of(name, level, batch=6, sharpness=3.0, options=options)
    at = moved(parameters)
    tokens, (batch, _, length) = rollout.tokens, rollout.tokens.shape
    states = plain.sequence_log_probabilities(
        at, shape, torch.cat([rollout.prompts[:, None].expand_as(tokens), tokens], -1).flatten(0, 1)
    ).view(batch, -1, 2 * length, 2)[:, :, length - 1 : -1]
    logp = states.gather(-1, tokens[..., None])[..., 0]
    total, groups = 0.0, 0
    for prompt in range(batch):
        if not objective.grouped:
            score = rollout.rewards[prompt, 0] - rollout.rewards[:, 0].mean(0)
            own = objective.signal(score)
            total += objective.loss(logp[prompt, 0], rollout.logp_old[prompt], own).sum()
            groups += 1
            continue
        rows = [(logp[prompt].sum(-1), rollout.logp_old[prompt], rollout.rewards[prompt].mean(-1))]
        if level == "token":
            rows = [
                (states[prompt, 0, step, picked], rollout.logp_old[prompt, step], rollout.scores[prompt, step])
                for step, picked in enumerate(rollout.picked[prompt])
            ]
        for now, old, score in rows:
            if objective.options.get("drop_zero_variance") and len(score.unique()) == 1:
                continue
            total += objective.loss(now, old, objective.signal(score, old)).sum()
            groups += 1
    assert groups > 1
    if name == "grpo_zv_masked":
        assert groups < batch * (length if level == "token" else 1)
    for engine in (shared, plain):
        loss = part_loss(engine, at, shape, objective, whole(engine, shape, rollout))
        assert float(loss) == pytest.approx(float(total) / groups, rel=1e-9)
