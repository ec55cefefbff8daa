"""``torchrun one_step.py FOLDER OBJECTIVE KL``: one SGD step on fixed completions.

They are shared out to the processes group by group, but for the objective ``advantages``: there each group is cut.
"""

import os
import sys
from pathlib import Path
from typing import Any

import torch
from trl import GRPOConfig, GRPOTrainer

from common import objectives
from common.objectives import sequence_logp
from llm_rlvr import TargetPolicyTrainer
from tests.llm_rlvr import tiny_models

GROUPS, K, PROMPT, LENGTH = 4, 4, 5, 6


def completions() -> dict[str, Any]:
    """Completions of different lengths, scores that differ within groups, one of them unscorable."""
    draw = torch.Generator().manual_seed(7)
    rows, words = GROUPS * K, len(tiny_models.tokenizer())
    lengths = torch.randint(1, LENGTH + 1, (rows, 1), generator=draw)
    scores = torch.rand(rows, generator=draw)
    scores[5] = torch.nan
    mask = (torch.arange(LENGTH) < lengths).long()
    return {
        "prompt_ids": torch.randint(3, words, (GROUPS, PROMPT), generator=draw).repeat_interleave(K, 0),
        "prompt_mask": torch.ones(rows, PROMPT, dtype=torch.long),
        "completion_ids": torch.randint(3, words, (rows, LENGTH), generator=draw),
        "completion_mask": mask,
        "scores": scores,
        "groups": torch.arange(rows) // K,
    }


class FixedCompletions(TargetPolicyTrainer):
    """Trains on this process's share of the completions."""

    def _prepare_inputs(self, generation_batch: Any) -> dict[str, Any]:
        everything = completions()
        share = GROUPS * K // self.accelerator.num_processes
        first = self.accelerator.process_index * share
        own = {name: rows[first : first + share] for name, rows in everything.items()}
        own["ref_per_token_logps"] = torch.full((share, LENGTH), -3.0)
        own["num_items_in_batch"] = everything["completion_mask"].sum()
        return own


class Advantages(GRPOTrainer):
    """TRL's own loss with A = K(q − p): the same gradient, row by row, so that processes may cut groups."""

    def _prepare_inputs(self, generation_batch: Any) -> dict[str, Any]:
        rows = completions()
        scored = rows["scores"].isfinite()
        weights = scored.float().view(GROUPS, K)
        with torch.no_grad():
            logp, *_ = self._get_per_token_logps_and_entropies(
                self.accelerator.unwrap_model(self.model),
                torch.cat([rows["prompt_ids"], rows["completion_ids"]], 1),
                torch.cat([rows["prompt_mask"], rows["completion_mask"]], 1),
                LENGTH,
            )
        candidate = sequence_logp(logp, rows["completion_mask"], "mean").view(GROUPS, K)
        target = objectives.get("tpo").signal(rows["scores"].nan_to_num().view(GROUPS, K), candidate, weights).target
        policy = candidate.masked_fill(weights == 0, -torch.inf).softmax(-1)
        rows["advantages"] = (K * (target - policy)).flatten()
        own = torch.arange(GROUPS * K)[self.accelerator.process_index :: self.accelerator.num_processes]
        return {name: values[own] for name, values in rows.items()} | {"num_items_in_batch": torch.tensor(1.0)}


def main(folder: Path, objective: str, kl: float) -> None:
    torch.set_num_threads(1)
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    kind, own = (Advantages, {}) if objective == "advantages" else (FixedCompletions, {"objective": objective})
    trainer = kind(
        model=tiny_models.model(),
        processing_class=tiny_models.tokenizer(),
        reward_funcs=tiny_models.share_of_digits,
        train_dataset=tiny_models.prompts(),
        args=GRPOConfig(
            output_dir=str(folder / f"out{processes}"),
            per_device_train_batch_size=GROUPS * K // processes,
            num_generations=K,
            max_completion_length=LENGTH,
            max_steps=1,
            learning_rate=0.5,
            optim="sgd",
            lr_scheduler_type="constant",
            max_grad_norm=0.0,
            beta=0.0,
            loss_type="grpo",
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
            report_to=[],
            save_strategy="no",
            disable_tqdm=True,
        ),
        **own,
    )
    trainer.beta = kl  # without a reference model: its log-probabilities are among the fixed rows
    trainer.train()
    if trainer.accelerator.is_main_process:
        weights = trainer.accelerator.unwrap_model(trainer.model).state_dict()
        torch.save(weights, folder / f"after_{objective}_{processes}.pt")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], float(sys.argv[3]))
