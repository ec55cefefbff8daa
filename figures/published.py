"""The published numbers, from ``paper_numbers.yaml``."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

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


def published_figure(name: str) -> PublishedFigure:
    """Return the numbers of one figure, e.g. ``fig02``."""
    entry = yaml.safe_load(_NUMBERS.read_text(encoding="utf-8"))[name]
    tables = {
        kind: {
            quantity: {method: Number(**number) for method, number in by_method.items()}
            for quantity, by_method in entry.get(kind, {}).items()
        }
        for kind in ("paper", "artefact")
    }
    return PublishedFigure(entry["steps"], entry["seeds"], tables["paper"], tables["artefact"])
