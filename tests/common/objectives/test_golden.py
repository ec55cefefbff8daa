"""Numbers computed once, independently of the package."""

from pathlib import Path

import pytest
import torch
import yaml
from torch import Tensor

from common import objectives
from common.objectives import reduce, sequence_logp, standardise, target_diagnostics

GOLDEN = yaml.safe_load(Path(__file__).with_name("golden.yaml").read_text(encoding="utf-8"))
PRINTED = 1e-6
"""The precision in which golden.yaml is printed."""


def tensor(values: list) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def assert_printed(actual: Tensor, expected: list | float, precision: float = PRINTED) -> None:
    torch.testing.assert_close(actual.detach(), tensor(expected), rtol=0, atol=precision)


def padded(rows: list[list[float]]) -> tuple[Tensor, Tensor]:
    """Return token log-probabilities [K, T], with a poisonous padding, and their mask."""
    length = max(map(len, rows))
    values = tensor([row + [float("nan")] * (length - len(row)) for row in rows])
    return values, ~values.isnan()


class TestScores:
    scores = GOLDEN["scores"]

    def test_population_z_scores(self):
        assert_printed(standardise(tensor(self.scores["input"])).scores, self.scores["population_z"])

    def test_near_constant_scores_are_exactly_zero(self):
        u, varied = standardise(tensor(self.scores["near_constant_input"]))
        assert u.tolist() == self.scores["near_constant_standardised"]
        assert not varied.item()

    @pytest.mark.parametrize("scores", scores["scale_free_inputs"])
    def test_scale_does_not_count(self, scores):
        assert_printed(standardise(tensor(scores)).scores, self.scores["scale_free_u"])


class TestTarget:
    target = GOLDEN["target"]

    @pytest.mark.parametrize("eta", [0.5, 1, 2])
    def test_target_loss_divergence_and_gradient(self, eta, step):
        expected = self.target[f"eta_{eta}"]
        logp_old = tensor(self.target["p_old"]).log()
        loss, gradient, signal = step(objectives.get("tpo", {"eta": eta}), tensor(self.target["scores"]), logp_old)
        assert_printed(signal.target, expected["q"])
        assert_printed(loss, expected["loss_at_p_old"])
        assert_printed(gradient, expected["grad_logits"])
        assert_printed(target_diagnostics(logp_old, signal)["kl_q_p"], expected["kl_q_p"])

    def test_without_anchor(self):
        signal = objectives.get("tpo_no_anchor").signal(tensor(self.target["scores"]))
        assert_printed(signal.target, self.target["no_anchor_q"])


@pytest.mark.parametrize(("actions", "expected"), GOLDEN["lambda_by_actions"].items())
def test_odds_that_one_reward_among_so_many_actions_gives(actions, expected):
    scores = torch.eye(actions, dtype=torch.float64)[0]
    q = objectives.get("tpo").signal(scores, torch.full_like(scores, 1 / actions).log()).target
    assert_printed(q[0] / q[1], expected, precision=5e-4)  # printed to three decimals


@pytest.mark.parametrize(("name", "expected"), GOLDEN["beta_at_p_0.1_A_10"].items())
def test_share_of_the_step_at_ten_percent(name, expected):
    objective = objectives.get(name)
    policy = torch.full((10,), 0.1, dtype=torch.float64)
    logits = policy.log().requires_grad_()
    logp = torch.log_softmax(logits, -1)
    correct = torch.eye(10, dtype=torch.float64)[0]
    signal = objective.signal(correct, logp.detach(), None if objective.over_actions else policy)
    reduce(objective.loss(logp, logp.detach(), signal), signal.weights).backward()
    assert_printed(-logits.grad, (expected * (correct - policy)).tolist())


class TestTokens:
    tokens = GOLDEN["tokens"]
    scores = tensor(tokens["scores"])

    @pytest.mark.parametrize("beta", [0.04, 0])
    def test_one_grpo_ratio_per_sequence(self, beta, step):
        logp, logp_old = (sequence_logp(*padded(self.tokens[key])) for key in ("logp", "logp_old"))
        loss, _, _ = step(objectives.get("grpo", {"beta": beta}), self.scores, logp, logp_old)
        assert_printed(loss, self.tokens["grpo_candidate_ratio_sum_over_k"][f"beta_{beta}"])

    def test_delightful_gradient_per_token(self):
        objective = objectives.get("dg")
        logp, mask = padded(self.tokens["logp"])
        signal = objective.signal(self.scores, baseline=self.scores.mean())
        per_sequence = reduce(objective.loss(logp, None, signal), mask, dims=-1)
        assert_printed(per_sequence.mean(), self.tokens["dg_advantage_minus_mean_sum_per_sequence"])

    @pytest.mark.parametrize(("how", "gradient_key"), [("sum", "grad_sequence_logp"), ("mean", "grad_mean_logp")])
    def test_target_over_sequences(self, how, gradient_key, step):
        expected = self.tokens[f"tpo_{how}"]
        logp, logp_old = (sequence_logp(*padded(self.tokens[key]), how) for key in ("logp", "logp_old"))
        loss, gradient, signal = step(objectives.get("tpo"), self.scores, logp, logp_old)
        assert_printed(signal.target, expected["q"])
        assert_printed(loss, expected["loss"])
        assert_printed(gradient, expected[gradient_key])


@pytest.mark.parametrize("how", ["sum", "mean"])
def test_long_completions_need_the_mean(how):
    case = GOLDEN["length"]
    rows = [[total / n] * n for total, n in zip(case["sequence_logp_sum"], case["lengths"], strict=True)]
    q = objectives.get("tpo").signal(tensor(case["scores"]), sequence_logp(*padded(rows), how)).target
    assert_printed(q, case[f"q_{how}_anchor"])
