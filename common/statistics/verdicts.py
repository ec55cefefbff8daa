"""Verdicts on claims, in one place.

A *value claim* sets our number m (n seeds) against a published v (n' seeds). Where the spread of v is not published it
is taken to be ours, so that the difference has the standard error sd·sqrt(1/n + 1/n'). Its interval is the bootstrap
interval of m, stretched to that error (or by the known error of v, in quadrature) and then by the precision to which v
is known (half a unit of its last printed digit, or how well it can be read off a figure) on both sides.

    reproduced     the 95 % interval covers 0 and is informative: its half-width is at most half of |v| (or twice the
                   precision, for a v that is smaller than what can be read off)
    differs        the 99 % interval excludes 0
    inconclusive   anything else

An *ordering claim* says that A is below B (a smaller error, fewer steps). Its interval is the paired bootstrap interval
of A − B, or that of the largest A − B where A is to be below several.

    reproduced     the 95 % interval lies below 0
    differs        it lies above 0
    inconclusive   it holds 0

A run smaller than the paper's cannot say the last word: with fewer seeds or other settings ``reproduced`` becomes
``reduced``; with other settings (fewer steps, say) ``differs`` becomes ``inconclusive``, since they explain it. Without
runs the verdict is ``not run``.

A claim of several parts has the first of these verdicts that applies:

    differs        some part differs
    not run        no part was run
    inconclusive   some part is inconclusive, or was not run
    reduced        some part is reduced
    reproduced     all parts are
"""

import math
from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum, StrEnum
from statistics import NormalDist
from typing import NamedTuple

from common.statistics.bootstrap import Interval, Sample, interval, small_sample_factor


class Verdict(StrEnum):
    """What our runs say about a claim."""

    REPRODUCED = "reproduced"
    DIFFERS = "differs"
    INCONCLUSIVE = "inconclusive"
    REDUCED = "reduced"
    NOT_RUN = "not run"


class Size(Enum):
    """How our runs compare in size with the paper's."""

    PAPER = "the paper's settings and at least its seeds"
    FEWER_SEEDS = "the paper's settings, fewer seeds"
    OTHER_SETTINGS = "other settings"


@dataclass(frozen=True)
class Published:
    """A published number."""

    value: float
    seeds: int
    precision: float = 0.0
    """It is known to ± this."""
    se: float | None = None
    """Its standard error, where known: population standard deviation / sqrt(seeds)."""


class Judgement(NamedTuple):
    """A verdict and the 95 % interval it rests on."""

    verdict: Verdict
    low: float
    high: float


def judge_value(ours: Sample, published: Published, size: Size) -> Judgement:
    """Judge a value claim (the rules above).

    Returns:
        The verdict, and the 95 % interval of ours − published shifted by the published value: it lies around our
        number and covers the published one exactly where the difference's covers 0.
    """
    low, high = _difference(ours, published, 0.95)
    surely = _difference(ours, published, 0.99)
    if low <= 0 <= high:
        needed = max(abs(published.value) / 2, 2 * published.precision)
        verdict = Verdict.REPRODUCED if (high - low) / 2 <= needed else Verdict.INCONCLUSIVE
    elif surely.low <= 0 <= surely.high:
        verdict = Verdict.INCONCLUSIVE
    else:
        verdict = Verdict.DIFFERS
    return Judgement(_at_size(verdict, size), published.value + low, published.value + high)


def judge_below(ours: Interval, size: Size) -> Judgement:
    """Judge an ordering claim by the 95 % interval of what is claimed to be below 0 (the rules above)."""
    verdict = Verdict.INCONCLUSIVE
    if ours.high < 0:
        verdict = Verdict.REPRODUCED
    elif ours.low > 0:
        verdict = Verdict.DIFFERS
    return Judgement(_at_size(verdict, size), ours.low, ours.high)


def judge_parts(parts: Collection[Verdict]) -> Verdict:
    """Judge a claim by the verdicts on its parts (the rules above); a claim without parts was not run."""
    there = set(parts)
    if Verdict.DIFFERS in there:
        return Verdict.DIFFERS
    if there <= {Verdict.NOT_RUN}:
        return Verdict.NOT_RUN
    if there & {Verdict.INCONCLUSIVE, Verdict.NOT_RUN}:
        return Verdict.INCONCLUSIVE
    return Verdict.REDUCED if Verdict.REDUCED in there else Verdict.REPRODUCED


def _difference(ours: Sample, published: Published, level: float) -> Interval:
    """Return the interval of ours − published."""
    low, high = interval(ours, level, math.sqrt(1 + ours.n / published.seeds) if published.se is None else 1.0)
    if published.se is not None and math.isfinite(ours.estimate):
        z = NormalDist().inv_cdf((1 + level) / 2)
        reach = z * small_sample_factor(published.seeds, level) * published.se
        low = ours.estimate - math.hypot(ours.estimate - low, reach)
        high = ours.estimate + math.hypot(high - ours.estimate, reach)
    return Interval(low - published.value - published.precision, high - published.value + published.precision)


def _at_size(verdict: Verdict, size: Size) -> Verdict:
    if verdict is Verdict.REPRODUCED and size is not Size.PAPER:
        return Verdict.REDUCED
    if verdict is Verdict.DIFFERS and size is Size.OTHER_SETTINGS:
        return Verdict.INCONCLUSIVE
    return verdict
