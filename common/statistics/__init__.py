"""Statistics over seeds: mean ± s.e., bootstrap intervals, steps to a threshold, verdicts. Needs numpy and pandas.

curves = SeedCurves.from_frame(run.metrics(), "error")       # [S, T]
resampled = resample(curves)                                  # mean curve and its bootstrap draws
steps = measure(resampled, steps_to(0.01))                    # a Sample: estimate, draws, n, s.e.
judge_value(steps, Published(97, seeds=100, precision=0.5), Size.PAPER)
"""

from common.statistics.bootstrap import (
    Interval,
    PairStatistic,
    Resampled,
    Sample,
    all_of,
    compare_curves,
    difference,
    interval,
    measure,
    resample,
    simultaneous,
)
from common.statistics.curves import (
    FINAL,
    Estimate,
    MeanCurve,
    SeedCurves,
    Statistic,
    mean_and_error,
    mean_between,
    mean_of_last,
    steps_to,
    steps_to_threshold,
    steps_up_to,
    value_at,
)
from common.statistics.verdicts import Judgement, Published, Size, Verdict, judge_below, judge_parts, judge_value

__all__ = [
    "FINAL",
    "Estimate",
    "Interval",
    "Judgement",
    "MeanCurve",
    "PairStatistic",
    "Published",
    "Resampled",
    "Sample",
    "SeedCurves",
    "Size",
    "Statistic",
    "Verdict",
    "all_of",
    "compare_curves",
    "difference",
    "interval",
    "judge_below",
    "judge_parts",
    "judge_value",
    "mean_and_error",
    "mean_between",
    "mean_of_last",
    "measure",
    "resample",
    "simultaneous",
    "steps_to",
    "steps_to_threshold",
    "steps_up_to",
    "value_at",
]
