import random
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, make_dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bandits.mnist.training import Mnist
from bandits.multi_context import MultiContext
from bandits.single_context import SingleContext
from common import objectives
from common.runs.identity import RunSpec

PROPERTY = settings(deadline=None, derandomize=True, database=None)
SETTINGS = {"single_context": SingleContext, "multi_context": MultiContext, "mnist": Mnist}


def spec(settings: Any = None, experiment: str = "single_context", **changes: Any) -> RunSpec:
    return RunSpec("bandits", experiment, settings or SETTINGS[experiment](**changes))


@pytest.mark.parametrize(
    ("experiment", "changes", "name"),
    [
        ("single_context", {}, "tpo-cbcff1826e"),
        ("single_context", {"objective": "grpo"}, "grpo-cfab83784e"),
        ("single_context", {"steps": 30}, "tpo_steps_30-207fd405fe"),
        ("single_context", {"options": {"eta": 2.0}}, "tpo_eta_2.0-72c9ec9e3b"),
        ("multi_context", {"steps": 60000}, "tpo_steps_60000-562c892581"),
    ],
)
def test_finished_runs_keep_their_names(experiment: str, changes: dict[str, Any], name: str) -> None:
    assert spec(experiment=experiment, **changes).path == Path("bandits", experiment, name)


@pytest.mark.parametrize("experiment", SETTINGS)
def test_settings_at_their_default_are_left_out(experiment: str) -> None:
    defaults = SETTINGS[experiment]()
    given_all = SETTINGS[experiment](**{item.name: getattr(defaults, item.name) for item in fields(defaults)})
    assert spec(given_all, experiment).changed_settings() == {"objective": "tpo"}
    assert spec(given_all, experiment).key == spec(defaults, experiment).key


@pytest.mark.parametrize("name", objectives.names())
def test_options_at_their_default_are_left_out(name: str) -> None:
    default = objectives.get(name).options
    assert spec(objective=name, options=default).key == spec(objective=name).key
    assert spec(objective=name, options=default).changed_settings() == {"objective": name}


def test_a_new_setting_orphans_no_run() -> None:
    later = make_dataclass(
        "Later",
        [("schedule", str, field(default="constant")), ("clip", float | None, field(default=None))],
        bases=(SingleContext,),
        frozen=True,
    )
    assert spec(later(steps=7)).key == spec(steps=7).key
    assert spec(later(steps=7, schedule="cosine")).key != spec(steps=7).key


def test_defaults_from_a_factory_are_left_out() -> None:
    @dataclass(frozen=True)
    class Layered:
        objective: str = "tpo"
        options: Mapping[str, float | bool] = field(default_factory=dict)
        steps: int = 5
        layers: list[int] = field(default_factory=lambda: [50, 50])

    assert spec(Layered()).changed_settings() == {"objective": "tpo"}
    assert spec(Layered(layers=[50])).changed_settings() == {"objective": "tpo", "layers": [50]}


def test_a_setting_without_default_always_counts() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Open:
        task: str
        objective: str = "tpo"
        options: Mapping[str, float | bool] = field(default_factory=dict)
        steps: int = 5

    assert spec(Open(task="a")).key != spec(Open(task="b")).key


@PROPERTY
@given(st.randoms(use_true_random=False))
def test_the_order_of_keys_is_irrelevant(shuffle: random.Random) -> None:
    items = [("clip", 0.1), ("beta", 0.5), ("max_log_ratio", 3.0), ("std_epsilon", 1e-3)]
    shuffled = shuffle.sample(items, len(items))
    assert spec(objective="grpo", options=dict(shuffled)).key == spec(objective="grpo", options=dict(items)).key


def test_the_order_of_fields_is_irrelevant() -> None:
    @dataclass(frozen=True)
    class Reordered:
        steps: int = 150
        batch: int = 100
        options: Mapping[str, float | bool] = field(default_factory=dict)
        objective: str = "tpo"

    assert spec(Reordered(steps=3, batch=4)).key == spec(steps=3, batch=4).key


OTHER_VALUES: dict[str, Any] = {
    "objective": "pg",
    "options": {"eta": 0.5},
    "dtype": "float64",
    "images": "fashion",
    "steps": 400,
    "eval_every": 100,
}


@pytest.mark.parametrize(
    ("experiment", "key"), [(name, item.name) for name, kind in SETTINGS.items() for item in fields(kind)]
)
def test_every_setting_counts(experiment: str, key: str) -> None:
    default = SETTINGS[experiment]()
    old = getattr(default, key)
    other = OTHER_VALUES.get(key, old + 1 if isinstance(old, int | float) else None)
    if other == old:
        other = "float32"
    changed = replace(default, **{key: other})
    assert spec(changed, experiment).key != spec(default, experiment).key
    assert spec(changed, experiment).path != spec(default, experiment).path


@pytest.mark.parametrize("name", objectives.names())
def test_every_option_counts(name: str) -> None:
    keys = set()
    for option, value in objectives.get(name).options.items():
        other = not value if isinstance(value, bool) else 0.75 * value + 0.1
        keys.add(spec(objective=name, options={option: other}).key)
    assert len(keys - {spec(objective=name).key}) == len(objectives.get(name).options)


def test_a_whole_number_is_the_real_number_of_its_value() -> None:
    assert spec(options={"eta": 2}).path == spec(options={"eta": 2.0}).path
    assert spec(step_size=1).path == spec(step_size=1.0).path
    assert spec(options={"eta": 1}).path == spec().path


def test_true_is_not_one() -> None:
    assert spec(objective="tpo", options={"anchored": False}).changed_settings()["options"] == {"anchored": False}
    assert "anchored=False" in spec(objective="tpo", options={"anchored": False}).title


def test_experiments_and_tracks_do_not_share_runs() -> None:
    paths = {RunSpec(track, name, MultiContext()).key for track in ("bandits", "other") for name in ("a", "b")}
    assert len(paths) == 4


def test_all_settings_are_resolved() -> None:
    resolved = spec(objective="grpo", options={"beta": 0.5}).all_settings()
    assert resolved["options"] == {**objectives.get("grpo").options, "beta": 0.5}
    assert set(resolved) == {item.name for item in fields(SingleContext)}


@PROPERTY
@given(
    st.sampled_from(["tpo", "tpo_no_anchor"]),
    st.floats(min_value=5e-324, allow_nan=False, allow_infinity=False),
    st.integers(1, 10**30),
    st.text(max_size=300),
)
def test_paths_are_safe(objective: str, eta: float, steps: int, dtype: str) -> None:
    @dataclass(frozen=True)
    class Wild:
        objective: str
        options: Mapping[str, float | bool]
        steps: int = 1
        dtype: str = ""

    wild = RunSpec("bandits", "single_context", Wild(objective, {"eta": eta}, steps, dtype))
    track, experiment, name = wild.path.parts
    assert (track, experiment) == ("bandits", "single_context")
    assert name.endswith(f"-{wild.key}")
    assert set(name) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
    assert not name.startswith((".", "-"))
    assert len(name) <= 80


def test_an_objective_of_ones_own_has_a_safe_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_identity.py").write_text(
        "from common import objectives\nMINE = objectives.get('tpo', {'eta': 2.0})\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    own = spec(objective="own_identity:MINE")
    assert own.path.name == f"own_identity_MINE-{own.key}"
    assert spec(objective="own_identity:MINE", options={"eta": 2.0}).key == own.key
    assert spec(objective="own_identity:MINE", options={"eta": 1.0}).key != own.key
