"""``python -m sequence_tasks.bench`` at toy size."""

import json
import subprocess
import sys

import pytest
import torch

from sequence_tasks import bench
from sequence_tasks.settings import SequenceTask
from sequence_tasks.training import SequenceTrainer


def run(*arguments):
    command = [sys.executable, "-m", "sequence_tasks.bench", *arguments]
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False)


def test_json_lists_both_paths_and_policies():
    result = run("--json", "--rounds", "1", "--batch", "4", "--cases", "tpo", "dg")
    assert result.returncode == 0, result.stderr
    rows = json.loads(result.stdout)
    found = [(row["objective"], row["policy"], row["path"]) for row in rows]
    assert found == [
        (name, policy, path) for name in ("tpo", "dg") for policy in ("fresh", "solved") for path in ("fast", "plain")
    ]
    for row in rows:
        assert row["cpu_seconds"] > 0
        assert row["sgemm_gflops"] > 1
        assert row["gflops"] == pytest.approx(row["gigaflop"] / row["cpu_seconds"])


def test_a_table_names_what_is_wanted():
    result = run("--rounds", "1", "--batch", "4", "--cases", "tpo")
    assert result.returncode == 0, result.stderr
    for word in ("solved", "≥ 30", "GFLOP/s", "floor"):
        assert word in result.stdout


def test_a_device_that_there_is_not_is_one_line():
    result = run("--device", "tpu")
    assert result.returncode == 2
    assert result.stderr.splitlines() == ["error: device: 'tpu' is not allowed; choose from auto, cpu, cuda, cuda:N"]


@pytest.mark.parametrize("arguments", ["--rounds 0", "--batch 0", "--batch -4", "--rounds x", "--cases tpoo", "--n 1"])
def test_a_mistake_is_told_without_a_traceback(arguments, capsys):
    with pytest.raises(SystemExit) as stopped:
        bench.main(arguments.split())
    assert stopped.value.code == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.splitlines()[-1].startswith("python -m sequence_tasks.bench: error: ")
    assert "Traceback" not in told.err


def test_a_device_is_refused_before_anything_is_measured(monkeypatch, capsys):
    monkeypatch.setattr(bench, "sgemm_gflops", lambda device: pytest.fail("measured"))
    for name in ("tpu", "cuda:99", ""):
        assert bench.main(["--device", name]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith(f"error: device: {name!r} ")


def test_gigaflops_are_those_of_the_distinct_tokens():
    """Each weight of a layer takes part once a token and direction: by hand for a policy and its whole batch."""
    settings = SequenceTask(objective="grpo", length=2, batch=5, candidates=3, epochs=2, reward="bag_of_tokens")
    trainer = SequenceTrainer(settings, [0], torch.device("cpu"))
    (rollout,) = trainer.rollouts()
    sequences = torch.cat([rollout.prompts[:, None].expand_as(rollout.tokens), rollout.tokens], -1).flatten(0, 1)
    varied = rollout.signal.varied[:, 0]

    def distinct(rows):
        return len({tuple(row[:end]) for row in rows.tolist() for end in (1, 2, 3)})

    sampled = later = distinct(sequences)
    first = distinct(sequences.view(5, 3, 4)[varied].flatten(0, 1))
    assert 0 < first < sampled  # a group of equal scores has no gradient on the snapshot
    weights = 2 * (4 * 64 * 64 + 2 * 64 * 256) + 64 * 2
    assert bench.gigaflop(trainer) == pytest.approx(weights * (2 * sampled + 6 * (first + later)) / 1e9)


def test_sharpening_changes_the_output_weights_alone_and_no_more_than_it_must():
    settings = SequenceTask(length=4, batch=20)
    trainer, fresh = (SequenceTrainer(settings, [0], torch.device("cpu")) for _ in range(2))
    assert bench._share_of_identical(fresh) < 0.5
    bench.sharpen(trainer)
    before, after = fresh.state_dict(), trainer.state_dict()
    factor = float((after["output.weight"] / before["output.weight"]).median())
    assert factor > 1
    for name, value in before.items():
        torch.testing.assert_close(after[name], value * (factor if name == "output.weight" else 1), msg=name)
    assert bench._share_of_identical(trainer) >= 0.95
    trainer.state_dict()["output.weight"].mul_(0.95)
    assert bench._share_of_identical(trainer) < 0.95


@pytest.mark.parametrize("case", ["tpo", "tpo_token"])
def test_a_solved_policy_repeats_itself(case):
    settings = SequenceTask(**({"length": 4, "batch": 20} | bench.CASES[case]))
    trainer = SequenceTrainer(settings, [0], torch.device("cpu"))
    bench.sharpen(trainer)
    (rollout,) = trainer.rollouts()
    same = (rollout.tokens == rollout.tokens[:, :1]).flatten(1).all(1)
    if rollout.picked is not None:
        same = (rollout.picked == rollout.picked[..., :1]).all(-1)
    assert same.double().mean() >= 0.95
