"""Groups that an objective declares to have gradient 0 do have it, in the parameters, and it declares enough."""

import itertools

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
