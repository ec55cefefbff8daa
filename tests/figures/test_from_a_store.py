"""Figures and comparisons from a small synthetic store, by the real command line."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from figure_runs import figures, put, rows

from bandits.mnist.training import Mnist
from bandits.multi_context import MultiContext
from bandits.single_context import SingleContext
from common.runs.store import RunStore
from figures.__main__ import FIGURES

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = ["claim", "source", "paper", "ours", "low", "high", "n", "preset", "verdict", "command"]
RATES = {"tpo": 0.09, "dg": 0.085, "grpo": 0.06, "pg": 0.05, "group_pg": 0.045, "ce": 0.1}


def curves(seeds, steps, rate):
    """Errors that fall exponentially, a little differently for every seed."""
    noise = torch.from_numpy(np.random.default_rng(0).normal(1, 0.02, (seeds, 1)))
    return 0.9 * torch.exp(-rate * noise * steps)


@pytest.fixture(scope="module")
def full(tmp_path_factory):
    """A store with every method of the three figures at the paper's size."""
    store = RunStore(tmp_path_factory.mktemp("full") / "runs")
    steps = torch.arange(150)
    for name in ("tpo", "dg", "grpo", "pg"):
        error = curves(100, steps, RATES[name])
        metrics = {"error": error, "misalignment": error / 3, "misalignment_epsilon": error / 3 + 1e-5}
        put(store, "single_context", SingleContext(objective=name), 100, metrics, steps)
    steps = torch.arange(1000)
    for name in ("tpo", "dg", "grpo", "pg", "ce"):
        error = curves(100, steps, RATES[name] / 10)
        metrics = {"error": error, "misalignment": error / 3, "misalignment_epsilon": error / 3 + 1e-5}
        put(store, "multi_context", MultiContext(objective=name), 100, metrics, steps)
    steps = torch.arange(0, 10_001, 200)
    for name in RATES:
        error = 0.025 + curves(20, steps, RATES[name] / 50)
        nothing = torch.full_like(error, torch.nan)
        surplus = {
            f"surplus_{i}": (i + 0.1) * 0.02 * torch.ones_like(error) if name == "tpo" else nothing for i in range(4)
        }
        if name == "dg":
            surplus = {f"surplus_{i}": -0.001 * (i + 1) * torch.ones_like(error) for i in range(4)}
        put(store, "mnist", Mnist(objective=name), 20, {"error": error, **surplus}, steps)
    return store


def test_draws_compares_and_names_the_paths(full, tmp_path, environment):
    result = figures("--store", full.root, "--out", tmp_path / "out", environment=environment)
    assert result.returncode == 0, result.stderr
    names = [f"{name}.{kind}" for name in ("fig02", "fig03", "fig04") for kind in ("png", "pdf")]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted(names)
    assert result.stdout.splitlines()[-6:] == [str(tmp_path / "out" / name) for name in names]
    for name in names:
        assert (tmp_path / "out" / name).read_bytes()[:4] in (b"\x89PNG", b"%PDF")
    for word in ("claim", "paper", "ours ± s.e. (seeds)", "verdict", "reproduced", "(100)"):
        assert word in result.stdout
    again = figures("--store", full.root, "--out", tmp_path / "again", environment=environment)
    assert again.returncode == 0
    for name in names:
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "again" / name).read_bytes()


def test_json_has_the_agreed_keys_and_types(full):
    found = rows("fig02", "fig03", "fig04", "--store", full.root)
    assert len(found) > 40
    for row in found:
        assert list(row) == SCHEMA
        assert row["verdict"] in ("reproduced", "differs", "inconclusive", "reduced", "not run")
        assert isinstance(row["n"], int)
        assert row["preset"] == "paper"
        assert re.fullmatch(r"python -m bandits experiment=\w+ preset=paper", row["command"])
        for end in ("low", "high"):
            assert row[end] is None or isinstance(row[end], float)
    verdicts = {row["claim"]: row["verdict"] for row in found}
    assert verdicts["TPO reaches 1 % error in fewer steps than PG and GRPO"] == "reproduced"
    assert any("surplus rises" in claim and verdict == "reproduced" for claim, verdict in verdicts.items())


def test_a_store_without_runs_draws_nothing_and_says_what_to_run(tmp_path):
    for row in rows("--store", tmp_path / "nothing"):
        assert (row["verdict"], row["ours"], row["n"], row["preset"]) == ("not run", None, 0, None)
    result = figures("fig02", "--store", tmp_path / "nothing", "--out", tmp_path / "out")
    assert result.returncode == 0
    assert "no runs of single_context" in result.stderr
    assert "python -m bandits experiment=single_context preset=paper" in result.stdout
    assert not (tmp_path / "out").exists()


def test_fewer_seeds_and_fewer_steps_are_labelled(tmp_path):
    store = RunStore(tmp_path / "runs")
    steps = torch.arange(150)
    for name in ("tpo", "dg", "grpo", "pg"):
        error = curves(8, steps, RATES[name])
        metrics = {"error": error, "misalignment": error / 3, "misalignment_epsilon": error / 3}
        put(store, "single_context", SingleContext(objective=name), 8, metrics, steps)
    found = {row["claim"]: row for row in rows("fig02", "--store", store.root)}
    row = found["TPO reaches 1 % error in fewer steps than PG and GRPO"]
    assert (row["verdict"], row["n"]) == ("reduced", 8)
    assert not any(row["verdict"] == "reproduced" for row in found.values())

    short = RunStore(tmp_path / "short")
    for name in ("tpo", "dg"):
        error = curves(8, steps[:60], RATES[name])
        metrics = {"error": error, "misalignment": error / 3, "misalignment_epsilon": error / 3}
        put(short, "single_context", SingleContext(objective=name, steps=60), 8, metrics, steps[:60])
    result = figures("fig02", "--store", short.root, "--out", tmp_path / "out")
    assert result.returncode == 0, result.stderr
    assert "fig02: no runs of GRPO and PG" in result.stderr
    assert (tmp_path / "out" / "fig02.png").exists()
    assert not any(row["verdict"] == "reproduced" for row in rows("fig02", "--store", short.root))


def test_one_seed_shorter_than_the_others(tmp_path):
    store = RunStore(tmp_path / "runs")
    steps = torch.arange(150)
    for name in ("tpo", "dg", "grpo", "pg"):
        error = curves(5, steps, RATES[name])
        if name == "dg":
            error[2, 100:] = torch.nan
        metrics = {"error": error, "misalignment": error / 3, "misalignment_epsilon": error / 3}
        put(store, "single_context", SingleContext(objective=name), 5, metrics, steps)
    result = figures("fig02", "--store", store.root, "--out", tmp_path / "out")
    assert result.returncode == 0, result.stderr
    final = next(row for row in rows("fig02", "--store", store.root) if row["claim"] == "DG: final error (%)")
    assert final["n"] == 4


def test_other_settings_do_not_pass_for_the_papers(tmp_path):
    store = RunStore(tmp_path / "runs")
    steps = torch.arange(150)
    for settings in (
        SingleContext(objective="tpo", step_size=0.5),
        SingleContext(objective="tpo", options={"eta": 0.1}),
    ):
        error = curves(3, steps, 0.1)
        metrics = {"error": error, "misalignment": error, "misalignment_epsilon": error}
        put(store, "single_context", settings, 3, metrics, steps)
    assert {row["verdict"] for row in rows("fig02", "--store", store.root)} == {"not run"}


def test_a_damaged_file_is_one_line(full, tmp_path):
    store = RunStore(tmp_path / "runs")
    steps = torch.arange(150)
    error = curves(3, steps, 0.1)
    metrics = {"error": error, "misalignment": error, "misalignment_epsilon": error}
    directory = put(store, "single_context", SingleContext(), 3, metrics, steps)
    file = directory / "metrics-0-2.parquet"
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    result = figures("fig02", "--store", store.root, "--out", tmp_path / "out")
    assert result.returncode == 2
    assert len(result.stderr.strip().splitlines()) == 1
    assert "metrics-0-2.parquet" in result.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["fig2"], "figure: 'fig2' is unknown (did you mean 'fig02'?); there are fig02, fig03, fig04"),
        (["--store", "README.md", "--json"], "is a file; give a directory"),
    ],
)
def test_mistakes_are_one_line(arguments, words):
    result = figures(*arguments)
    assert result.returncode == 2
    assert len(result.stderr.strip().splitlines()) == 1
    assert words in result.stderr


def test_an_out_folder_that_cannot_be_written(full, tmp_path):
    (tmp_path / "file").write_text("")
    result = figures("fig02", "--store", full.root, "--out", tmp_path / "file" / "out")
    assert result.returncode == 2
    assert result.stderr.startswith("error: --out ")
    assert len(result.stderr.strip().splitlines()) == 1


def test_list_names_the_figures():
    result = figures("--list")
    assert result.returncode == 0
    assert [line.split()[0] for line in result.stdout.splitlines()] == list(FIGURES)
    assert {"fig02", "fig03", "fig04", "fig05", "fig07"} <= set(FIGURES)


def test_seeds_differ_between_methods(tmp_path):
    """The footer and every row say how many seeds are behind them."""
    store = RunStore(tmp_path / "runs")
    steps = torch.arange(150)
    for seeds, name in ((3, "tpo"), (6, "dg")):
        error = curves(seeds, steps, RATES[name])
        metrics = {"error": error, "misalignment": error, "misalignment_epsilon": error}
        put(store, "single_context", replace(SingleContext(), objective=name), seeds, metrics, steps)
    found = {row["claim"]: row["n"] for row in rows("fig02", "--store", store.root)}
    assert (found["TPO: final error (%)"], found["DG: final error (%)"]) == (3, 6)
