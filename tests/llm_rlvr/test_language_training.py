"""One seed of an experiment: resumption, pairing, the paper's configurations with a tiny model, refusals."""

import json
import math
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from common.errors import UserError
from common.launch.plan import plan_runs
from common.runs.trainer import NonFiniteError, Records, SelfPacedTrainer
from llm_rlvr.arguments import Placement, training_arguments
from llm_rlvr.memory import foreseen_bytes, require_memory
from llm_rlvr.models import local_model
from llm_rlvr.settings import LanguageTask
from llm_rlvr.training import MARKER, LanguageTrainer, newest_checkpoint, records_of

GSM8K = Path(__file__).parent / "data" / "gsm8k"
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return local_model("tiny_qwen3", tmp_path_factory.mktemp("models"))


def settings(**changes) -> LanguageTask:
    """GSM8K as in the paper (LoRA, KL), at toy size."""
    small = {
        "model": "tiny_qwen3",
        "task_options": {"data": str(GSM8K)},
        "batch": 2,
        "candidates": 4,
        "steps": 4,
        "learning_rate": 1e-2,
        "max_tokens": 6,
        "eval_every": 2,
        "eval_problems": 3,
    }
    return LanguageTask(**{**small, **changes})


def trainer(directory: Path, micro_batch: int = 1, seed: int = 0, **changes) -> LanguageTrainer:
    return LanguageTrainer(settings(**changes), [seed], directory, Placement(CPU, micro_batch))


def ignore(step: int, records: Records) -> None:
    pass


def assert_same(first: Records, second: Records) -> None:
    assert torch.equal(first.steps, second.steps)
    for name, values in first.metrics.items():
        torch.testing.assert_close(values, second.metrics[name], rtol=0, atol=0, equal_nan=True, msg=name)


class InterruptedRunError(Exception):
    """In place of a kill."""


def interrupt_at(step: int):
    def report(updates: int, records: Records) -> None:
        if updates >= step and "reward" in records.metrics:
            raise InterruptedRunError

    return report


@pytest.mark.parametrize("changes", [{}, {"lora_rank": 0, "objective": "grpo_no_kl"}], ids=["lora_tpo", "full_grpo"])
def test_a_resumed_run_equals_the_uninterrupted_one(tiny, tmp_path, changes):
    # A reward that varies: the random model's length-dependent one would be 0 throughout with GSM8K.
    changes = {"task": "knights_knaves", "task_options": {}, "max_tokens": 8, **changes}
    whole = trainer(tiny, **changes).train(tmp_path / "whole", 1e9, ignore)
    with pytest.raises(InterruptedRunError):
        trainer(tiny, **changes).train(tmp_path / "cut", 0, interrupt_at(3))
    resumed = trainer(tiny, **changes).train(tmp_path / "cut", 0, ignore)
    assert resumed.resumed
    assert not whole.resumed
    assert resumed.cpu_seconds_before > 0
    assert_same(whole.records, resumed.records)


def test_a_damaged_checkpoint_is_not_used(tiny, tmp_path):
    with pytest.raises(InterruptedRunError):
        trainer(tiny).train(tmp_path, 0, interrupt_at(4))
    newest = newest_checkpoint(tmp_path)
    assert newest is not None
    assert newest.name == "checkpoint-3"
    weights = newest / "adapter_model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    assert newest_checkpoint(tmp_path).name == "checkpoint-2"
    (tmp_path / "checkpoint-2" / MARKER).unlink()
    assert newest_checkpoint(tmp_path) is None
    assert newest_checkpoint(tmp_path / "nowhere") is None


def test_paired_runs_see_the_same_prompts_and_weights(tiny, tmp_path):
    first = trainer(tiny).train(tmp_path / "tpo", 1e9, ignore).records
    second = trainer(tiny, objective="grpo_no_kl").train(tmp_path / "grpo", 1e9, ignore).records
    for name in ("test_reward", "test_length", "length", "entropy"):
        assert first.metrics[name][0, 0] == second.metrics[name][0, 0], name


def test_records_hold_every_update_and_evaluation(tiny, tmp_path):
    reported = []
    outcome = trainer(tiny).train(tmp_path, 1e9, lambda step, records: reported.append((step, records)))
    records = outcome.records
    assert records.steps.tolist() == [0, 1, 2, 3, 4]
    assert records.metrics["reward"].isfinite().tolist() == [[True, True, True, True, False]]
    assert records.metrics["test_accuracy"].isfinite().tolist() == [[True, False, True, False, True]]
    assert records.metrics["max_p"][0, :4].isfinite().all()
    assert (records.metrics["kl_reference"][0, 0].abs() < 1e-6).all()
    assert [step for step, _ in reported][-1] == 4


def test_an_update_and_the_evaluation_after_it_share_a_row():
    log = [
        {"eval_reward": 0.5, "eval_correct": 0.5, "step": 0},
        {"reward": 0.25, "correct": 0.25, "step": 1},
        {"eval_reward": 0.75, "step": 1},
        {"train_loss": 1.0, "step": 1},
    ]
    records = records_of(log)
    assert records.steps.tolist() == [0, 1]
    assert records.metrics["reward"][0, 0] == 0.25
    assert math.isnan(records.metrics["reward"][0, 1])
    assert records.metrics["test_reward"].tolist() == [[0.5, 0.75]]


def test_it_is_what_the_run_store_takes(tiny):
    assert isinstance(trainer(tiny), SelfPacedTrainer)


PAPER = [
    ("gsm8k", [f"task_options.data={GSM8K}", "eval_problems=6"], {"lora_rank": 32, "kl": 1e-3}),
    ("graph_color", ["eval_problems=4"], {"lora_rank": 0, "kl": 0.0}),
    ("knights_knaves", ["eval_problems=4"], {"lora_rank": 0, "kl": 0.0}),
]


def paper_settings(task: str, overrides: list[str], models: Path) -> list[LanguageTask]:
    line = ["preset=paper", f"task={task}", "model=tiny_qwen3", f"models={models}", "engine=transformers", "steps=2"]
    return [run.spec.settings for run in plan_runs("llm_rlvr", [*line, *overrides])]


@pytest.mark.parametrize(("task", "overrides", "expected"), PAPER, ids=[name for name, *_ in PAPER])
def test_the_papers_configurations_run(tmp_path, task, overrides, expected):
    """Only the model, the number of updates and, here, the length of completions and the precision are not theirs."""
    shorter = ["max_tokens=8", "precision=float32"]
    pair = paper_settings(task, [*overrides, *shorter], tmp_path / "models")
    assert [each.objective for each in pair] == ["tpo", "grpo_no_kl"]
    for each in pair:
        assert (each.batch, each.candidates, each.learning_rate, each.eval_every) == (16, 16, 1e-5, 5)
        assert {key: getattr(each, key) for key in expected} == expected
    directory = local_model("tiny_qwen3", tmp_path / "models")
    outcome = LanguageTrainer(pair[0], [0], directory, Placement(CPU, 16)).train(tmp_path / "run", 1e9, ignore)
    assert outcome.records.steps.tolist() == [0, 1, 2]
    assert outcome.records.metrics["test_reward"][0, [0, 2]].isfinite().all()


@pytest.mark.slow
@pytest.mark.parametrize(("task", "overrides", "expected"), PAPER, ids=[name for name, *_ in PAPER])
def test_the_papers_configurations_run_at_full_length(tmp_path, task, overrides, expected):
    (tpo, _) = paper_settings(task, overrides, tmp_path / "models")
    directory = local_model("tiny_qwen3", tmp_path / "models")
    whole = LanguageTrainer(tpo, [0], directory, Placement(CPU, 1)).train(tmp_path / "whole", 1e9, ignore)
    with pytest.raises(InterruptedRunError):
        LanguageTrainer(tpo, [0], directory, Placement(CPU, 1)).train(tmp_path / "cut", 0, interrupt_at(2))
    assert_same(
        whole.records,
        LanguageTrainer(tpo, [0], directory, Placement(CPU, 1)).train(tmp_path / "cut", 0, ignore).records,
    )


class TestRefusals:
    def test_several_seeds_at_once(self, tiny):
        with pytest.raises(UserError, match="stack: 2 is not allowed"):
            LanguageTrainer(settings(), [0, 1], tiny, Placement(CPU, 1))

    def test_a_micro_batch_that_does_not_divide(self, tiny):
        with pytest.raises(UserError, match="micro_batch: 3 is not allowed; it must divide batch=2"):
            trainer(tiny, micro_batch=3)

    def test_too_little_memory(self, tiny, monkeypatch):
        needed = foreseen_bytes(settings(), tiny, 100, Placement(CPU, 1))
        assert 0 < needed < 2**30
        more = foreseen_bytes(settings(lora_rank=0), tiny, 100, Placement(CPU, 1))
        assert more > needed - 14 * 2 * 32 * 32 * 12
        with pytest.raises(UserError, match=r"memory: about 1048576.0 GiB are needed and .* lower micro_batch"):
            require_memory(2**50, CPU, "transformers")

    @pytest.mark.parametrize(("steps", "lora_rank", "max_tokens"), [(75, 32, 1024), (300, 0, 2048)])
    def test_the_papers_settings_fit_a_gpu_of_80_gb(self, tmp_path, monkeypatch, steps, lora_rank, max_tokens):
        """Beside vLLM's share; one prompt's completions at a time, which is the least there is."""
        sizes = {"hidden_size": 2048, "num_hidden_layers": 28, "vocab_size": 151_936}  # Qwen3-1.7B's
        (tmp_path / "config.json").write_text(json.dumps(sizes))
        monkeypatch.setattr("llm_rlvr.memory.parameter_count", lambda _: 1_720_000_000)
        paper = LanguageTask(task="graph_color", steps=steps, lora_rank=lora_rank, kl=0, max_tokens=max_tokens)
        needed = foreseen_bytes(paper, tmp_path, 600, Placement(torch.device("cuda"), 1))
        assert 2**30 * 5 < needed < 0.7 * 80e9
        eight = foreseen_bytes(paper, tmp_path, 600, Placement(torch.device("cuda"), 8))
        assert eight > 0.7 * 80e9

    def test_numbers_that_are_not_finite(self, tiny, tmp_path, monkeypatch):
        monkeypatch.setattr("llm_rlvr.trainer.reduce", lambda *_, **__: torch.tensor(math.nan, requires_grad=True))
        with pytest.raises(NonFiniteError, match=r"loss: not finite .nan. at step 1; lower learning_rate"):
            trainer(tiny).train(tmp_path, 1e9, ignore)

    @pytest.mark.parametrize(
        ("changes", "said"),
        [
            ({"task": "sums"}, "task: 'sums' is not allowed"),
            ({"candidate_logprob": "max"}, "candidate_logprob: 'max' is not allowed; choose from mean, sum"),
            ({"temperature": 0.7}, "allow_biased_sampling=true"),
            ({"top_k": 20}, "allow_biased_sampling=true"),
            ({"top_p": 0.9}, "allow_biased_sampling=true"),
            ({"candidates": 1}, "candidates: 1 is not allowed; it must be at least 2"),
            ({"batch": 0}, "batch: 0 is not allowed"),
            ({"kl": -1.0}, "kl: -1.0 is not allowed"),
            ({"precision": "float16"}, "precision: 'float16' is not allowed"),
            ({"engine": "sglang"}, "engine: 'sglang' is not allowed"),
            ({"objective": "ce"}, "objective: ce needs labels"),
            ({"objective": "tpoo"}, "tpoo"),
        ],
    )
    def test_settings_that_are_not_allowed(self, changes, said):
        with pytest.raises(ValueError, match=said.replace("(", r"\(")):
            settings(**changes)

    def test_biased_sampling_is_allowed_where_there_is_no_target_or_it_is_wanted(self):
        settings(temperature=0.7, objective="grpo_no_kl")
        settings(temperature=0.7, allow_biased_sampling=True)


def test_the_trained_model_is_kept_where_that_is_wanted(tiny, tmp_path):
    placement = Placement(CPU, 1, save_model=True)
    LanguageTrainer(settings(lora_rank=0), [0], tiny, placement).train(
        tmp_path / "full" / "checkpoint-0-0", 1e9, ignore
    )
    LanguageTrainer(settings(), [3], tiny, placement).train(tmp_path / "lora" / "checkpoint-3-3", 1e9, ignore)
    kept = AutoModelForCausalLM.from_pretrained(tmp_path / "full" / "model-0").state_dict()
    initial = AutoModelForCausalLM.from_pretrained(tiny).state_dict()
    assert any(not torch.equal(kept[name], initial[name]) for name in initial)
    assert (tmp_path / "full" / "model-0" / "tokenizer.json").is_file()
    assert (tmp_path / "lora" / "model-3" / "adapter_config.json").is_file()


@pytest.mark.parametrize(
    ("problems", "together", "candidates", "micro", "expected"),
    [(200, 1, 16, 1, 10), (200, 8, 16, 1, 5), (32, 1, 8, 4, 32), (5, 1, 16, 1, 5), (7, 7, 16, 1, 1)],
)
def test_held_out_problems_weigh_the_same(tmp_path, problems, together, candidates, micro, expected):
    """TRL averages batches, so that all must be of one size: 200 problems in tens, not twelve of 16 and one of 8."""
    given = settings(eval_problems=problems, processes=together, candidates=candidates)
    found = training_arguments(given, Placement(CPU, micro), tmp_path, 0, evaluate_first=True)
    assert found.per_device_eval_batch_size == expected


def test_the_marker_tells_the_files_and_the_time(tiny, tmp_path):
    with pytest.raises(InterruptedRunError):
        trainer(tiny).train(tmp_path, 0, interrupt_at(3))
    marker = json.loads((newest_checkpoint(tmp_path) / MARKER).read_text())
    assert "trainer_state.json" in marker["files"]
    assert marker["cpu_seconds"] > 0
