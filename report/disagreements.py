"""Where the paper disagrees with itself or its artefact, and what the store says about it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from common.statistics import FINAL, Statistic, mean_between, mean_of_last, measure, steps_to
from figures.comparison import number, with_error
from figures.selection import Selection
from report.wording import counted

_POINTS = Path(__file__).with_name("disagreements.yaml")
_STATISTICS: dict[str, Callable[[], Statistic]] = {
    "final": lambda: FINAL,
    "last20": lambda: mean_of_last(20),
    "first20": lambda: mean_between(0, 19),
    "highest": lambda: Statistic(lambda steps, means: means.max(axis=-1), linear=False),
}


@dataclass(frozen=True)
class Finding:
    """One of our numbers that speak to a disagreement."""

    words: str
    value: str | None
    """None where the store has no such runs."""
    remark: str
    """Its seeds, and in what the runs are smaller than the paper's."""


@dataclass(frozen=True)
class Disagreement:
    """A point on which the paper, its figures and its artefact are not of one mind."""

    id: str
    figures: tuple[str, ...]
    title: str
    paper: str
    ours: str
    """What we chose."""
    findings: tuple[Finding, ...]

    @property
    def decided(self) -> bool:
        """Whether the store has anything to say on it."""
        return any(finding.value is not None for finding in self.findings)


def disagreements(chosen: Mapping[str, Sequence[Selection]]) -> list[Disagreement]:
    """Return the points, each with what the runs of the figures say.

    Args:
        chosen: the runs by figure.
    """
    return [
        Disagreement(
            point["id"],
            tuple(point["figures"]),
            point["title"],
            point["paper"].strip(),
            point["ours"].strip(),
            tuple(_finding(each, chosen[each["figure"]]) for each in point["evidence"]),
        )
        for point in yaml.safe_load(_POINTS.read_text(encoding="utf-8"))
    ]


def _finding(evidence: Mapping[str, Any], selections: Iterable[Selection]) -> Finding:
    place, method = evidence.get("place"), evidence["method"]
    for selection in selections:
        if method in selection.runs and place in (None, selection.place):
            said = _setting if "setting" in evidence else _number
            return Finding(evidence["words"], said(evidence, selection), _remark(selection, method))
    return Finding(evidence["words"], None, "")


def _setting(evidence: Mapping[str, Any], selection: Selection) -> str:
    return str(selection.runs[evidence["method"]].settings[evidence["setting"]])


def _number(evidence: Mapping[str, Any], selection: Selection) -> str:
    unit = evidence["unit"]
    sample = measure(selection.resampled(evidence["method"], evidence["metric"]), _statistic(evidence))
    sample = sample.transformed(100 if unit == "%" else 1)
    error = sample.se if evidence["statistic"] != "steps_to" else None
    shown = number(sample.estimate) if error is None else with_error(sample.estimate, error)
    return f"{shown} {unit}".strip() if shown != "not reached" else shown


def _statistic(evidence: Mapping[str, Any]) -> Statistic:
    if evidence["statistic"] == "steps_to":
        return steps_to(evidence["threshold"])
    return _STATISTICS[evidence["statistic"]]()


def _remark(selection: Selection, method: str) -> str:
    return ", ".join([counted(selection.seeds([method]), "seed"), *selection.reductions])
