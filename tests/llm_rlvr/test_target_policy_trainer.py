"""The trainer on a real, tiny model: its gradients, its groups, and what it refuses."""

import inspect
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM
from trl import GRPOConfig, GRPOTrainer

from common import objectives
from common.errors import UserError
from common.objectives import sequence_logp
from llm_rlvr import TargetPolicyTrainer
from llm_rlvr.groups import require_whole_groups, shuffled_groups
from tests.llm_rlvr import tiny_models

K = 4


def arguments(tmp_path, **changes):
    given: dict[str, Any] = {
        "output_dir": str(tmp_path),
        "per_device_train_batch_size": 16,
        "num_generations": K,
        "max_completion_length": 6,
        "max_steps": 1,
        "learning_rate": 0.5,
        "optim": "sgd",
        "lr_scheduler_type": "constant",
        "max_grad_norm": 0.0,
        "use_cpu": True,
        "bf16": False,
        "gradient_checkpointing": False,
        "report_to": [],
        "save_strategy": "no",
        "logging_steps": 1,
        "disable_tqdm": True,
        "beta": 0.0,
        "loss_type": "grpo",
        "seed": 0,
    }
    return GRPOConfig(**(given | changes))


class Recording(TargetPolicyTrainer):
    """Keeps every gradient step's token log-probabilities with their gradient, and the micro-batch."""

    def __init__(self, *args, **kwargs):
        self.steps: list[tuple[dict, torch.Tensor]] = []
        super().__init__(*args, **kwargs)

    def _get_per_token_logps_and_entropies(self, *args, **kwargs):
        logp, *rest = super()._get_per_token_logps_and_entropies(*args, **kwargs)
        if logp.requires_grad:
            logp.retain_grad()
            self.latest = logp
        return (logp, *rest)

    def _compute_loss(self, model, inputs):
        loss = super()._compute_loss(model, inputs)
        self.steps.append((inputs, self.latest))
        return loss


def trained(tmp_path, objective="tpo", kind=Recording, reward=tiny_models.share_of_digits, options=None, **changes):
    own = {"candidate_logprob": changes.pop("candidate_logprob", "mean"), "objective_options": options}
    tiny_models.model().save_pretrained(tmp_path / "model")  # where TRL finds the reference model, too
    trainer = kind(
        model=AutoModelForCausalLM.from_pretrained(tmp_path / "model"),
        reward_funcs=reward,
        args=arguments(tmp_path, **changes),
        train_dataset=tiny_models.prompts(),
        processing_class=tiny_models.tokenizer(),
        objective=objective,
        **own,
    )
    trainer.train()
    return trainer


def ragged(completions, **_):
    """Scores with an unscorable completion here and there."""
    scores = tiny_models.share_of_digits(completions)
    return [None if "a" in text else score for text, score in zip(completions, scores, strict=True)]


@pytest.mark.parametrize("how", ["mean", "sum"])
@pytest.mark.parametrize("reward", [tiny_models.share_of_digits, ragged])
@pytest.mark.parametrize("epochs", [1, 2])
@pytest.mark.parametrize("accumulation", [1, 4])
def test_the_gradient_is_p_minus_q_over_the_groups(tmp_path, how, reward, epochs, accumulation):
    """∂L/∂ℓ by autograd through the real model's step, against softmaxes written out here."""
    trainer = trained(
        tmp_path,
        reward=reward,
        candidate_logprob=how,
        num_iterations=epochs,
        max_steps=epochs,
        gradient_accumulation_steps=accumulation,
        per_device_train_batch_size=16 // accumulation,
    )
    assert len(trainer.steps) == epochs * accumulation
    for inputs, logp in trainer.steps:
        mask, scores = inputs["completion_mask"], inputs["scores"]
        length = mask.sum(1) if how == "mean" else torch.ones(len(mask))
        now = (logp.detach() * mask).sum(1) / length
        old = inputs.get("old_per_token_logps", logp.detach())
        old = (old * mask).sum(1) / length
        for group in range(len(mask) // K):
            rows = torch.arange(group * K, group * K + K)
            rows = rows[scores[rows].isfinite()]
            left = set(range(group * K, group * K + K)) - set(rows.tolist())
            u = scores[rows].double()
            spread = u.std(correction=0)
            u = (u - u.mean()) / spread if spread > 1e-6 else torch.zeros_like(u)
            q = (old[rows].double() + u).softmax(0)
            p = now[rows].double().softmax(0)
            expected = ((p - q) / 4).float()  # 4 prompts an optimiser step
            for row, value in zip(rows.tolist(), expected, strict=True):
                tokens = logp.grad[row][mask[row] > 0]
                assert torch.allclose(tokens, value / length[row], atol=1e-6, rtol=1e-5)
            for row in left:
                assert not logp.grad[row].any()


@pytest.mark.parametrize("objective", ["tpo", "grpo", "group_pg", "dg"])
def test_accumulation_changes_nothing(tmp_path, objective):
    whole = trained(tmp_path / "1", objective)
    parts = trained(tmp_path / "4", objective, gradient_accumulation_steps=4, per_device_train_batch_size=4)
    before = tiny_models.model().state_dict()
    moved = 0.0
    for (name, one), (_, other) in zip(whole.model.named_parameters(), parts.model.named_parameters(), strict=True):
        torch.testing.assert_close(one, other, atol=1e-6, rtol=1e-5)
        moved += float((one - before[name]).abs().sum().detach())
    assert moved > 1e-3


def stock_loss(trainer, inputs, advantages):
    """TRL's own loss on a micro-batch with advantages of ours."""
    trainer.model.zero_grad()
    trainer.model.train()
    GRPOTrainer._compute_loss(trainer, trainer.model, {**inputs, "advantages": advantages}).backward()
    return [parameter.grad.clone() for parameter in trainer.model.parameters()]


def own_loss(trainer, inputs):
    trainer.model.zero_grad()
    trainer.model.train()
    TargetPolicyTrainer._compute_loss(trainer, trainer.model, inputs).backward()
    return [parameter.grad.clone() for parameter in trainer.model.parameters()]


def test_grpo_is_trls_where_the_definitions_agree(tmp_path):
    """The clipped surrogate per token off the snapshot, with advantages that are standardised our way."""
    trainer = trained(tmp_path, "grpo_no_kl", num_iterations=2, max_steps=1)
    inputs, _ = trainer.steps[0]
    advantages = objectives.standardise(inputs["scores"].view(-1, K))[0].flatten()
    for ours, theirs in zip(own_loss(trainer, inputs), stock_loss(trainer, inputs, advantages), strict=True):
        assert (ours - theirs).norm() <= 1e-5 * theirs.norm() + 1e-7
    assert any(gradient.norm() > 1e-4 for gradient in own_loss(trainer, inputs))


def test_tpo_is_a_policy_gradient_with_advantages_k_times_q_minus_p(tmp_path):
    """On the snapshot, so that TRL's stock loss is a second implementation of the gradient (mean log-probability)."""
    trainer = trained(tmp_path, learning_rate=0.0)
    inputs, logp = trainer.steps[0]
    ell = sequence_logp(logp.detach(), inputs["completion_mask"], "mean").view(-1, K)
    q = objectives.get("tpo").signal(inputs["scores"].view(-1, K), ell).target
    advantages = (K * (q - ell.softmax(-1))).flatten()
    for ours, theirs in zip(own_loss(trainer, inputs), stock_loss(trainer, inputs, advantages), strict=True):
        assert (ours - theirs).norm() <= 1e-5 * theirs.norm() + 1e-7


@pytest.mark.parametrize("accumulation", [1, 4])
def test_the_kl_term_is_trls_per_token(tmp_path, accumulation):
    """With equal scores TPO is silent on the snapshot, and what is left is β·KL over the step's tokens."""
    trainer = trained(
        tmp_path,
        reward=lambda completions, **_: [1.0] * len(completions),
        beta=0.5,
        gradient_accumulation_steps=accumulation,
        per_device_train_batch_size=16 // accumulation,
    )
    tokens = sum(inputs["completion_mask"].sum() for inputs, _ in trainer.steps)
    for inputs, logp in trainer.steps:
        ratio = inputs["ref_per_token_logps"] - logp.detach()
        expected = 0.5 * (1 - ratio.exp()) * inputs["completion_mask"] / tokens
        torch.testing.assert_close(logp.grad, expected, atol=1e-6, rtol=1e-5)


def test_diagnostics_are_logged(tmp_path):
    trainer = trained(tmp_path)
    logged = trainer.state.log_history[0]
    names = ("target/kl_q_p", "target/entropy_p", "target/entropy_q", "target/total_variation")
    assert set(names) | {"zero_variance", "all_fail", "reward"} <= set(logged)
    assert 0 < logged["target/total_variation"] < 1


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"per_device_train_batch_size": 6, "gradient_accumulation_steps": 2}, "8 fits"),
        ({"temperature": 0.7}, "temperature: 0.7 is not allowed"),
        ({"top_p": 0.9}, "top_p: 0.9 is not allowed"),
        ({"top_k": 50}, "top_k: 50 is not allowed"),
        ({"repetition_penalty": 1.3}, "repetition_penalty: 1.3 is not allowed"),
        ({"generation_kwargs": {"temperature": 0.5}}, "temperature: 0.5 is not allowed"),
        ({"multi_objective_aggregation": "normalize_then_sum"}, "multi_objective_aggregation: normalize_then_sum"),
        ({"entropy_coef": 0.01}, "entropy_coef: 0.01 is not allowed; it belongs to TRL's loss"),
        ({"top_entropy_quantile": 0.2}, "top_entropy_quantile: 0.2 is not allowed"),
        ({"off_policy_mask_threshold": 0.5}, "off_policy_mask_threshold: 0.5 is not allowed"),
        ({"importance_sampling_level": "sequence"}, "importance_sampling_level: sequence is not allowed"),
        ({"objective": "tpoo"}, "did you mean 'tpo'"),
        ({"objective": "ce"}, "labels"),
        ({"candidate_logprob": "median"}, "choose mean or sum"),
    ],
)
def test_refusals(tmp_path, changes, words):
    with pytest.raises(UserError, match=words) as caught:
        trained(tmp_path, **changes)
    assert "\n" not in str(caught.value)


@settings(deadline=None, max_examples=50, derandomize=True)
@given(st.integers(1, 9), st.integers(1, 6), st.integers(0, 1000))
def test_shuffled_groups_stay_whole(groups, size, seed):
    rows = {
        "groups": torch.arange(groups * size) // size,
        "row": torch.arange(groups * size),
        "words": [str(row) for row in range(groups * size)],
        "count": torch.tensor(7.0),
        "absent": None,
    }
    shuffled = shuffled_groups(rows, size, torch.Generator().manual_seed(seed))
    require_whole_groups(shuffled["groups"], size)
    assert sorted(shuffled["row"].tolist()) == rows["row"].tolist()
    assert shuffled["words"] == [str(row) for row in shuffled["row"].tolist()]
    assert shuffled["count"] == 7
    assert shuffled["absent"] is None


@pytest.mark.parametrize("groups", [[0, 0, 1], [0, 1, 0, 1], [0, 0, 0, 0], [0, 0, 1, 2]])
def test_cut_groups_are_noticed(groups):
    with pytest.raises(RuntimeError, match="cut or mix groups of 2"):
        require_whole_groups(torch.tensor(groups), 2)


def test_trl_still_has_what_is_overridden():
    """An upgrade of TRL that changes these must be looked at."""
    expected = {
        "_prepare_inputs": ["self", "generation_batch"],
        "_calculate_rewards": ["self", "inputs", "prompts", "completions", "completion_ids_list"],
        "_generate_and_score_completions": ["self", "inputs"],
        "_compute_loss": ["self", "model", "inputs"],
    }
    for name, parameters in expected.items():
        assert list(inspect.signature(getattr(GRPOTrainer, name)).parameters) == parameters


def test_the_documented_example_runs(tmp_path, monkeypatch):
    page = (Path(__file__).parents[2] / "docs" / "target_policy_trainer.md").read_text()
    (example,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    tiny_models.model().save_pretrained(tmp_path / "tiny")
    tiny_models.tokenizer().save_pretrained(tmp_path / "tiny")
    monkeypatch.chdir(tmp_path)
    assert '"Qwen/Qwen3-1.7B"' in example
    names: dict[str, Any] = {}
    exec(example.replace('"Qwen/Qwen3-1.7B"', '"./tiny"').replace("GRPOConfig(", "GRPOConfig(use_cpu=True, "), names)
    assert names["trainer"].state.global_step == 2
