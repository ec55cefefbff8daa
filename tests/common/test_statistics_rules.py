"""Statistics over seeds by hand, and every verdict reached by the rules that its module states."""

import math

import numpy as np
import pytest

from common.statistics import (
    FINAL,
    Interval,
    Published,
    SeedCurves,
    Size,
    Verdict,
    difference,
    interval,
    judge_below,
    judge_parts,
    judge_value,
    mean_and_error,
    measure,
    resample,
    steps_to,
    steps_to_threshold,
)


def curves(values):
    values = np.asarray(values, dtype=np.float64)
    return SeedCurves(tuple(range(len(values))), np.arange(values.shape[1], dtype=np.float64), values)


def spread(mean, sd, n):
    """Curves of one step whose seeds have exactly this mean and population standard deviation."""
    z = np.linspace(-1, 1, n)
    return curves((mean + sd * (z - z.mean()) / z.std())[:, None])


def test_mean_and_error_by_hand():
    mean, se, n = mean_and_error([1.0, 2.0, 6.0, math.nan])
    assert (mean, n) == (3.0, 3)
    assert se == pytest.approx(math.sqrt((4 + 1 + 9) / 3) / math.sqrt(3))


def test_a_shorter_seed_leaves_the_mean_of_the_others():
    mean = curves([[1, 1, 1], [3, 3, math.nan]]).mean()
    assert mean.mean.tolist() == [2, 2, 1]
    assert mean.n.tolist() == [2, 2, 1]


def test_smoothing_averages_steps_of_a_seed_and_keeps_gaps():
    smooth = curves([[1, 2, 6, math.nan, 4]]).smoothed(3)
    np.testing.assert_allclose(smooth.values, [[1.5, 3, 4, math.nan, 4]])


@pytest.mark.parametrize("width", [1, 2, 5, 6, 50])
def test_smoothing_over_any_width_keeps_the_steps(width):
    """Also over more steps than there are: each value is the mean of those within reach."""
    values = [3.0, 1, 4, 1, 5]
    smooth = curves([values]).smoothed(width).values[0]
    before, after = width // 2, (width - 1) // 2
    expected = [np.mean(values[max(0, at - before) : at + after + 1]) for at in range(5)]
    np.testing.assert_allclose(smooth, expected)


def test_steps_to_a_threshold_of_the_mean_curve():
    falling = curves([[0.5, 0.3, 0.02, 0.01], [0.5, 0.1, 0.0, 0.0]])
    assert steps_to_threshold(falling, 0.21) == 1  # means 0.5, 0.2, 0.01, 0.005
    assert steps_to_threshold(falling, 0.01) == 3  # below, not at
    assert steps_to_threshold(falling, 0.001) is None


def test_the_bootstrap_of_a_mean_has_its_standard_error():
    sample = measure(resample(spread(2.0, 0.5, 50)), FINAL)
    assert sample.estimate == pytest.approx(2.0)
    assert sample.se == pytest.approx(0.5 / math.sqrt(50))
    assert sample.draws.std() == pytest.approx(sample.se, rel=0.1)
    low, high = interval(sample)
    assert (low, high) == pytest.approx((2 - 2.0 * sample.se, 2 + 2.0 * sample.se), abs=0.3 * sample.se)


def test_differences_of_the_same_seeds_are_paired():
    base = np.random.default_rng(0).normal(size=(40, 1))
    left, right = (measure(resample(curves(base + shift)), FINAL) for shift in (0.0, 0.01))
    low, high = interval(difference(left, right))
    assert (low, high) == pytest.approx((-0.01, -0.01), abs=1e-9)  # each seed differs by exactly this


def test_a_threshold_that_is_never_reached_is_infinite():
    sample = measure(resample(curves([[0.5, 0.4], [0.6, 0.5]])), steps_to(0.1))
    assert sample.estimate == math.inf
    assert sample.se is None


@pytest.mark.parametrize(
    ("ours", "published", "size", "verdict"),
    [
        (spread(1.0, 0.1, 20), Published(1.02, 20), Size.PAPER, Verdict.REPRODUCED),
        (spread(1.0, 0.1, 20), Published(1.02, 20), Size.FEWER_SEEDS, Verdict.REDUCED),
        (spread(1.0, 0.1, 20), Published(1.02, 20), Size.OTHER_SETTINGS, Verdict.REDUCED),
        (spread(1.0, 0.1, 20), Published(1.5, 20), Size.PAPER, Verdict.DIFFERS),
        (spread(1.0, 0.1, 20), Published(1.5, 20), Size.FEWER_SEEDS, Verdict.DIFFERS),
        (spread(1.0, 0.1, 20), Published(1.5, 20), Size.OTHER_SETTINGS, Verdict.INCONCLUSIVE),
        (spread(1.0, 0.1, 20), Published(1.5, 20, precision=0.5), Size.PAPER, Verdict.REPRODUCED),  # read off to ± 0.5
        (spread(1.0, 0.1, 20), Published(1.5, 20, se=0.3), Size.PAPER, Verdict.REPRODUCED),  # their runs vary more
        (spread(1.0, 3.0, 20), Published(1.02, 20), Size.PAPER, Verdict.INCONCLUSIVE),  # says nothing
        (spread(1.0, 0.1, 20), Published(1.073, 20), Size.PAPER, Verdict.INCONCLUSIVE),  # between 95 and 99 %
    ],
)
def test_every_verdict_on_a_number(ours, published, size, verdict):
    assert judge_value(measure(resample(ours), FINAL), published, size).verdict == verdict


@pytest.mark.parametrize(
    ("found", "size", "verdict"),
    [
        (Interval(-2, -1), Size.PAPER, Verdict.REPRODUCED),
        (Interval(-2, -1), Size.FEWER_SEEDS, Verdict.REDUCED),
        (Interval(-2, 1), Size.PAPER, Verdict.INCONCLUSIVE),
        (Interval(1, 2), Size.PAPER, Verdict.DIFFERS),
        (Interval(1, 2), Size.OTHER_SETTINGS, Verdict.INCONCLUSIVE),
    ],
)
def test_every_verdict_on_an_ordering(found, size, verdict):
    assert judge_below(found, size).verdict == verdict


@pytest.mark.parametrize(
    ("parts", "verdict"),
    [
        ("reproduced, reproduced", "reproduced"),
        ("reproduced, reduced", "reduced"),
        ("reduced, reduced", "reduced"),
        ("reproduced, inconclusive", "inconclusive"),
        ("reproduced, not run", "inconclusive"),
        ("reduced, not run", "inconclusive"),
        ("inconclusive, not run", "inconclusive"),
        ("not run, not run", "not run"),
        ("reproduced, reduced, inconclusive, not run, differs", "differs"),
        ("not run, differs", "differs"),
    ],
)
def test_the_verdict_of_several_parts(parts, verdict):
    assert judge_parts([Verdict(part) for part in parts.split(", ")]) == verdict


def test_without_parts_nothing_was_run():
    assert judge_parts([]) == Verdict.NOT_RUN
