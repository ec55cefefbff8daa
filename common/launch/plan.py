"""From a command line to the runs it asks for; every mistake in it becomes one line."""

import difflib
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from hydra import compose, initialize_config_dir
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from common.errors import UserError
from common.launch.experiment import experiments_of
from common.runs.identity import RunSpec
from common.runs.settings import require

CONFIGS = Path(__file__).resolve().parents[2] / "configs"


@dataclass(frozen=True)
class PlannedRun:
    """One run that the command line asks for."""

    spec: RunSpec
    seeds: int
    config: Mapping[str, Any]
    overrides: tuple[str, ...]
    """What the command line and the sweep changed, for Hydra."""


def plan_runs(track: str, arguments: Sequence[str], *, fetch: bool = True) -> list[PlannedRun]:
    """Expand the command line and the experiment's grid into runs.

    Args:
        track: whose command line it is.
        arguments: its words.
        fetch: whether to get the data and models on which settings depend; without, these settings have their defaults.

    Raises:
        UserError: an unknown key, option or value (naming the nearest), or one that is not allowed.
    """
    folder = CONFIGS / track
    with initialize_config_dir(str(folder), version_base="1.3"):
        overrides = _parsed(arguments)
        _check_names(folder, overrides)
        choices = [text for text, override in overrides if (folder / override.key_or_group).is_dir()]
        base = _composed(choices)
        known = _known_keys(base)
        for text, override in overrides:
            _check_key(override, text, known)
        grid = OmegaConf.to_container(base.hydra.sweeper.params) or {}
        assert isinstance(grid, dict)
        parser = OverridesParser.create()
        sweep = parser.parse_overrides([*(f"{key!s}={value}" for key, value in grid.items()), *arguments])
        (jobs,) = BasicSweeper.split_arguments(sweep, None)
        configs = _expanded(folder, jobs)
    plain: list[Mapping[str, Any]] = [_plain(config) for config in configs]
    for config in plain:
        _check_against(config, base, plain[0])
    return [planned_run(track, config, job, fetch=fetch) for config, job in zip(plain, jobs, strict=True)]


def planned_run(
    track: str, config: Mapping[str, Any], overrides: Sequence[str] = (), *, fetch: bool = True
) -> PlannedRun:
    """Build one run from a composed configuration; ``fetch`` as in ``plan_runs``.

    Raises:
        UserError: a value that is not allowed, naming its key.
    """
    if config["track"] != track:
        raise UserError(f"track: {config['track']!r} is not allowed; another track has its own command line")
    for key, kind in _UNSWEPT.items():
        if key not in _MAYBE_NULL or config[key] is not None:
            _typed(key, config[key], kind)
    try:
        require("seeds", config["seeds"], at_least=1)
        if config["stack"] is not None:
            require("stack", config["stack"], at_least=1)
        if config["workers"] != -1:
            require("workers", config["workers"], at_least=1)
        require("checkpoint_seconds", config["checkpoint_seconds"], at_least=0)
        if config["cpu_milliseconds"] is not None:
            require("cpu_milliseconds", config["cpu_milliseconds"], at_least=0)
    except ValueError as error:
        raise UserError(str(error)) from error
    if not config["store"]:
        raise UserError("store: '' is not allowed; it is a directory")
    device_of(config["device"])
    spec = RunSpec(track, config["experiment"], _settings(track, config, fetch))
    return PlannedRun(spec, config["seeds"], config, tuple(overrides))


_UNSWEPT: dict[str, type] = {
    "seeds": int,
    "stack": int,
    "store": str,
    "device": str,
    "dry_run": bool,
    "checkpoint_seconds": float,
    "workers": int,
    "cpu_milliseconds": float,
}
"""Keys that change no number, and so have one value in all runs of a sweep."""
_MAYBE_NULL = ("stack", "cpu_milliseconds")


def device_of(name: str) -> torch.device:
    """Return the device that ``device=`` names; ``auto`` is CUDA where there is one.

    Raises:
        UserError: an unknown device, or one that this machine lacks.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name.partition(":")[0] not in ("cpu", "cuda"):
        raise UserError(f"device: {name!r} is not allowed; choose from auto, cpu, cuda, cuda:N")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise UserError(f"device: {name!r} cannot be used ({str(error).splitlines()[0]}); try auto or cpu") from error
    return device


def _settings(track: str, config: Mapping[str, Any], fetch: bool) -> Any:
    experiment = experiments_of(track)[config["experiment"]]
    nested = config.get("task", {})
    nested = nested if isinstance(nested, Mapping) else {}
    given = {**config, **nested}
    values = {field.name: given[field.name] for field in fields(experiment.settings) if field.name in given}
    values["options"] = {key: value for key, value in config["options"].items() if value is not None}
    try:
        if experiment.prepare is not None:
            values |= experiment.prepare(config)
        if fetch:
            values |= {name: fetched(config) for name, fetched in experiment.fetch.items()}
        for field in fields(experiment.settings):
            values[field.name] = _typed(field.name, values.get(field.name, field.default), field.type)
        return experiment.settings(**values)
    except (ValueError, UserError) as error:
        message = str(error)
        in_task = message.partition(":")[0] in nested  # where the key stands on the command line
        raise UserError(f"task.{message}" if in_task else message) from error


def _typed(key: str, value: Any, kind: Any) -> Any:
    """Check a value against a field's type; whole numbers pass for real ones."""
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    expected = {int: "a whole number", float: "a number", str: "a word", bool: "true or false"}.get(kind)
    if expected is not None and (not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool)):
        raise UserError(f"{key}: {value!r} is not allowed; it must be {expected}")
    return value


def _parsed(arguments: Sequence[str]) -> list[tuple[str, Override]]:
    try:
        return list(zip(arguments, OverridesParser.create().parse_overrides(list(arguments)), strict=True))
    except HydraException as error:
        raise UserError(f"{_first_line(error)}; expected key=value") from error


def _check_names(folder: Path, overrides: Sequence[tuple[str, Override]]) -> None:
    """Check the choices of experiment and preset before Hydra looks for their files."""
    for text, override in overrides:
        group = override.key_or_group
        if (folder / group).is_dir():
            if override.is_sweep_override():
                raise UserError(f"{text}: one {group} at a time; its grid is swept, e.g. objective=tpo,grpo")
            allowed = sorted(path.stem for path in (folder / group).glob("*.yaml"))
            if override.value() not in allowed:
                nearest = _nearest(str(override.value()), allowed)
                raise UserError(f"{group}: {override.value()!r} is unknown{nearest}; choose from {', '.join(allowed)}")


def _check_key(override: Override, text: str, known: Sequence[str]) -> None:
    key = override.key_or_group
    if key.startswith("hydra"):
        return
    if override.is_delete():
        raise UserError(f"{text}: a key cannot be taken out; set it to a value")
    if key in known or (key.startswith("options.") and (override.is_add() or override.is_force_add())):
        return
    by_last_word = [name for name in known if name.rpartition(".")[2] == key]
    nearest = f" (did you mean {by_last_word[0]!r}?)" if by_last_word else _nearest(key, known)
    visible = ", ".join(name for name in known if "." not in name)
    hint = f"; an option of your own objective is added with +{key}=" if key.startswith("options.") else ""
    raise UserError(f"{text}: unknown key {key!r}{nearest}; there are {visible}{hint}")


def _check_against(config: Mapping[str, Any], base: DictConfig, first: Mapping[str, Any]) -> None:
    """Check that groups of keys are still groups, and that a sweep changes only what changes a run."""
    for key, value in config.items():
        if OmegaConf.is_dict(base[key]) and not isinstance(value, Mapping):
            raise UserError(f"{key}: {value!r} is not allowed; set {key}.NAME=value")
        if key in _UNSWEPT and value != first[key]:
            raise UserError(f"{key}: {first[key]!r} and {value!r}: it cannot be swept; give one value")


def _composed(overrides: Sequence[str]) -> DictConfig:
    try:
        return compose("config", overrides=list(overrides), return_hydra_config=True)
    except (HydraException, OmegaConfBaseException) as error:
        raise UserError(_first_line(error.__cause__ or error)) from error


def _expanded(folder: Path, jobs: Sequence[Sequence[str]]) -> list[DictConfig]:
    """Compose the jobs' configurations; Hydra reads its files once for each choice of them, which takes it long."""
    parser = OverridesParser.create()
    composed: dict[tuple[str, ...], DictConfig] = {}
    configs = []
    for job in jobs:
        parsed = list(zip(job, parser.parse_overrides(list(job)), strict=True))
        plain = {text for text, override in parsed if _sets_a_value(folder, override)}
        chosen = tuple(text for text in job if text not in plain)
        if chosen not in composed:
            base = _composed(chosen)
            composed[chosen] = OmegaConf.masked_copy(base, [str(key) for key in base if key != "hydra"])
        config = deepcopy(composed[chosen])
        for text, override in parsed:
            if text in plain:
                OmegaConf.update(config, override.key_or_group, override.value())
        configs.append(config)
    return configs


def _sets_a_value(folder: Path, override: Override) -> bool:
    """Whether an override replaces a value of the configuration, rather than choosing a file or adding a key."""
    key = override.key_or_group
    replaces = not (override.is_add() or override.is_force_add() or override.is_delete())
    return replaces and not key.startswith("hydra") and not (folder / key).is_dir()


def _plain(config: DictConfig) -> dict[str, Any]:
    """Resolve everything but Hydra's own part, to plain containers."""
    own = OmegaConf.masked_copy(config, [str(key) for key in config if key != "hydra"])
    try:
        plain = OmegaConf.to_container(own, resolve=True, throw_on_missing=True)
    except OmegaConfBaseException as error:
        raise UserError(_first_line(error)) from error
    assert isinstance(plain, dict)
    return {str(key): value for key, value in plain.items()}


def _known_keys(config: DictConfig) -> list[str]:
    """Return the configuration's keys, dotted where nested, without Hydra's own."""
    keys: list[str] = []
    for key in (str(key) for key in config if key != "hydra"):
        keys.append(key)
        if OmegaConf.is_dict(config[key]):
            keys += [f"{key}.{inner!s}" for inner in config[key]]
    return keys


def _nearest(word: str, known: Sequence[str]) -> str:
    matches = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    return f" (did you mean {matches[0]!r}?)" if matches else ""


def _first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0]
