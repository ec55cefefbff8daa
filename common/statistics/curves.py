"""Curves of several seeds, their mean, and numbers read off a mean curve.

Standard errors are those of the paper: population standard deviation / sqrt(n).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]


class Estimate(NamedTuple):
    """A mean over seeds."""

    mean: float
    se: float
    """Population standard deviation / sqrt(n)."""
    n: int


class MeanCurve(NamedTuple):
    """The mean over the seeds present at each step, [T] each."""

    steps: Array
    mean: Array
    se: Array
    n: NDArray[np.int64]


@dataclass(frozen=True)
class SeedCurves:
    """One metric of several seeds."""

    seeds: tuple[int, ...]
    steps: Array
    """[T], increasing; only steps at which some seed has a value."""
    values: Array
    """[S, T]; NaN where a seed has no value, e.g. past the end of a shorter one."""

    @classmethod
    def from_frame(cls, frame: pd.DataFrame, metric: str) -> "SeedCurves":
        """Take one metric out of a run's table with columns ``seed``, ``step`` and one a metric.

        Raises:
            ValueError: there is no such metric, or a seed has two rows for one step.
        """
        if metric not in frame:
            raise ValueError(f"{metric}: no such metric; there are {', '.join(frame.columns)}")
        wide = frame.pivot(index="seed", columns="step", values=metric).dropna(axis=1, how="all")
        return cls(
            tuple(int(seed) for seed in wide.index),
            wide.columns.to_numpy(dtype=np.float64),
            wide.to_numpy(dtype=np.float64),
        )

    def at(self, step: float) -> "SeedCurves":
        """Return the curves cut down to one step, and to the seeds that have a value there (maybe none)."""
        column = self.values[:, self.steps == step]
        present = np.flatnonzero(np.isfinite(column).any(axis=1))
        seeds = tuple(self.seeds[index] for index in present)
        return SeedCurves(seeds, self.steps[self.steps == step], column[present])

    def smoothed(self, width: int) -> "SeedCurves":
        """Return each seed's mean over ``width`` recorded steps around each step, fewer at the ends."""
        kernel = np.ones(width)
        present = np.isfinite(self.values)
        around = slice((width - 1) // 2, (width - 1) // 2 + len(self.steps))
        total = np.stack([np.convolve(row, kernel)[around] for row in np.where(present, self.values, 0.0)])
        count = np.stack([np.convolve(row, kernel)[around] for row in present.astype(np.float64)])
        values = np.where(present, total / np.maximum(count, 1), np.nan)
        return SeedCurves(self.seeds, self.steps, values)

    def mean(self) -> MeanCurve:
        """Return mean_s v_s(t) over the seeds present at each step t, its s.e. and their number."""
        n = np.isfinite(self.values).sum(axis=0)
        mean = np.nanmean(self.values, axis=0)
        return MeanCurve(self.steps, mean, np.nanstd(self.values, axis=0) / np.sqrt(n), n)


def mean_and_error(values: ArrayLike) -> Estimate:
    """Return mean, population standard deviation / sqrt(n), and n of the values that are not NaN.

    Raises:
        ValueError: there are none.
    """
    numbers = np.asarray(values, dtype=np.float64)
    numbers = numbers[~np.isnan(numbers)]
    if not numbers.size:
        raise ValueError("values: the mean of no values was asked for")
    return Estimate(float(numbers.mean()), float(numbers.std() / math.sqrt(numbers.size)), int(numbers.size))


@dataclass(frozen=True)
class Statistic:
    """A number read off a mean curve."""

    of: Callable[[Array, Array], Array]
    """``of(steps [T], means [..., T]) -> [...]``; +inf for a step that is never reached."""
    linear: bool
    """Whether the number of the mean curve is the mean of the seeds' numbers."""


FINAL = Statistic(lambda steps, means: means[..., -1], linear=True)
"""The value at the last recorded step."""


def value_at(step: float) -> Statistic:
    """Return the value at a step; NaN where the step was not recorded."""

    def of(steps: Array, means: Array) -> Array:
        index = int(np.searchsorted(steps, step))
        if index == len(steps) or steps[index] != step:
            return np.full(means.shape[:-1], np.nan)
        return means[..., index]

    return Statistic(of, linear=True)


def mean_between(first: float, last: float) -> Statistic:
    """Return the mean over the recorded steps from ``first`` to ``last``, both included."""
    return Statistic(lambda steps, means: means[..., (steps >= first) & (steps <= last)].mean(axis=-1), linear=True)


def mean_of_last(count: int) -> Statistic:
    """Return the mean over the last ``count`` recorded steps (all there are, if fewer)."""
    return Statistic(lambda steps, means: means[..., -count:].mean(axis=-1), linear=True)


def steps_to(threshold: float) -> Statistic:
    """Return the first recorded step at which the mean is below the threshold; +inf where it never is."""

    def of(steps: Array, means: Array) -> Array:
        below = means < threshold
        return np.where(below.any(axis=-1), steps[below.argmax(axis=-1)], np.inf)

    return Statistic(of, linear=False)


def steps_up_to(threshold: float) -> Statistic:
    """Return the first recorded step at which the mean is at or above the threshold; +inf where it never is."""

    def of(steps: Array, means: Array) -> Array:
        above = means >= threshold
        return np.where(above.any(axis=-1), steps[above.argmax(axis=-1)], np.inf)

    return Statistic(of, linear=False)


def steps_to_threshold(curves: SeedCurves, threshold: float) -> int | None:
    """Return the first recorded step at which the seed mean is below the threshold, or None where it never is."""
    step = float(steps_to(threshold).of(curves.steps, curves.mean().mean))
    return int(step) if math.isfinite(step) else None
