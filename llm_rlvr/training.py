"""One seed of an experiment: TRL's loop with our objective, its metrics as records, its checkpoints made whole.

config -> model, problems -> TargetPolicyTrainer -> records
"""

import contextlib
import gc
import json
import math
import os
import shutil
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from peft import LoraConfig
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)
from transformers.utils.logging import disable_progress_bar

from common.errors import UserError
from common.runs.files import write_json
from common.runs.trainer import NonFiniteError, Outcome, Records, Report
from llm_rlvr import processes
from llm_rlvr.arguments import Placement, training_arguments
from llm_rlvr.memory import foreseen_bytes, require_memory
from llm_rlvr.settings import LanguageTask
from llm_rlvr.tasks import Problem, Problems, Task, load, score
from llm_rlvr.trainer import TargetPolicyTrainer

MARKER = "complete.json"
"""Written into a checkpoint's folder last, with the sizes of its files."""
_KEPT = 2

LOGGED = {
    "reward": "reward",
    "correct": "accuracy",
    "formatted": "formatted",
    "unscorable": "unscorable",
    "completions/mean_length": "length",
    "completions/clipped_ratio": "truncated",
    "entropy": "entropy",
    "kl": "kl_reference",
    "target/max_p": "max_p",
    "target/entropy_p": "entropy_p",
    "target/entropy_q": "entropy_q",
    "target/kl_q_p": "kl_q_p",
    "target/total_variation": "total_variation",
    "zero_variance": "zero_variance",
    "all_fail": "all_fail",
    "grad_norm": "gradient_norm",
    "sampler_disagreement": "sampler_disagreement",
}
"""TRL's and the trainer's names of what is measured on the training batch, and ours."""
HELD_OUT = {
    "eval_reward": "test_reward",
    "eval_correct": "test_accuracy",
    "eval_formatted": "test_formatted",
    "eval_completions/mean_length": "test_length",
}
"""The same for held-out problems."""
METRICS = (*LOGGED.values(), *HELD_OUT.values())


class LanguageTrainer:
    """One seed of an experiment (``SelfPacedTrainer``), in this process and those launched with it.

    Args:
        settings: the experiment's.
        seeds: one seed.
        directory: with the model.
        placement: device and sizes.

    Raises:
        UserError: more than one seed, or a micro-batch that does not divide the batch.
    """

    def __init__(self, settings: LanguageTask, seeds: Sequence[int], directory: Path, placement: Placement) -> None:
        if len(seeds) != 1:
            raise UserError(f"stack: {len(seeds)} is not allowed; a language model trains one seed at a time (stack=1)")
        if placement.micro_batch < 1 or settings.batch % (placement.micro_batch * settings.processes):
            each = f" over {settings.processes} processes" if settings.processes > 1 else ""
            raise UserError(
                f"micro_batch: {placement.micro_batch} is not allowed; it must divide batch={settings.batch}{each}"
            )
        self.steps = settings.steps
        self._task = Task(settings.task, settings.binary, settings.task_options)
        self._settings = settings
        self._seed = seeds[0]
        self._directory = directory
        self._placement = placement

    def train(self, folder: Path, checkpoint_seconds: float, report: Report) -> Outcome:
        """Train to the end, taking up the newest whole checkpoint in ``folder``; see ``SelfPacedTrainer``.

        Where several processes train, a failure of this one ends it at once: the others wait for it, and the launcher
        ends them. A number that is not finite is found by all alike.

        Raises:
            UserError: too little memory, problems that cannot be had, or a number that is not finite.
        """
        _forget_earlier_runs()
        problems = self._problems()
        longest = max(len(json.dumps(problem.chat)) for problem in [*problems.train, *problems.held_out])
        needed = foreseen_bytes(self._settings, self._directory, longest, self._placement)
        require_memory(needed, self._placement.device, self._settings.engine)
        resumed = newest_checkpoint(folder)
        if processes.count() == 1:
            return self._train(problems, folder, checkpoint_seconds, report, resumed)
        processes.of_the_first(Order(self, folder, resumed))
        try:
            return self._train(problems, folder, checkpoint_seconds, report, resumed)
        except NonFiniteError:
            raise
        except UserError as error:
            print(f"error: {error}", file=sys.stderr, flush=True)
            os._exit(1)
        except BaseException:
            traceback.print_exc()
            os._exit(1)

    def train_along(self, folder: Path, resumed: Path | None) -> None:
        """Train as one of the processes that follow the first."""
        _forget_earlier_runs()
        with contextlib.suppress(NonFiniteError):  # the first one tells
            self._train(self._problems(), folder, math.inf, _unheard, resumed)

    def _problems(self) -> Problems:
        settings = self._settings
        return load(
            self._task,
            train=settings.steps * settings.batch,
            held_out=settings.eval_problems,
            seed=self._seed,
            experiment_seed=settings.experiment_seed,
        )

    def _train(
        self, problems: Problems, folder: Path, checkpoint_seconds: float, report: Report, resumed: Path | None
    ) -> Outcome:
        settings = self._settings
        before = 0.0 if resumed is None else float(json.loads((resumed / MARKER).read_text())["cpu_seconds"])
        run_seed = 1000 * settings.experiment_seed + self._seed
        disable_progress_bar()
        # Before the model: DeepSpeed's ZeRO-3 has to know how weights are cut when they are loaded.
        arguments = training_arguments(settings, self._placement, folder, run_seed, evaluate_first=resumed is None)
        model = AutoModelForCausalLM.from_pretrained(self._directory, dtype=torch.float32)
        _plain_generation(model)
        trainer = TargetPolicyTrainer(
            model=model,
            processing_class=AutoTokenizer.from_pretrained(self._directory, padding_side="left"),
            reward_funcs=reward_function(self._task),
            args=arguments,
            train_dataset=_dataset(problems.train),
            eval_dataset=_dataset(problems.held_out),
            peft_config=_lora(settings.lora_rank),
            callbacks=[_Pacer(checkpoint_seconds, before, report)],
            objective=settings.objective,
            objective_options=settings.options,
            candidate_logprob=settings.candidate_logprob,
            allow_biased_sampling=settings.allow_biased_sampling,
        )
        for callback in list(trainer.callback_handler.callbacks):  # it prints every log
            if type(callback).__name__ in ("PrinterCallback", "ProgressCallback"):
                trainer.remove_callback(callback)
        try:
            trainer.train(resume_from_checkpoint=None if resumed is None else str(resumed))
            if self._placement.save_model:
                self._save(trainer, folder)
        finally:
            _close_engine(trainer)
        return Outcome(records_of(trainer.state.log_history), resumed is not None, before)

    def _save(self, trainer: TargetPolicyTrainer, folder: Path) -> None:
        """Keep the trained model, or its adapter, as ``model-SEED`` beside the folder of checkpoints."""
        unfinished, finished = folder / "model", folder.parent / f"model-{self._seed}"
        trainer.save_model(str(unfinished))
        processes.wait_for_all()
        if processes.is_first():
            shutil.rmtree(finished, ignore_errors=True)
            unfinished.rename(finished)


@dataclass(frozen=True)
class Order:
    """What the first process asks the others to train."""

    trainer: LanguageTrainer
    folder: Path
    resumed: Path | None


def follow() -> None:
    """Train what the first process says, until it says that there is no more."""
    nothing: Order | None = None
    while (order := processes.of_the_first(nothing)) is not None:
        order.trainer.train_along(order.folder, order.resumed)


def reward_function(task: Task) -> Callable[..., list[float | None]]:
    """Return a TRL reward function for a task's chats; it logs the shares of right, formatted and unscorable ones."""

    def reward(
        completions: Sequence[Any], payload: Sequence[str], log_metric: Callable[[str, float], None], **_: Any
    ) -> list[float | None]:
        scores = [score(task, data, _text(written)) for data, written in zip(payload, completions, strict=True)]
        log_metric("correct", sum(each.correct for each in scores) / len(scores))
        log_metric("formatted", sum(each.formatted for each in scores) / len(scores))
        log_metric("unscorable", sum(each.reward is None for each in scores) / len(scores))
        return [each.reward for each in scores]

    return reward


def records_of(log_history: Sequence[Mapping[str, Any]]) -> Records:
    """Turn TRL's log into records, one seed, NaN where nothing was measured.

    A training batch belongs to the updates made before it was sampled, an evaluation to those made before it.
    """
    rows: dict[int, dict[str, float]] = {}
    for entry in log_history:
        updates, measured = _measured(entry)
        if measured:
            rows.setdefault(updates, {}).update(measured)
    steps = sorted(rows)
    return Records(
        torch.tensor(steps, dtype=torch.int64),
        {
            name: torch.tensor([[rows[step].get(name, math.nan) for step in steps]], dtype=torch.float64)
            for name in METRICS
        },
    )


def newest_checkpoint(folder: Path) -> Path | None:
    """Return the newest checkpoint whose files are all there in full."""
    checkpoints = sorted(folder.glob("checkpoint-*"), key=lambda path: int(path.name.rpartition("-")[2]), reverse=True)
    return next((path for path in checkpoints if _is_whole(path)), None)


class _Pacer(TrainerCallback):
    """Saves by the clock, completes checkpoints, reports, and stops at numbers that are not finite."""

    def __init__(self, checkpoint_seconds: float, cpu_seconds_before: float, report: Report) -> None:
        self._every = checkpoint_seconds
        self._saved_at = time.monotonic()
        self._cpu_start = time.process_time() - cpu_seconds_before
        self._report = report

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> TrainerControl:
        """Ask for a checkpoint when it is time; an update is a whole generation, so nothing sampled is lost."""
        is_due = time.monotonic() - self._saved_at >= self._every and state.global_step < state.max_steps
        if processes.of_the_first(is_due):
            control.should_save = True
        return control

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Mark the checkpoint as whole and remove those before the last."""
        self._saved_at = time.monotonic()
        processes.wait_for_all()  # each has files of its own in it
        if not processes.is_first():
            return
        folder = Path(args.output_dir or ".")
        checkpoint = folder / f"checkpoint-{state.global_step}"
        sizes = {
            str(path.relative_to(checkpoint)): path.stat().st_size for path in checkpoint.rglob("*") if path.is_file()
        }
        write_json(checkpoint / MARKER, {"files": sizes, "cpu_seconds": time.process_time() - self._cpu_start})
        older = sorted(folder.glob("checkpoint-*"), key=lambda path: int(path.name.rpartition("-")[2]))[:-_KEPT]
        for path in older:
            shutil.rmtree(path)

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Report what was measured, and stop where the loss or the gradient is not finite."""
        entry = {**(logs or {}), "step": state.global_step}
        for name in ("loss", "grad_norm"):
            value = entry.get(name)
            if isinstance(value, int | float) and not math.isfinite(value):
                raise NonFiniteError(f"{name}: not finite ({value}) at step {state.global_step}; lower learning_rate")
        updates, measured = _measured(entry)
        if measured:
            row = {name: torch.tensor([[value]], dtype=torch.float64) for name, value in measured.items()}
            self._report(state.global_step, Records(torch.tensor([updates]), row))


def _measured(entry: Mapping[str, Any]) -> tuple[int, dict[str, float]]:
    """Return the updates made before an entry was measured, and its metrics under our names."""
    held_out = {ours: float(entry[name]) for name, ours in HELD_OUT.items() if entry.get(name) is not None}
    if held_out:
        return int(entry["step"]), held_out
    trained = {ours: float(entry[name]) for name, ours in LOGGED.items() if entry.get(name) is not None}
    return int(entry["step"]) - 1, trained if "reward" in trained else {}


def _is_whole(checkpoint: Path) -> bool:
    try:
        sizes = json.loads((checkpoint / MARKER).read_text())["files"]
        return all((checkpoint / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError, KeyError):
        return False


def _dataset(problems: Sequence[Problem]) -> Dataset:
    return Dataset.from_dict(
        {
            "prompt": [[dict(message) for message in problem.chat] for problem in problems],
            "payload": [problem.payload for problem in problems],
        }
    )


def _text(completion: Any) -> str:
    return str(completion if isinstance(completion, str) else completion[0]["content"])


def _close_engine(trainer: TargetPolicyTrainer) -> None:
    """Give back the memory of vLLM in this process, where the next run starts its own."""
    engine = getattr(getattr(trainer, "vllm_generation", None), "llm", None)
    if engine is not None:
        engine.llm_engine.engine_core.shutdown()


def _forget_earlier_runs() -> None:
    """Free what the models of earlier runs in this process still hold, above all on a GPU."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _lora(rank: int) -> LoraConfig | None:
    return LoraConfig(r=rank, lora_alpha=2 * rank, target_modules="all-linear", task_type="CAUSAL_LM") if rank else None


def _plain_generation(model: Any) -> None:
    """Take out the model's own sampling settings: completions come from the whole distribution."""
    model.generation_config.temperature = 1.0
    model.generation_config.top_p = 1.0
    model.generation_config.top_k = 0
    model.generation_config.repetition_penalty = 1.0
    model.generation_config.do_sample = True


def _unheard(step: int, records: Records) -> None:
    """Take the reports of a process that has no run store."""
