"""Numbers that claims are about: read off a method's mean curve, or computed from several curves."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from common.statistics import FINAL, Sample, Statistic, measure
from figures.selection import Selection

ABSENT = Sample(math.nan, np.array([math.nan]), 0)
"""What a number is that the runs do not show."""


@dataclass(frozen=True)
class Quantity:
    """A number read off a method's mean curve."""

    words: str
    """With its unit; ``{place}`` is the panel's, e.g. ``steps to 1 % error at {place}``."""
    metric: str
    statistic: Statistic = FINAL
    scale: float = 1.0

    def of(self, selection: Selection, method: str) -> Sample:
        """Measure it."""
        return measure(selection.resampled(method, self.metric), self.statistic).transformed(self.scale)

    def needs(self, method: str) -> tuple[str, ...]:
        """Return the methods that must have runs."""
        return (method,)


@dataclass(frozen=True)
class Derived:
    """A number of a method that a figure computes in a way of its own."""

    words: str
    """As those of a ``Quantity``."""
    measured: Callable[[Selection, str], Sample]
    """``ABSENT`` where the runs do not show it."""
    beside: tuple[str, ...] = ()
    """Methods that it takes besides the one that it is of."""

    def of(self, selection: Selection, method: str) -> Sample:
        """Measure it."""
        return self.measured(selection, method)

    def needs(self, method: str) -> tuple[str, ...]:
        """Return the methods that must have runs."""
        return tuple(dict.fromkeys([method, *self.beside]))


Measurable = Quantity | Derived
