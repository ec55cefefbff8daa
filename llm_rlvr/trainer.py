"""TRL's ``GRPOTrainer`` with the update given by any objective of the registry.

    objective = signal + loss

TRL samples, scores, evaluates, saves and steps; here the K scores of a prompt become the objective's signal, and the
objective's loss replaces TRL's. (TRL's own ``TPOTrainer`` is Triple Preference Optimization.)
"""

import logging
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from trl.trainer.grpo_config import GRPOConfig
from trl.trainer.grpo_trainer import GRPOTrainer
from trl.trainer.utils import split_tensor_dict

from common import objectives
from common.errors import UserError
from common.objectives import Objective, Signal, reduce, score_diagnostics, sequence_logp, target_diagnostics
from llm_rlvr.groups import require_whole_groups, shuffled_groups

logger = logging.getLogger(__name__)

_GROWTH = 5
"""How many times the first disagreement of sampler and trainer, or 0.001 nats, is taken for rounding still."""


class TargetPolicyTrainer(GRPOTrainer):
    """A drop-in for ``GRPOTrainer``: the same arguments, and an objective.

    With a target (TPO), ℓ [B, K] aggregates a completion's token log-probabilities and ∂L/∂ℓ = (p − q)/B. With
    advantages, the loss is per token: averaged over a completion's tokens, then over the B·K completions. Completions
    without tokens, or that no reward function could score, leave their group. ``beta`` adds TRL's KL to the reference
    model, averaged over the tokens of the whole optimiser step. B counts all prompts of an optimiser step, so that
    micro-batches give the same gradient however they are cut between groups (arXiv 2604.06159, sections 2 and 4).

    Args:
        objective: a registered name, or ``module:ATTRIBUTE`` for an ``Objective`` of your own.
        objective_options: replacements for its default options, e.g. ``{"eta": 0.5}``.
        candidate_logprob: "mean" or "sum", how token log-probabilities become a candidate's ℓ under a target.
        sampler_tolerance: how far vLLM's log-probabilities of what it just sampled may lie from the model's, in nats a
            token on average, before a warning says that weights do not reach it; or five times as far as at first.
        allow_biased_sampling: accept temperature ≠ 1, top-k, top-p or min-p, which sample from another distribution
            than the one whose log-probabilities make the target.

    Raises:
        UserError: an unknown objective or option, sampling that a target does not allow, or a batch size that cuts
            groups (naming one that fits), or an option of TRL's own loss that would have no effect here.
    """

    _buffered_inputs: list[dict[str, Any]] | None
    _scores: Tensor
    """As TRL gathered them: rewards of all processes, weighted and summed, NaN where unscorable."""

    def __init__(
        self,
        *args: Any,
        objective: str = "tpo",
        objective_options: Mapping[str, float | bool] | None = None,
        candidate_logprob: str = "mean",
        sampler_tolerance: float = 0.1,
        allow_biased_sampling: bool = False,
        **kwargs: Any,
    ) -> None:
        try:
            self.objective: Objective = objectives.get(objective, objective_options)
        except ValueError as error:
            raise UserError(str(error)) from error
        if candidate_logprob not in ("mean", "sum"):
            raise UserError(f"candidate_logprob: {candidate_logprob!r} is not allowed; choose mean or sum")
        if self.objective.needs_labels:
            raise UserError(f"objective: {objective} needs labels, which completions do not have")
        self.candidate_logprob = candidate_logprob
        self.sampler_tolerance = sampler_tolerance
        self._first_disagreement: float | None = None
        super().__init__(*args, **kwargs)
        _require_fitting(self.args)
        _require_effective(self.args)
        if self.objective.loss.follows == "target" and not allow_biased_sampling:
            _require_unbiased(self.args)

    def _calculate_rewards(self, *args: Any, **kwargs: Any) -> Tensor:
        rewards: Tensor = super()._calculate_rewards(*args, **kwargs)
        scores = (rewards * self.reward_weights.to(rewards.device)).nansum(1)
        self._scores = scores.masked_fill(rewards.isnan().all(1), torch.nan)
        return rewards

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        rows: dict[str, Any] = super()._generate_and_score_completions(inputs)
        count = len(inputs)
        first = self.accelerator.process_index * count
        rows["scores"] = self._scores[first : first + count]
        group_size = self.num_generations if self.model.training else self.num_generations_eval
        rows["groups"] = torch.arange(count, device=rows["scores"].device) // group_size
        if "sampling_per_token_logps" in rows and "old_per_token_logps" in rows:
            self._check_sampler(rows)
        return rows

    def _check_sampler(self, rows: Mapping[str, Tensor]) -> None:
        """Compare the sampler's log-probabilities of the completions that it just sampled with the model's.

        Weights were sent to it right before, so that what rounding leaves is all there may be. Also noted where fine.
        """
        sampled, own = rows["sampling_per_token_logps"], rows["old_per_token_logps"]
        known = rows["completion_mask"].bool() & sampled.isfinite()
        difference = torch.where(known, own - sampled, 0).abs().sum() / known.sum().clamp(min=1)
        self._note("sampler_disagreement", difference)
        worst = float(self.accelerator.gather(difference).max())
        if self._first_disagreement is None:
            self._first_disagreement = worst
        tolerance = min(self.sampler_tolerance, max(_GROWTH * self._first_disagreement, _GROWTH * 1e-3))
        if not worst <= tolerance:
            logger.warning(
                "sampler and trainer disagree by %.3g nats a token at step %d (tolerance %.3g): the sampler's weights"
                " are not the trainer's, or its precision is lower",
                worst,
                self.state.global_step,
                tolerance,
            )

    def _prepare_inputs(self, generation_batch: Any) -> dict[str, Any]:
        """Generate when it is time, then hand out micro-batches of whole groups; TRL would shuffle single rows."""
        if not self.model.training:
            prepared: dict[str, Any] = super()._prepare_inputs(generation_batch)
            return prepared
        steps = self.args.steps_per_generation
        if self._step % (steps * self.num_iterations) == 0 or self._buffered_inputs is None:
            rows = shuffled_groups(self._generate_and_score_completions(generation_batch), self.num_generations)
            self._buffered_inputs = split_tensor_dict(rows, steps)
        micro_batch: dict[str, Any] = self._buffered_inputs[self._step % steps]
        return micro_batch

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> Tensor:
        training = self.model.training
        group_size = self.num_generations if training else self.num_generations_eval
        if group_size < 2:  # an evaluation with one completion a prompt has rewards, and no loss
            return torch.zeros((), device=inputs["scores"].device)
        require_whole_groups(inputs["groups"], group_size)
        mask = inputs["completion_mask"] * inputs.get("tool_mask", 1)
        logp, entropies, _ = self._get_per_token_logps_and_entropies(
            model,
            torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1),
            torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], 1),
            inputs["completion_ids"].size(1),
            compute_entropy=True,
        )
        logp_old = inputs.get("old_per_token_logps")
        logp_old = logp.detach() if logp_old is None else logp_old

        def grouped(values: Tensor) -> Tensor:
            return values.unflatten(0, (-1, group_size))

        loss, signal = self._objective_loss(grouped(logp), grouped(logp_old), grouped(mask), grouped(inputs["scores"]))
        accumulated = self.current_gradient_accumulation_steps if training else 1
        loss = loss / accumulated
        if self.beta:
            ratio = inputs["ref_per_token_logps"] - logp
            kl = torch.where(mask > 0, ratio.exp() - ratio - 1, 0).sum()
            tokens = inputs["num_items_in_batch"].clamp(min=1.0) / self.accelerator.num_processes
            if training:  # the count is that of the generation batch
                tokens = tokens * accumulated / self.args.steps_per_generation
            loss = loss + self.beta * kl / tokens
            self._note("kl", kl / mask.sum().clamp(min=1))
        self._note("entropy", (entropies * mask).sum() / mask.sum().clamp(min=1))
        for name, values in score_diagnostics(grouped(inputs["scores"]).nan_to_num(), signal.weights).items():
            self._note(name, values.float().mean())
        return loss

    def _objective_loss(self, logp: Tensor, logp_old: Tensor, mask: Tensor, scores: Tensor) -> tuple[Tensor, Signal]:
        """Return the objective's loss over the B groups of a micro-batch, from tensors [B, K, T] and scores [B, K]."""
        weights = (mask.any(-1) & scores.isfinite()).to(logp.dtype)
        scores = torch.where(weights > 0, scores.to(logp.dtype), 0)
        if self.objective.loss.follows == "target":
            candidate = sequence_logp(logp, mask, self.candidate_logprob)
            candidate_old = sequence_logp(logp_old, mask, self.candidate_logprob)
            signal = self.objective.signal(scores, candidate_old, weights)
            for name, values in target_diagnostics(candidate, signal).items():
                self._note(f"target/{name}", values.mean())
            terms = self.objective.loss(candidate, candidate_old, signal)
            return reduce(terms, signal.weights, normaliser=len(scores)), signal
        baseline = None
        if not self.objective.grouped:
            baseline = (weights * scores).sum(-1, keepdim=True) / weights.sum(-1, keepdim=True).clamp_min(1)
        signal = self.objective.signal(scores, None, weights, baseline)
        assert signal.weights is not None
        terms = self.objective.loss(logp, logp_old, signal)
        length = mask.sum(-1, keepdim=True).clamp_min(1)
        return reduce(terms, signal.weights[..., None] * mask / length, normaliser=scores.numel()), signal

    def _note(self, name: str, value: Tensor) -> None:
        """Add a metric to TRL's log, as a mean over processes."""
        mode = "train" if self.model.training else "eval"
        self._metrics[mode][name].append(self.accelerator.gather(value.detach().float()).nanmean().item())


def _require_fitting(args: GRPOConfig) -> None:
    size, group = args.per_device_train_batch_size, args.num_generations
    if size % group:
        fitting = -(-size // group) * group
        raise UserError(
            f"per_device_train_batch_size: {size} cuts groups of num_generations={group} candidates; {fitting} fits"
        )


_OF_TRLS_LOSS = {
    "entropy_coef": 0.0,
    "use_adaptive_entropy": False,
    "top_entropy_quantile": 1.0,
    "off_policy_mask_threshold": None,
    "delta": None,
    "use_liger_kernel": False,
    "importance_sampling_level": "token",
    "multi_objective_aggregation": "sum_then_normalize",
}
"""Options that change TRL's loss alone, and the values at which they do nothing."""


def _require_effective(args: GRPOConfig) -> None:
    for key, inert in _OF_TRLS_LOSS.items():
        if getattr(args, key) != inert:
            raise UserError(
                f"{key}: {getattr(args, key)} is not allowed; it belongs to TRL's loss, which the objective replaces"
            )


_PLAIN_SAMPLING = {
    "temperature": (1.0,),
    "top_p": (1.0,),
    "top_k": (0, -1, None),
    "min_p": (0.0, None),
    "repetition_penalty": (1.0, None),
}
"""Values at which completions come from the whole distribution."""


def _require_unbiased(args: GRPOConfig) -> None:
    given = {key: getattr(args, key) for key in _PLAIN_SAMPLING} | {
        key: value for key, value in (args.generation_kwargs or {}).items() if key in _PLAIN_SAMPLING
    }
    for key, plain in _PLAIN_SAMPLING.items():
        value = given[key]
        if value not in plain:
            raise UserError(
                f"{key}: {value} is not allowed with a target, whose log-probabilities are those of plain sampling;"
                f" use {plain[0]}, or allow_biased_sampling=True"
            )
