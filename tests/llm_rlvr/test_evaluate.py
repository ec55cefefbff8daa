"""pass@k, its interval, and the command line that evaluates a model on held-out problems."""

import itertools
import json
import math
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.errors import UserError
from llm_rlvr.evaluate import Judged, evaluate, held_out, main, parsed, pass_at_k, pass_interval, summed_up
from llm_rlvr.models import local_model
from llm_rlvr.scoring import UNSCORABLE, Score
from llm_rlvr.tasks import load

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> Path:
    cache = tmp_path_factory.mktemp("models")
    local_model("tiny_qwen3", cache)
    return cache


def arguments(models: Path, *changes: str, engine: str = "transformers") -> list[str]:
    toy = ["model=tiny_qwen3", "task=chain_sum", f"engine={engine}", "problems=4", "max_tokens=4", f"models={models}"]
    return [*toy, *changes]


def run(models: Path, *changes: str):
    return evaluate(parsed(arguments(models, *changes)), local_model("tiny_qwen3", models))


@pytest.mark.parametrize(
    ("n", "c", "k", "wanted"),
    [(1, 0, 1, 0), (1, 1, 1, 1), (4, 1, 1, 0.25), (4, 1, 4, 1), (5, 2, 2, 0.7), (10, 3, 5, 11 / 12), (16, 0, 8, 0)],
)
def test_pass_at_k_golden(n, c, k, wanted):
    assert pass_at_k(n, c, k) == pytest.approx(wanted, abs=1e-15)


@given(st.integers(1, 8).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(1, n))))
def test_pass_at_k_is_the_share_of_subsets_with_a_right_one(sizes):
    n, c, k = sizes
    subsets = list(itertools.combinations([True] * c + [False] * (n - c), k))
    assert pass_at_k(n, c, k) == pytest.approx(sum(map(any, subsets)) / len(subsets))


@pytest.mark.parametrize(("n", "c", "k"), [(4, 5, 1), (4, -1, 1), (4, 1, 0), (4, 1, 5)])
def test_pass_at_k_refuses_what_has_no_meaning(n, c, k):
    with pytest.raises(ValueError, match="not allowed"):
        pass_at_k(n, c, k)


def test_the_interval_of_equal_results_has_a_width():
    # Wilson's at the ends: z²/(P + z²)
    width = 1.959964**2 / (50 + 1.959964**2)
    none, method = pass_interval([0.0] * 50)
    assert none == pytest.approx((0, width), abs=1e-6)
    assert method == "wilson"
    every, _ = pass_interval([1.0] * 50)
    assert every == pytest.approx((1 - width, 1), abs=1e-6)
    assert pass_interval([0.0])[0] == pytest.approx((0, 0.793450), abs=1e-5)


def test_wilson_golden():
    (low, high), method = pass_interval([1.0] * 3 + [0.0] * 7)
    assert (low, high) == pytest.approx((0.107789, 0.603222), abs=1e-5)
    assert method == "wilson"


def test_the_bootstrap_interval_is_that_of_the_mean():
    values = [0.0, 0.25, 0.5, 0.75] * 50
    (low, high), method = pass_interval(values)
    assert method == "bootstrap"
    error = math.sqrt(5 / 64 / 200)
    assert low == pytest.approx(0.375 - 1.96 * error, abs=0.006)
    assert high == pytest.approx(0.375 + 1.96 * error, abs=0.006)
    assert pass_interval(values) == pass_interval(values)


@given(st.lists(st.sampled_from([0, 0.25, 0.5, 1]), min_size=1, max_size=30))
def test_intervals_hold_the_mean_and_stay_within_0_and_1(values):
    (low, high), _ = pass_interval(values)
    assert 0 <= low <= sum(values) / len(values) + 1e-12
    assert sum(values) / len(values) - 1e-12 <= high <= 1


def test_summed_up():
    right, partial = Score(1.0, correct=True, formatted=True), Score(0.5, correct=False, formatted=True)
    result = summed_up(
        [
            [Judged(right, 3, True), Judged(partial, 5, False)],
            [Judged(UNSCORABLE, 4, True), Judged(partial, 8, False)],
        ],
        (1, 2),
    )
    assert result.correct == (1, 0)
    assert result.pass_at[1].value == 0.25
    assert result.pass_at[1].interval == "bootstrap"
    assert result.pass_at[2].value == 0.5
    assert result.pass_at[2].interval == "wilson"
    assert (result.formatted, result.reward, result.length) == (0.75, 0.5, 5)
    assert (result.truncated, result.unscorable) == (0.5, 1)


def test_greedy_is_the_same_for_all_seeds(models):
    greedy = run(models, "temperature=0", "seed=0")
    assert run(models, "temperature=0", "seed=1") == greedy


def test_the_same_seed_gives_the_same_result(models):
    changes = ("samples=3", "k=1,3", "max_tokens=24", "temperature=1.5")
    first = run(models, *changes)
    assert run(models, *changes) == first
    assert any(run(models, *changes, f"seed={seed}").length != first.length for seed in (1, 2))


def test_an_adapter_is_merged(models, tmp_path):
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    directory = local_model("tiny_qwen3", models)
    adapted = get_peft_model(
        AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32),
        LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM"),
    )
    torch.manual_seed(0)
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if "lora_B" in name:
                parameter.normal_(std=1.0)
    adapted.save_pretrained(tmp_path / "adapter")
    merged = adapted.merge_and_unload()
    merged.save_pretrained(tmp_path / "merged")
    for name in directory.glob("*token*"):
        (tmp_path / "merged" / name.name).write_bytes(name.read_bytes())
    for name in directory.glob("*.jinja"):
        (tmp_path / "merged" / name.name).write_bytes(name.read_bytes())
    changes = ("samples=8", "max_tokens=40", "temperature=2.0")
    with_adapter = run(models, *changes, f"adapter={tmp_path / 'adapter'}")
    settings = parsed(arguments(models, *changes, f"model={tmp_path / 'merged'}"))
    assert evaluate(settings, tmp_path / "merged") == with_adapter
    assert run(models, *changes) != with_adapter


@pytest.mark.parametrize("task", ["chain_sum", "knights_knaves"])
def test_held_out_problems_are_not_training_ones(models, task):
    settings = parsed(arguments(models, f"task={task}", "problems=30"))
    problems = held_out(settings)
    trained = load(settings.scored, train=200, held_out=30, seed=3, experiment_seed=0)
    assert problems == trained.held_out, "training is evaluated on the same ones"
    assert not {problem.question for problem in problems} & {problem.question for problem in trained.train}


def test_defaults_come_from_the_task(models):
    settings = parsed(["model=tiny_qwen3", "task=chain_sum", "engine=vllm", "task_options.max_digits=2"])
    assert settings.max_tokens == 12
    assert settings.task_options == {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 2}
    assert (settings.problems, settings.samples, settings.k) == (200, 1, (1,))
    assert parsed(arguments(models, "samples=6")).k == (1, 4)
    assert parsed(arguments(models, "samples=6", "k=[6,2]")).k == (2, 6)


def assert_record(path: Path, engine: str) -> None:
    record = json.loads(path.read_text())
    assert record["settings"]["model"] == "tiny_qwen3"
    assert record["settings"]["engine"] == engine
    assert len(record["settings"]["weights"]) == 12
    assert list(record["result"]["pass_at"]) == ["1", "2"]
    assert len(record["result"]["correct"]) == 4
    assert 0 < record["result"]["length"] <= 4


def command(*words: str, environment: dict[str, str]):
    line = [sys.executable, "-m", "llm_rlvr.evaluate", *words]
    return subprocess.run(line, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False)


def test_the_command(models, tmp_path, environment):
    path = tmp_path / "new" / "record.json"
    done = command(*arguments(models, "samples=2", "k=1,2", f"json={path}"), environment=environment)
    assert done.returncode == 0, done.stderr
    for word in ("pass@1", "pass@2", "formatted", "mean reward", "truncated", "unscorable", "tiny_qwen3"):
        assert word in done.stdout
    assert_record(path, "transformers")
    refused = command("modle=x", environment=environment)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.startswith("error: modle: unknown key (did you mean 'model'?)")
    assert refused.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("sample=2", "did you mean 'samples'"),
        ("task_options.max_digit=2", "did you mean 'task_options.max_digits'"),
        ("task_options.max_digits=0", "task_options"),
        ("task=sums", "task: 'sums' is unknown"),
        ("model=nothing", "model: 'nothing' is unknown"),
        ("model=null", "model: is missing"),
        ("engine=sglang", "engine: 'sglang'"),
        ("engine=vllm_server", "engine: 'vllm_server' is not allowed; choose from transformers, vllm"),
        ("k=3", "k: 3 is not allowed"),
        ("k=0", "k: 0 is not allowed"),
        ("k=one", "k: 'one' is not allowed"),
        ("samples=0", "samples: 0"),
        ("samples=1.5", "samples: 1.5"),
        ("samples=true", "samples: True"),
        ("temperature=0", "samples: 2 is not allowed"),
        ("temperature=-1", "temperature: -1"),
        ("temperature=.nan", "temperature: nan"),
        ("problems=0", "problems: 0"),
        ("problems=1000", "problems: 1000 is not allowed; chain_sum has about"),
        ("max_tokens=5000", "max_tokens: 5000 is not allowed; the model takes 4096"),
        ("max_tokens=[", "max_tokens: '[' cannot be read"),
        ("seed=-1", "seed: -1"),
        ("batch=0", "batch: 0"),
        ("precision=float16", "precision: 'float16'"),
        ("device=tpu", "device: 'tpu'"),
        ("binary=maybe", "binary: 'maybe'"),
        ("adapter=nowhere", "adapter: nowhere lacks"),
        ("json=tests", "json: tests cannot be written"),
        ("json=/dev/null/record.json", "json: /dev/null/record.json cannot be written"),
        ("model=${oops}", "model: '${oops}' cannot be read"),
        ("--flag", "--flag: is not allowed"),
    ],
)
def test_a_mistake_is_one_line(models, capsys, monkeypatch, change, said):
    monkeypatch.chdir(ROOT)
    assert main(arguments(models, "samples=2", change)) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert said in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("changes", "said"),
    [(["engine=vllm", "adapter=x"], "merge"), (["engine=vllm", "device=cpu"], "vLLM chooses")],
)
def test_vllm_takes_neither_adapter_nor_device(models, changes, said):
    with pytest.raises(UserError, match=said):
        parsed(arguments(models, *changes))


def test_a_broken_model_is_one_line(tmp_path, models, capsys):
    broken = tmp_path / "broken"
    broken.mkdir()
    for path in local_model("tiny_qwen3", models).iterdir():
        (broken / path.name).write_bytes(path.read_bytes() if path.suffix != ".safetensors" else b"nothing")
    assert main(arguments(models, f"model={broken}")) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.vllm
def test_the_command_with_vllm(models, tmp_path, environment):
    pytest.importorskip("vllm", reason="vLLM has an environment of its own, .venv-vllm")
    path = tmp_path / "record.json"
    done = command(*arguments(models, "samples=2", "k=1,2", f"json={path}", engine="vllm"), environment=environment)
    assert done.returncode == 0, done.stderr
    assert "pass@2" in done.stdout
    assert_record(path, "vllm")
