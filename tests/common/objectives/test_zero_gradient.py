"""Groups that an objective declares to have gradient 0 do have it, in the parameters, and it declares enough."""

import itertools
from dataclasses import fields, replace

import pytest
import torch
import torch.nn.functional as F

from common import objectives
from common.objectives import reduce, standardise

NAMES = objectives.names()
KINDS = ["different", "equal scores", "identical", "identical and equal scores"]
EQUAL = {"equal scores", "identical and equal scores"}
IDENTICAL = {"identical", "identical and equal scores"}
DECLARED = {
    "tpo": (EQUAL | IDENTICAL, IDENTICAL),
    "tpo_no_anchor": (IDENTICAL, IDENTICAL),
    "grpo": (EQUAL, set()),
    "grpo_no_kl": (EQUAL, EQUAL),
    "grpo_zv_masked": (EQUAL, EQUAL),
    "group_pg": (EQUAL, EQUAL),
}
"""The groups that may be skipped in the first epoch, and in later ones; none for the other objectives."""


class Rollout:
    """Twelve groups of five, three of each kind, whose candidates' ℓ = log σ(f·θ) share their group's parameters θ."""

    def __init__(self, dtype, seed, weighted):
        generator = torch.Generator().manual_seed(seed)
        features = torch.randn(12, 5, 3, dtype=dtype, generator=generator)
        self.scores = torch.rand(12, 5, dtype=dtype, generator=generator)
        self.kinds = [kind for kind in KINDS for _ in range(3)]
        self.identical = torch.tensor([kind.startswith("identical") for kind in self.kinds])
        self.scores[torch.tensor(["equal" in kind for kind in self.kinds])] = 0.35
        self.features = torch.where(self.identical[:, None, None], features[:, :1], features)
        self.start = torch.randn(12, 3, dtype=dtype, generator=generator)
        self.moved = self.start + torch.randn(12, 3, dtype=dtype, generator=generator)
        self.weights = torch.randint(0, 4, (12, 5), generator=generator).to(dtype) if weighted else None
        if weighted:
            self.weights[:, :2] = 1

    def logp(self, theta):
        return F.logsigmoid((self.features * theta[:, None]).sum(-1))

    @property
    def equal_scores(self):
        return ~standardise(self.scores, self.weights).varied.squeeze(-1)

    def gradient_norms(self, objective, epoch):
        """Return |∂L/∂θ| of each group."""
        scores = self.scores
        if objective.needs_labels:
            scores = F.one_hot(torch.zeros(12, dtype=torch.long), 5).to(scores)
        theta = (self.start if epoch == 0 else self.moved).clone().requires_grad_()
        logp_old = self.logp(self.start)
        signal = objective.signal(scores, logp_old, self.weights)
        loss = reduce(objective.loss(self.logp(theta), logp_old, signal), signal.weights)
        return torch.autograd.grad(loss, theta)[0].norm(dim=-1)


@pytest.mark.parametrize("epoch", [0, 1, 3])
@pytest.mark.parametrize("name", NAMES)
class TestDeclaredGroups:
    @pytest.mark.parametrize("weighted", [False, True])
    def test_have_gradient_zero(self, name, epoch, weighted, dtype, assert_close):
        registered = objectives.get(name)
        other = {"beta": 0.5, "anchored": name != "tpo"}
        variant = registered.with_options(**{key: other[key] for key in other.keys() & registered.options.keys()})
        for objective, seed in itertools.product([registered, variant], range(3)):
            rollout = Rollout(dtype, seed, weighted)
            declared = objective.zero_gradient(rollout.equal_scores, rollout.identical, snapshot=epoch == 0)
            norms = rollout.gradient_norms(objective, epoch)
            assert_close(norms[declared], torch.zeros(int(declared.sum())))
            different = torch.tensor([kind == "different" for kind in rollout.kinds])
            assert not declared[different].any()
            assert (norms[different] > 1e-3).all()

    def test_are_these(self, name, epoch):
        rollout = Rollout(torch.float64, 0, weighted=False)
        declared = objectives.get(name).zero_gradient(rollout.equal_scores, rollout.identical, snapshot=epoch == 0)
        assert declared.dtype == torch.bool
        kinds = {kind for kind, zero in zip(rollout.kinds, declared.tolist(), strict=True) if zero}
        assert kinds == DECLARED.get(name, (set(), set()))[min(epoch, 1)]

    def test_are_a_tensor_of_their_own(self, name, epoch):
        """A caller may write into the answer."""
        equal_scores, identical = torch.ones(2, 3, dtype=torch.bool), torch.ones(2, 3, dtype=torch.bool)
        declared = objectives.get(name).zero_gradient(equal_scores, identical, snapshot=epoch == 0)
        assert declared.shape == (2, 3)
        declared.fill_(False)
        assert equal_scores.all()
        assert identical.all()


@pytest.mark.parametrize(
    ("name", "epoch", "kind"),
    [
        ("tpo", 1, "equal scores"),  # pulled back to p_old
        ("tpo_no_anchor", 0, "equal scores"),  # drawn to the uniform distribution
        ("grpo", 1, "equal scores"),  # the KL term
        ("pg", 0, "equal scores"),
        ("group_pg", 0, "different"),
        ("ce", 0, "equal scores"),
    ],
)
def test_groups_that_must_not_be_skipped_have_a_gradient(name, epoch, kind):
    rollout = Rollout(torch.float64, 0, weighted=False)
    norms = rollout.gradient_norms(objectives.get(name), epoch)
    chosen = torch.tensor([other == kind for other in rollout.kinds])
    assert (norms[chosen] > 1e-3).all()


@pytest.mark.parametrize(("name", "snapshot", "later"), [("pg", True, True), ("dg", True, True), ("ppo", True, True)])
def test_samples_of_no_advantage(name, snapshot, later):
    """A·f(ℓ) has no gradient at A = 0; a KL term has none on the snapshot only."""
    objective = objectives.get(name)
    assert objective.ignores_zero_advantages(snapshot=True) is snapshot
    assert objective.ignores_zero_advantages(snapshot=False) is later
    logp = torch.tensor([-0.3, -1.0, -2.0], dtype=torch.float64, requires_grad=True)
    signal = objective.signal(torch.full((3,), 0.35, dtype=torch.float64), baseline=0.35)
    terms = objective.loss(logp, logp.detach() + torch.tensor([0.1, 0.0, -0.5]), signal)
    assert torch.autograd.grad(terms.sum(), logp)[0].tolist() == [0, 0, 0]


def test_a_kl_term_pulls_back_off_the_snapshot():
    pulled = objectives.get("ppo", {"beta": 0.04})
    assert pulled.ignores_zero_advantages(snapshot=True)
    assert not pulled.ignores_zero_advantages(snapshot=False)


def test_objectives_over_groups_are_not_asked():
    for name in ("tpo", "grpo", "group_pg", "ce"):
        assert not objectives.get(name).ignores_zero_advantages(snapshot=True)


@pytest.mark.parametrize("name", ["tpo", "grpo", "grpo_no_kl", "group_pg", "pg", "dg", "ppo"])
@pytest.mark.parametrize("part", ["signal", "loss"])
def test_nothing_is_taken_for_granted_of_a_rule_of_ones_own(name, part):
    """A subclass may add a term, an entropy bonus for example, that has a gradient whatever the scores are."""
    registered = objectives.get(name)
    kind = type(getattr(registered, part))
    own = type("Own", (kind,), {})
    rule = getattr(registered, part)
    options = {field.name: getattr(rule, field.name) for field in fields(rule)}
    objective = replace(registered, **{part: own(**options)})
    every = torch.ones(4, dtype=torch.bool)
    assert not objective.zero_gradient(every, every, snapshot=True).any()
    assert not objective.ignores_zero_advantages(snapshot=True)
