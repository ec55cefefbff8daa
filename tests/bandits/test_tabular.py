"""The tabular bandits: updates against closed forms (section 3), sampling, pairing, resuming."""

import math
from dataclasses import replace

import pytest
import torch

from bandits.alignment import misalignment
from bandits.enumerated import Feedback, by_autograd, enumerated_loss, snapshot_gradient, through_softmax
from bandits.multi_context import MultiContext, MultiContextTrainer, actions_before_contexts, flat
from bandits.single_context import SingleContext, SingleContextTrainer
from common import objectives
from common.objectives import PolicyGradient

CPU = torch.device("cpu")
TRAINERS = {
    "single_context": (SingleContext, SingleContextTrainer),
    "multi_context": (MultiContext, MultiContextTrainer),
}


def update(objective, logits, *, rewards, baseline, frequencies, sampled):
    logp = logits.log_softmax(-1)
    feedback = Feedback(rewards, baseline, frequencies, sampled)
    return -snapshot_gradient(objectives.get(objective), logp, logp.exp(), feedback)


def beta(name, p, actions):
    """Weight β(p) of the update β(p)(e_y − π) in a context whose correct action has probability p."""
    lam = math.exp(actions / math.sqrt(actions - 1))
    return {
        "ce": torch.ones_like(p),
        "pg": p,
        "dg": p / (1 + p),
        "grpo": (p / (1 - p)).sqrt(),
        "tpo": p * (lam - 1) / (1 - p + lam * p),
    }[name]


@pytest.mark.parametrize("actions", [2, 4, 10])
@pytest.mark.parametrize("name", ["ce", "pg", "dg", "grpo", "tpo"])
def test_exact_updates_have_the_weights_of_the_paper(name, actions):
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(3, 7, actions, generator=generator, dtype=torch.float64)
    rewards = torch.zeros_like(logits)
    rewards[..., 0] = 1
    policy = logits.softmax(-1)
    measured = update(name, logits, rewards=rewards, baseline=0.0, frequencies=policy, sampled=False)
    expected = beta(name, policy[..., :1], actions) * (rewards - policy)
    torch.testing.assert_close(measured, expected, rtol=1e-6, atol=1e-10)  # GRPO's ε of 1e-8 beside σ


@pytest.mark.parametrize("layout", [torch.clone, actions_before_contexts], ids=["contiguous", "actions first"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("sampled", [True, False])
@pytest.mark.parametrize("name", objectives.names())
def test_the_fast_gradient_is_autograds_through_objective_and_softmax(name, sampled, dtype, layout):
    generator = torch.Generator().manual_seed(5)
    logits = layout(2 * torch.randn(3, 7, 10, generator=generator, dtype=dtype))
    policy = logits.softmax(-1)
    rewards = layout(torch.eye(10, dtype=dtype)[0].expand(3, 7, 10))
    frequencies = policy
    if sampled:
        counts = torch.distributions.Multinomial(20, policy)
        torch.manual_seed(6)
        frequencies = layout(counts.sample() / 20)
    feedback = Feedback(rewards, 0.5 if sampled else 0.0, frequencies, sampled)
    objective = objectives.get(name)

    leaf = logits.clone().requires_grad_()
    behaviour = logits.log_softmax(-1)
    (plain,) = torch.autograd.grad(enumerated_loss(objective, leaf.log_softmax(-1), behaviour, feedback).sum(), leaf)
    fast = snapshot_gradient(objective, behaviour, policy, feedback)
    tolerance = 1e-12 if dtype == torch.float64 else 1e-5
    torch.testing.assert_close(fast, plain, rtol=tolerance, atol=tolerance)
    assert plain.abs().max() > 1e-3
    fallback = through_softmax(by_autograd(objective, behaviour, feedback), policy)
    torch.testing.assert_close(fallback, plain, rtol=tolerance, atol=tolerance)


class DoubledPolicyGradient(PolicyGradient):
    """Replaces the terms and inherits a closed form that is no longer theirs."""

    def __call__(self, logp, logp_old, signal):
        return 2 * super().__call__(logp, logp_old, signal)


def test_a_closed_form_inherited_past_other_terms_is_not_used():
    logp = torch.tensor([[0.2, 0.8]], dtype=torch.float64).log()
    feedback = Feedback(torch.tensor([[1.0, 0.0]], dtype=torch.float64), 0.0, logp.exp(), sampled=False)
    pg = objectives.get("pg")
    plain = snapshot_gradient(pg, logp, logp.exp(), feedback)
    doubled = snapshot_gradient(replace(pg, loss=DoubledPolicyGradient()), logp, logp.exp(), feedback)
    torch.testing.assert_close(doubled, 2 * plain)


def test_sampled_tpo_standardises_the_mean_score_vector_over_all_actions():
    generator = torch.Generator().manual_seed(2)
    logits = torch.randn(4, 100, generator=generator, dtype=torch.float64)
    counts = torch.multinomial(logits.softmax(-1), 50, replacement=True, generator=generator)
    frequencies = torch.zeros_like(logits).scatter_add_(1, counts, torch.ones(4, 50, dtype=torch.float64)) / 50
    rewards = torch.zeros_like(logits)
    rewards[:, 0] = 1
    measured = update("tpo", logits, rewards=rewards, baseline=0.5, frequencies=frequencies, sampled=True)
    scores = frequencies * (rewards - 0.5)
    u = (scores - scores.mean(-1, keepdim=True)) / scores.std(-1, correction=0, keepdim=True)
    policy = logits.softmax(-1)
    torch.testing.assert_close(measured, (policy.log() + u).softmax(-1) - policy)


@pytest.mark.parametrize("name", ["pg", "dg", "grpo"])
def test_counts_give_the_update_of_the_samples_one_by_one(name):
    generator = torch.Generator().manual_seed(3)
    logits = torch.randn(100, generator=generator, dtype=torch.float64) + 2 * torch.eye(100, dtype=torch.float64)[0]
    samples = torch.multinomial(logits.softmax(-1), 60, replacement=True, generator=generator)
    rewards = torch.eye(100, dtype=torch.float64)[0]
    frequencies = torch.bincount(samples, minlength=100).double() / 60
    measured = update(name, logits, rewards=rewards, baseline=0.5, frequencies=frequencies, sampled=True)
    policy = logits.softmax(-1)
    r = (samples == 0).double()
    advantage = (r - r.mean()) / (r.std(correction=0) + 1e-8) if name == "grpo" else r - 0.5
    if name == "dg":
        advantage = advantage * torch.sigmoid(-advantage * policy[samples].log())
    expected = (advantage[:, None] * (torch.eye(100, dtype=torch.float64)[samples] - policy)).mean(0)
    torch.testing.assert_close(measured, expected)


def test_the_memory_layout_of_multi_context_changes_nothing_but_strides():
    values = torch.arange(24.0).reshape(2, 3, 4)
    laid_out = actions_before_contexts(values)
    assert torch.equal(laid_out, values)
    assert flat(laid_out).data_ptr() == laid_out.data_ptr()  # a view
    flat(laid_out).mul_(2)
    assert torch.equal(laid_out, 2 * values)


@pytest.mark.parametrize("experiment", TRAINERS)
@pytest.mark.parametrize("objective", objectives.names())
def test_every_objective_trains(experiment, objective):
    settings, trainer = TRAINERS[experiment]
    records = trainer(settings(objective=objective, steps=12), range(3), CPU).advance(12)
    error = records.metrics["error"]
    assert error.shape == (3, 12)
    assert error.isfinite().all()
    assert (error[:, -1] < error[:, 0]).all()


@pytest.mark.parametrize("experiment", TRAINERS)
def test_stopping_and_resuming_changes_no_bit(experiment):
    settings, trainer = TRAINERS[experiment]
    whole = trainer(settings(steps=120), range(3), CPU)
    whole_records = whole.advance(120)
    for cut in (1, 49, 50, 51, 119):
        first = trainer(settings(steps=120), range(3), CPU)
        before = first.advance(cut)
        second = trainer(settings(steps=120), range(3), CPU)
        second.load_state_dict({name: value.clone() for name, value in first.state_dict().items()})
        second.step = first.step
        after = second.advance(120)
        for name, values in whole_records.metrics.items():
            joined = torch.cat([before.metrics[name], after.metrics[name]], 1)
            assert torch.equal(joined.nan_to_num(-1), values.nan_to_num(-1)), (cut, name)
        assert torch.equal(whole.state_dict()["logits"], second.state_dict()["logits"])


@pytest.mark.parametrize("experiment", TRAINERS)
def test_a_seed_is_the_same_alone_and_in_company(experiment):
    settings, trainer = TRAINERS[experiment]
    together = trainer(settings(steps=40), range(5), CPU).advance(40).metrics["error"]
    alone = trainer(settings(steps=40), [3], CPU).advance(40).metrics["error"]
    torch.testing.assert_close(together[3:4], alone, rtol=1e-5, atol=1e-6)


def test_objectives_are_compared_on_the_same_draws():
    first = MultiContextTrainer(MultiContext(objective="pg"), range(4), CPU).state_dict()["logits"]
    second = MultiContextTrainer(MultiContext(objective="tpo"), range(4), CPU).state_dict()["logits"]
    assert torch.equal(first, second)
    assert not torch.equal(first[0], first[1])
    # Single context: the first step of every objective samples the same actions from the same uniform policy.
    trainers = [SingleContextTrainer(SingleContext(objective=name), range(4), CPU) for name in ("pg", "tpo")]
    uniform = torch.full((4, 100), 0.01, dtype=torch.float64)
    assert torch.equal(*(trainer._frequencies(uniform, 0) for trainer in trainers))


def test_sampled_actions_follow_the_policy():
    trainer = SingleContextTrainer(SingleContext(actions=4, batch=2000, steps=50), range(8), CPU)
    policy = torch.tensor([0.6, 0.0, 0.1, 0.3], dtype=torch.float64).expand(8, 4)
    frequencies = torch.stack([trainer._frequencies(policy, step) for step in range(50)])
    torch.testing.assert_close(frequencies.sum(-1), torch.ones(50, 8, dtype=torch.float64))
    assert (frequencies[..., 1] == 0).all()
    spread = (policy * (1 - policy) / (2000 * 400)).sqrt()
    assert ((frequencies.mean((0, 1)) - policy[0]).abs() <= 4 * spread[0]).all()
    assert not torch.equal(frequencies[0], frequencies[1])


def test_every_step_has_the_same_length():
    for settings, trainer in TRAINERS.values():
        made = trainer(settings(steps=3, step_size=0.25), range(2), CPU)
        before = made.state_dict()["logits"].clone()
        made.advance(1)
        moved = (made.state_dict()["logits"] - before).flatten(1).norm(dim=1)
        torch.testing.assert_close(moved, torch.full_like(moved, 0.25))


def test_misalignment_resolves_tiny_angles_and_counts_no_update_as_orthogonal():
    ideal = torch.tensor([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [0.0, 0.0]], dtype=torch.float64)
    angled = torch.tensor([[3.0, 3e-10], [0.0, 2.0], [0.0, 0.0], [1.0, 0.0]], dtype=torch.float64)
    exact, with_epsilon = misalignment(angled, ideal)
    torch.testing.assert_close(exact, torch.tensor([0.5e-20, 1.0, 1.0, 1.0], dtype=torch.float64), rtol=1e-6, atol=0)
    # ε moves the measure by about ε/2 for vectors of length one.
    assert with_epsilon[0].item() == pytest.approx(0.5e-12 * (1 + 1 / 9), rel=1e-3)
    assert with_epsilon[1:].tolist() == [1.0, 1.0, 1.0]


@pytest.mark.parametrize(
    ("settings", "changes", "key"),
    [
        (SingleContext, {"actions": 1}, "actions"),
        (SingleContext, {"batch": 0}, "batch"),
        (SingleContext, {"steps": 0}, "steps"),
        (SingleContext, {"steps": -3}, "steps"),
        (SingleContext, {"step_size": 0.0}, "step_size"),
        (SingleContext, {"step_size": math.nan}, "step_size"),
        (SingleContext, {"dtype": "float16"}, "dtype"),
        (SingleContext, {"experiment_seed": -1}, "experiment_seed"),
        (SingleContext, {"objective": "tppo"}, "objective"),
        (SingleContext, {"options": {"eta": 0}}, "eta"),
        (MultiContext, {"contexts": 0}, "contexts"),
        (MultiContext, {"actions": 1}, "actions"),
        (MultiContext, {"measure_every": 0}, "measure_every"),
        (MultiContext, {"steps": 0}, "steps"),
    ],
)
def test_settings_that_make_no_sense_are_refused_by_key(settings, changes, key):
    with pytest.raises(ValueError, match=rf"^{key}: ") as caught:
        settings(**changes)
    assert "\n" not in str(caught.value)
