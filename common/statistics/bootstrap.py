"""Bootstrap over seeds: how far would a number read off the mean curve move with other seeds?

A resample draws n seeds with replacement from the n there are. That is a vector of multinomial counts, so all resampled
mean curves are one matrix product. The counts depend on the set of seeds alone: two methods with the same seeds are
resampled together, so differences between them are paired; other sets are drawn independently.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from common.statistics.curves import Array, SeedCurves, Statistic

RESAMPLES = 2000
_RNG_SEED = 2604_06159
_ENOUGH_FOR_PERCENTILES = 10
_NORMAL = NormalDist()

PairStatistic = Callable[[Array, Array, Array], Array]
"""``of(steps [T], left means [..., T], right means [..., T]) -> [...]``."""


class Interval(NamedTuple):
    """Where a number lies, at some confidence; infinite ends where the seeds do not bound it."""

    low: float
    high: float


@dataclass(frozen=True)
class Resampled:
    """A mean curve and what it would have been with other seeds."""

    curves: SeedCurves
    mean: Array
    """[T]."""
    draws: Array
    """[R, T]; NaN where a resample holds no seed with a value."""

    @property
    def n(self) -> int:
        """The smallest number of seeds behind any point of the curve."""
        return int(np.isfinite(self.curves.values).sum(axis=0).min(initial=len(self.curves.seeds)))


@dataclass(frozen=True)
class Sample:
    """A number and its bootstrap draws."""

    estimate: float
    draws: Array
    """[R]."""
    n: int
    """Seeds behind it."""
    se: float | None = None
    """Standard error: population standard deviation / sqrt(n) for means, the draws' standard deviation for others;
    None where some draws are infinite."""

    def transformed(self, factor: float, offset: float = 0.0) -> "Sample":
        """Return factor·x + offset, e.g. in another unit."""
        se = None if self.se is None else abs(factor) * self.se
        return Sample(factor * self.estimate + offset, factor * self.draws + offset, self.n, se)


def resample(curves: SeedCurves, resamples: int = RESAMPLES, rng_seed: int = _RNG_SEED) -> Resampled:
    """Return the mean curve and R resampled ones, Σ_s w_rs v_s(t) / Σ_s w_rs over the seeds present at t.

    Raises:
        ValueError: there are no seeds.
    """
    count = len(curves.seeds)
    if not count:
        raise ValueError("curves: there are no seeds to resample")
    generator = np.random.default_rng([rng_seed, *curves.seeds])
    weights = generator.multinomial(count, np.full(count, 1 / count), size=resamples).astype(np.float64)
    present = np.isfinite(curves.values)
    totals = weights @ np.where(present, curves.values, 0)
    counts = weights @ present if not present.all() else np.full((1, 1), float(count))
    draws = np.divide(totals, counts, out=np.full_like(totals, np.nan), where=counts > 0)
    return Resampled(curves, curves.mean().mean, draws)


def measure(resampled: Resampled, statistic: Statistic) -> Sample:
    """Read a number off the mean curve and off every resampled one."""
    curves = resampled.curves
    estimate = float(statistic.of(curves.steps, resampled.mean))
    draws = statistic.of(curves.steps, resampled.draws)
    if statistic.linear and np.isfinite(curves.values).all():
        se = float(statistic.of(curves.steps, curves.values).std() / math.sqrt(len(curves.seeds)))
        return Sample(estimate, draws, resampled.n, se)
    return _sample(estimate, draws, resampled.n)


def compare_curves(left: Resampled, right: Resampled, statistic: PairStatistic) -> Sample:
    """Read a number off two mean curves with the same steps, e.g. where they cross.

    Raises:
        ValueError: their steps differ.
    """
    steps = left.curves.steps
    if not np.array_equal(steps, right.curves.steps):
        raise ValueError("steps: the two curves were recorded at different steps")
    estimate = float(statistic(steps, left.mean, right.mean))
    return _sample(estimate, statistic(steps, left.draws, right.draws), min(left.n, right.n))


def difference(left: Sample, right: Sample) -> Sample:
    """Return left − right, paired where both have the same seeds; two thresholds never reached differ by 0."""
    estimate = _subtract(np.array(left.estimate), np.array(right.estimate))
    return _sample(float(estimate), _subtract(left.draws, right.draws), min(left.n, right.n))


def interval(sample: Sample, level: float = 0.95, stretch: float = 1.0) -> Interval:
    """Return the bootstrap interval of a number.

    The percentile interval is too narrow for few seeds, by a factor of c = sqrt(n/(n−1))·t_{n−1}/z (1.02 at 100 seeds,
    1.10 at 20, 1.87 at 4). So it is taken further out in the draws, at Φ(±c·z) instead of Φ(±z) (the expanded
    percentile interval of Hesterberg, arXiv 1411.5279); below 10 seeds, whose draws end before that, the deviations
    from the estimate are multiplied by c instead. One seed bounds nothing.

    Args:
        sample: a number and its draws.
        level: probability that the number lies between the ends.
        stretch: factor on the deviations from the estimate, for noise on the other side of a comparison.
    """
    draws = sample.draws[~np.isnan(sample.draws)]
    if sample.n < 2 or not draws.size or math.isnan(sample.estimate):
        return Interval(-math.inf, math.inf)
    widening = small_sample_factor(sample.n, level)
    if sample.n >= _ENOUGH_FOR_PERCENTILES:
        level = 2 * _NORMAL.cdf(widening * _NORMAL.inv_cdf((1 + level) / 2)) - 1
    else:
        stretch *= widening
    low, high = (float(end) for end in np.quantile(draws, [(1 - level) / 2, (1 + level) / 2], method="inverted_cdf"))
    if math.isinf(sample.estimate):
        return Interval(low, high)
    return Interval(*(sample.estimate + stretch * (end - sample.estimate) for end in (low, high)))


def all_of(intervals: Sequence[Interval]) -> Interval:
    """Return the interval of the largest of several numbers: below 0 if all are, above 0 if some one is."""
    return Interval(max(each.low for each in intervals), max(each.high for each in intervals))


def simultaneous(pairs: Sequence[tuple[Resampled, Resampled]], level: float = 0.95) -> Interval:
    """Return the interval of the largest of left − right over all steps and pairs of curves.

    All differences are bounded together, d ± c·sd, with c the quantile of the largest |deviation| / sd in a resample,
    so that looking at many steps does not find by luck what is not there. Differences that never vary are left out.

    Args:
        pairs: mean curves with the same steps.
        level: probability that all differences lie within their bounds.
    """
    n = min(min(left.n, right.n) for left, right in pairs)
    estimates = np.concatenate([left.mean - right.mean for left, right in pairs])
    draws = np.concatenate([left.draws - right.draws for left, right in pairs], axis=1)
    draws = draws[np.isfinite(draws).all(axis=1)]
    if n < 2 or not len(draws):
        return Interval(-math.inf, math.inf)
    spread = draws.std(axis=0)
    varies = spread > 0
    if not varies.any():
        return Interval(float(estimates.max()), float(estimates.max()))
    estimates, draws, spread = estimates[varies], draws[:, varies], spread[varies]
    largest = (np.abs(draws - estimates) / spread).max(axis=1)
    reach = float(np.quantile(largest, level)) * small_sample_factor(n, level) * spread
    return Interval(float((estimates - reach).max()), float((estimates + reach).max()))


def _sample(estimate: float, draws: Array, n: int) -> Sample:
    known = draws[~np.isnan(draws)]
    return Sample(estimate, draws, n, float(known.std()) if known.size and np.isfinite(known).all() else None)


def _subtract(left: Array, right: Array) -> Array:
    both_infinite = np.isinf(left) & np.isinf(right)
    return np.where(both_infinite, 0.0, left - np.where(both_infinite, 0.0, right))


def small_sample_factor(n: int, level: float) -> float:
    """Return sqrt(n/(n−1))·t_{n−1}/z: how much wider n ≥ 2 seeds make an interval than a normal one."""
    z = _NORMAL.inv_cdf((1 + level) / 2)
    return math.sqrt(n / (n - 1)) * _t_quantile(z, n - 1) / z


def _t_quantile(z: float, freedom: int) -> float:
    """Return Student's t quantile that belongs to a normal one (Abramowitz & Stegun 26.7.5; 2 % low at 3 degrees)."""
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + sum(term / freedom ** (power + 1) for power, term in enumerate(terms))
