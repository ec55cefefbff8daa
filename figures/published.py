"""The published numbers, from ``paper_numbers.yaml``."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from common.statistics import Published

_NUMBERS = Path(__file__).with_name("paper_numbers.yaml")


@dataclass(frozen=True)
class Number:
    """One published number."""

    value: float
    unit: str
    seeds: int
    precision: float
    """It is known to ± this."""
    source: str
    se: float | None = None
    said: str | None = None
    """How it is printed, where that is not the number itself."""

    @property
    def scale(self) -> float:
        """What a stored metric is multiplied by to be in this unit."""
        return 100.0 if self.unit == "%" else 1.0

    @property
    def published(self) -> Published:
        """The number as a verdict needs it."""
        return Published(self.value, self.seeds, self.precision, self.se)


Table = Mapping[str, Mapping[str, Number]]
"""Numbers by quantity and method."""


@dataclass(frozen=True)
class PublishedFigure:
    """What is known of one figure."""

    steps: int
    """Updates of the paper's runs."""
    seeds: int
    paper: Table
    artefact: Table
    """Measured by running the author's public code."""
    above: Table
    """Published as lower bounds only, e.g. ``> 95``."""
    below: Table
    """Published as upper bounds only."""

    def at(self, kind: str, quantity: str) -> Mapping[str, Number]:
        """Return the numbers of one kind (``paper``, ``above``, ...) on a quantity; empty where there are none."""
        table: Table = getattr(self, kind)
        return table.get(quantity, {})


def published_figure(name: str) -> PublishedFigure:
    """Return the numbers of one figure, e.g. ``fig02``."""
    entry = yaml.safe_load(_NUMBERS.read_text(encoding="utf-8"))[name]
    tables = {
        kind: {quantity: _numbers(of, entry["seeds"]) for quantity, of in entry.get(kind, {}).items()}
        for kind in ("paper", "artefact", "above", "below")
    }
    return PublishedFigure(entry["steps"], entry["seeds"], **tables)


def _numbers(of: Mapping[str, Any], seeds: int) -> dict[str, Number]:
    """Return numbers by method; ``values`` by method share the other keys, and have the figure's number of seeds."""
    if "values" not in of:
        return {method: Number(**number) for method, number in of.items()}
    shared = {"seeds": seeds, "precision": 0.0, **{key: value for key, value in of.items() if key != "values"}}
    return {
        method: Number(**{**shared, **(value if isinstance(value, Mapping) else {"value": value})})
        for method, value in of["values"].items()
    }
