"""Objectives that are not in the registry, beside the built-in ones at the same settings."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from common import objectives
from common.runs.store import RunStore, StoredRun
from common.statistics import FINAL, Resampled, SeedCurves, interval, measure, resample, steps_to
from figures.comparison import number, with_error
from report.stored import all_settings, defaults
from report.wording import NOTHING


@dataclass(frozen=True)
class Yardstick:
    """What an experiment's runs are measured by."""

    words: str
    metric: str
    threshold: float | None
    """Below which the steps are counted; None where they are not."""


@dataclass(frozen=True)
class Standing:
    """How an objective did."""

    name: str
    own: bool
    """Whether it is not one of the registry's."""
    changed: str
    """Options and settings that it does not share with the others."""
    seeds: int
    final: str
    interval: str
    steps: str
    key: str


@dataclass(frozen=True)
class Contest:
    """Objectives at the same settings."""

    experiment: str
    settings: str
    yardstick: Yardstick
    standings: tuple[Standing, ...]


def contests(store: RunStore) -> list[Contest]:
    """Return a contest for each setting at which the store has an objective of somebody's own.

    Raises:
        UserError: a run cannot be read.
    """
    runs = [run for run in store.runs() if run.blocks]
    found: dict[tuple[str, ...], Contest] = {}
    for own in runs:
        if _is_own(own):
            shared = _shared(own)
            same = [run for run in runs if _same_experiment(run, own) and _shared(run) == shared]
            found.setdefault(tuple(run.key for run in same), _contest(own, same))
    return list(found.values())


_FOLLOWS = ("objective", "options", "epochs", "allow_unstable", "level", "candidates", "compile", "images")
"""Settings that may follow from the objective, or change nothing that is compared."""


def _is_own(run: StoredRun) -> bool:
    return run.objective not in objectives.names()


def _same_experiment(one: StoredRun, other: StoredRun) -> bool:
    return (one.track, one.experiment) == (other.track, other.experiment)


def _shared(run: StoredRun) -> dict[str, Any]:
    return {name: value for name, value in all_settings(run).items() if name not in _FOLLOWS}


def _contest(own: StoredRun, runs: Sequence[StoredRun]) -> Contest:
    yardstick = _yardstick(own)
    ordered = sorted(runs, key=lambda run: (not _is_own(run), _registered_rank(run.objective), run.key))
    return Contest(
        experiment=f"{own.track}/{own.experiment}",
        settings=_words(_changed(own, _shared(own))),
        yardstick=yardstick,
        standings=tuple(_standing(run, yardstick) for run in ordered),
    )


def _registered_rank(name: str) -> int:
    return objectives.names().index(name) if name in objectives.names() else -1


def _yardstick(run: StoredRun) -> Yardstick:
    """Return what the paper measures such runs by."""
    if run.track == "llm_rlvr":
        return Yardstick("held-out accuracy", "test_accuracy", None)
    if run.settings.get("reward") == "terminal":
        return Yardstick("exact-match error", "exact_match_error", 0.5)
    return Yardstick("error", "error", 0.05 if run.experiment == "mnist" else 0.01)


def _standing(run: StoredRun, yardstick: Yardstick) -> Standing:
    resampled = resample(SeedCurves.from_frame(run.metrics(), yardstick.metric))
    final = measure(resampled, FINAL).transformed(100)
    low, high = interval(final)
    follows = {name: run.settings[name] for name in _FOLLOWS[2:] if name in run.settings}
    options = {name: value for name, value in run.settings["options"].items() if value != _default_options(run)[name]}
    return Standing(
        name=_title(run.objective),
        own=_is_own(run),
        changed=_words({**options, **_changed(run, follows)}),
        seeds=final.n,
        final=f"{with_error(final.estimate, final.se)} %",
        interval=f"{number(low)} … {number(high)}",
        steps=_steps(resampled, yardstick.threshold),
        key=run.key,
    )


def _default_options(run: StoredRun) -> Mapping[str, Any]:
    """Return the objective's default options; those of the run where the objective cannot be imported."""
    try:
        return objectives.get(run.objective).options
    except ValueError:
        return dict(run.settings["options"])


def _title(name: str) -> str:
    try:
        return objectives.get(name).title
    except ValueError:
        return name


def _steps(resampled: Resampled, threshold: float | None) -> str:
    return NOTHING if threshold is None else number(measure(resampled, steps_to(threshold)).estimate)


def _changed(run: StoredRun, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that differ from the defaults, which are the paper's."""
    known = defaults(run.track, run.experiment)
    return {name: value for name, value in settings.items() if name not in known or value != known[name]}


def _words(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in settings.items())
