from collections.abc import Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import pytest
import torch
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from bandits.experiments import EXPERIMENTS
from common import objectives
from common.errors import UserError
from common.launch.plan import CONFIGS, device_of, plan_runs, planned_run

CHOICES = sorted(path.stem for path in (CONFIGS / "bandits" / "experiment").glob("*.yaml"))
PRESETS = sorted(path.stem for path in (CONFIGS / "bandits" / "preset").glob("*.yaml"))
IN_NO_CONFIGURATION = {"objective", "options", "images"}
"""Chosen by the grid and the command line, or found in the data."""


def composed(*overrides: str) -> dict[str, Any]:
    with initialize_config_dir(str(CONFIGS / "bandits"), version_base="1.3"):
        plain = OmegaConf.to_container(compose("config", overrides=list(overrides)), resolve=True)
    assert isinstance(plain, dict)
    return {str(key): value for key, value in plain.items()}


def keys(*arguments: str) -> list[str]:
    return [run.spec.key for run in plan_runs("bandits", arguments)]


# The configuration and the dataclasses.


def test_every_experiment_can_be_chosen() -> None:
    assert set(EXPERIMENTS) <= set(CHOICES)
    assert {composed(f"experiment={choice}")["experiment"] for choice in CHOICES} == set(EXPERIMENTS)


@pytest.mark.parametrize("choice", CHOICES)
def test_the_paper_preset_is_the_defaults(choice: str) -> None:
    config = composed(f"experiment={choice}", "preset=paper")
    assert config["preset"] == "paper"
    settings = EXPERIMENTS[config["experiment"]].settings
    for field in fields(settings):
        if field.name in IN_NO_CONFIGURATION:
            continue
        assert field.name in config, f"{field.name} cannot be set on the command line"
        assert field.default is not MISSING
        assert config[field.name] == field.default, field.name
        assert type(config[field.name]) is type(field.default), field.name
    assert config["objective"] == settings().objective
    assert set(config["options"].values()) == {None}


@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_composes(choice: str, preset: str) -> None:
    config = composed(f"experiment={choice}", f"preset={preset}")
    settings = EXPERIMENTS[config["experiment"]].settings
    given = {field.name: config[field.name] for field in fields(settings) if field.name in config}
    assert settings(**given | {"options": {}}).steps > 0
    assert config["seeds"] >= 1
    paper = composed(f"experiment={choice}", "preset=paper")
    assert config["seeds"] <= paper["seeds"]


@pytest.mark.parametrize("choice", CHOICES)
def test_every_objective_of_the_grid_is_registered(choice: str) -> None:
    with initialize_config_dir(str(CONFIGS / "bandits"), version_base="1.3"):
        config = compose("config", overrides=[f"experiment={choice}"], return_hydra_config=True)
    for name in config.hydra.sweeper.params.objective.split(","):
        assert name in objectives.names()


def test_every_option_of_every_objective_can_be_set() -> None:
    options = {option for name in objectives.names() for option in objectives.get(name).options}
    assert set(composed()["options"]) == options


@pytest.mark.parametrize("name", objectives.names())
def test_every_option_reaches_its_objective(name: str) -> None:
    for option, value in objectives.get(name).options.items():
        other = not value if isinstance(value, bool) else 0.75 * value + 0.1
        (run,) = plan_runs("bandits", [f"objective={name}", f"options.{option}={str(other).lower()}"])
        assert run.spec.settings.options == {option: other}
        assert run.spec.all_settings()["options"][option] == other


@pytest.mark.parametrize("choice", ["single_context", "multi_context"])
def test_every_key_reaches_the_settings(choice: str) -> None:
    settings = EXPERIMENTS[choice].settings
    for field in fields(settings):
        if field.name in IN_NO_CONFIGURATION:
            continue
        words = {"float32": "float64", "float64": "float32"}
        other = words[field.default] if isinstance(field.default, str) else field.default + 1
        (run,) = plan_runs("bandits", [f"experiment={choice}", "objective=tpo", f"{field.name}={other}"])
        assert getattr(run.spec.settings, field.name) == other
        assert run.spec.changed_settings() == {"objective": "tpo", field.name: other}


# Identity.


@pytest.mark.parametrize(
    "argument",
    [
        "seeds=3",
        "stack=2",
        "workers=1",
        "workers=7",
        "store=elsewhere",
        "device=cpu",
        "checkpoint_seconds=0",
        "dry_run=true",
        "cpu_milliseconds=9",
        "preset=paper",
        "steps=150",
        "step_size=0.1",
        "options.eta=null",
        "hydra.verbose=true",
    ],
)
def test_what_changes_no_number_changes_no_identity(argument: str) -> None:
    assert keys("objective=tpo", argument) == keys("objective=tpo") == ["cbcff1826e"]


def test_options_at_their_default_change_no_identity() -> None:
    assert keys("objective=tpo", "options.eta=1", "options.anchored=true") == keys("objective=tpo")
    assert keys("objective=tpo", "options.eta=2") == keys("objective=tpo", "options.eta=2.0") != keys("objective=tpo")


@pytest.mark.parametrize("argument", ["steps=149", "step_size=0.2", "dtype=float32", "options.eta=2", "preset=smoke"])
def test_what_changes_numbers_changes_the_identity(argument: str) -> None:
    assert keys("objective=tpo", argument) != keys("objective=tpo")


def test_the_order_of_arguments_is_irrelevant() -> None:
    arguments = ["objective=tpo", "steps=7", "options.eta=2", "baseline=0", "preset=smoke"]
    assert keys(*arguments) == keys(*arguments[::-1])


# Sweeps.


def test_the_experiments_grid() -> None:
    runs = plan_runs("bandits", ["experiment=multi_context", "preset=smoke"])
    assert [run.spec.settings.objective for run in runs] == ["pg", "dg", "tpo", "grpo", "ce"]
    assert {run.seeds for run in runs} == {4}
    assert {run.spec.settings.steps for run in runs} == {60}


def test_the_command_line_replaces_the_grid() -> None:
    runs = plan_runs("bandits", ["objective=tpo,pg", "step_size=0.1,0.2,1"])
    assert [(run.spec.settings.objective, run.spec.settings.step_size) for run in runs] == [
        (objective, size) for objective in ("tpo", "pg") for size in (0.1, 0.2, 1.0)
    ]


def test_a_sweep_of_groups_of_options() -> None:
    runs = plan_runs("bandits", ["objective=tpo", "options={eta:2},{eta:3,anchored:false},{}"])
    assert [run.spec.settings.options for run in runs] == [{"eta": 2}, {"eta": 3, "anchored": False}, {}]


def test_a_range() -> None:
    assert [run.spec.settings.steps for run in plan_runs("bandits", ["objective=tpo", "steps=range(1,4)"])] == [1, 2, 3]


# Devices and single runs.


def test_devices() -> None:
    assert device_of("cpu") == torch.device("cpu")
    assert device_of("auto").type in ("cpu", "cuda")
    for name in ("nonsense", "", "cpu:x", "cuda:99", "meta", "mps", "auto:0", "CPU"):
        with pytest.raises(UserError, match=r"^device: ") as error:
            device_of(name)
        assert len(str(error.value).splitlines()) == 1
        assert len(str(error.value)) < 300


def test_a_plan_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    plan_runs("bandits", [])
    assert list(tmp_path.iterdir()) == []


def test_a_composed_configuration_is_planned_without_hydra() -> None:
    config: Mapping[str, Any] = composed("objective=grpo", "steps=5", "options.beta=0.5", "seeds=2")
    run = planned_run("bandits", config)
    assert [run.spec.key] == keys("objective=grpo", "steps=5", "options.beta=0.5")
    assert run.seeds == 2


@pytest.mark.parametrize(
    ("track", "arguments"),
    [
        ("bandits", ["experiment=multi_context", "objective=tpo,grpo", "options.std_epsilon=null", "seeds=3"]),
        ("sequence_tasks", ["experiment=terminal", "preset=paper", "task.length=7,8", "matching=interaction"]),
        ("sequence_tasks", ["experiment=temperature", "preset=quick", "level=token", "options.eta=0.25,1"]),
        ("llm_rlvr", ["experiment=learning", "preset=paper", "task=gsm8k", "dry_run=true"]),
    ],
)
def test_a_sweep_is_composed_as_hydra_composes_each_of_its_jobs(track: str, arguments: list[str]) -> None:
    planned = plan_runs(track, arguments, fetch=False)
    assert len(planned) > 1
    with initialize_config_dir(str(CONFIGS / track), version_base="1.3"):
        for run in planned:
            assert OmegaConf.to_container(compose("config", overrides=list(run.overrides)), resolve=True) == run.config


def test_a_plan_may_leave_data_and_models_where_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(*arguments: Any) -> None:
        raise UserError("data: asked for")

    monkeypatch.setattr("bandits.experiments.load_digits", asked)
    with pytest.raises(UserError, match="asked for"):
        plan_runs("bandits", ["experiment=mnist", "objective=tpo"])
    (run,) = plan_runs("bandits", ["experiment=mnist", "objective=tpo"], fetch=False)
    assert run.spec.settings.images == "mnist"  # type: ignore[attr-defined]
