"""From a selection of runs to judged claims."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from common.statistics import (
    FINAL,
    Interval,
    Judgement,
    Sample,
    Statistic,
    Verdict,
    all_of,
    difference,
    interval,
    judge_below,
    judge_value,
    measure,
)
from figures.comparison import Comparison, number
from figures.published import Number
from figures.selection import Selection
from figures.variants import title


@dataclass(frozen=True)
class Quantity:
    """A number read off a method's mean curve."""

    words: str
    """With its unit, e.g. ``final error (%)``."""
    metric: str
    statistic: Statistic = FINAL
    scale: float = 1.0

    def of(self, selection: Selection, method: str) -> Sample:
        """Measure it."""
        return measure(selection.resampled(method, self.metric), self.statistic).transformed(self.scale)


def value_claims(selection: Selection, quantity: Quantity, numbers: Mapping[str, Number]) -> list[Comparison]:
    """Judge a quantity's published numbers, one claim a method."""

    def sample(method: str) -> Callable[[], Sample]:
        return lambda: quantity.of(selection, method)

    return [
        value_claim(selection, f"{title(method)}: {quantity.words}", [method], published, sample(method))
        for method, published in numbers.items()
    ]


def value_claim(
    selection: Selection, claim: str, methods: Sequence[str], published: Number, measured: Callable[[], Sample | None]
) -> Comparison:
    """Judge one published number.

    Args:
        selection: the runs.
        claim: in words, with its unit.
        methods: those whose runs it needs.
        published: the number.
        measured: ours, in the same unit; called where the runs are there, None where they do not show it.
    """
    if not (selection.has(methods) and selection.same_task):
        return not_run(selection, claim, published.source, published.value)
    ours = measured()
    if ours is None or math.isnan(ours.estimate):
        absent = Judgement(Verdict.INCONCLUSIVE, -math.inf, math.inf)
        return _row(selection, claim, methods, published.source, published.value, "not in these runs", absent, 0)
    judgement = judge_value(ours, published.published, selection.size(methods))
    return _row(
        selection, claim, methods, published.source, published.value, ours.estimate, judgement, ours.n, se=ours.se
    )


def ordering_claim(
    selection: Selection,
    claim: str,
    source: str,
    said: str,
    methods: Sequence[str],
    measured: Callable[[], tuple[Interval, str]],
) -> Comparison:
    """Judge a claim that some difference is below 0.

    Args:
        selection: the runs.
        claim: in words.
        source: where it stands.
        said: the short form for the column of published values.
        methods: those whose runs it needs.
        measured: the difference's 95 % interval and our finding in words; called where the runs are there.
    """
    if not selection.has(methods):
        return not_run(selection, claim, source, said)
    found, words = measured()
    judgement = judge_below(found, selection.size(methods))
    return _row(selection, claim, methods, source, said, words, judgement, selection.seeds(methods))


def below_claim(
    selection: Selection,
    quantity: Quantity,
    lower: Sequence[str],
    upper: Sequence[str],
    *,
    claim: str,
    source: str,
    said: str,
) -> Comparison:
    """Judge that a quantity of each of the ``lower`` methods is below that of each of the ``upper`` ones."""
    methods = [*lower, *upper]

    def measured() -> tuple[Interval, str]:
        samples = {method: quantity.of(selection, method) for method in methods}
        pairs = [difference(samples[left], samples[right]) for left in lower for right in upper]
        return all_of([interval(pair) for pair in pairs]), listed(samples)

    return ordering_claim(selection, claim, source, said, methods, measured)


def bound_claim(
    selection: Selection,
    quantity: Quantity,
    method: str,
    bound: float,
    *,
    above: bool,
    claim: str,
    source: str,
    said: str,
) -> Comparison:
    """Judge that a method's quantity is above (or below) a bound.

    That it is above in runs shorter than the paper's says nothing: it has not got there yet.
    """

    def measured() -> tuple[Interval, str]:
        ours = quantity.of(selection, method)
        sign = -1 if above else 1
        found = interval(ours.transformed(sign, -sign * bound))
        if above and selection.steps < selection.paper_steps and found.high < 0:
            found = Interval(found.low, math.inf)
        return found, listed({method: ours})

    if not selection.same_task:
        return not_run(selection, claim, source, said)
    return ordering_claim(selection, claim, source, said, [method], measured)


def bound_claims(
    selection: Selection, quantity: Quantity, numbers: Mapping[str, Number], *, above: bool
) -> list[Comparison]:
    """Judge published bounds on a quantity, e.g. ``> 95``, one claim a method."""
    rows = []
    for method, bound in numbers.items():
        said = bound.said or f"{'>' if above else '<'} {number(bound.value)}"
        claim = f"{title(method)}: {quantity.words}: {said}"
        rows.append(
            bound_claim(
                selection, quantity, method, bound.value, above=above, claim=claim, source=bound.source, said=said
            )
        )
    return rows


def lowest_claim(
    selection: Selection,
    quantity: Quantity,
    leader: str,
    others: Sequence[str],
    *,
    claim: str,
    source: str,
    said: str,
) -> Comparison:
    """Judge that a method's quantity is the lowest.

    Against those of the others that have runs: where one has none, the claim can fail but not hold.
    """
    there = [method for method in others if selection.has([method])]

    def measured() -> tuple[Interval, str]:
        samples = {method: quantity.of(selection, method) for method in [leader, *there]}
        found = all_of([interval(difference(samples[leader], samples[method])) for method in there])
        if len(there) < len(others):
            found = Interval(found.low, math.inf)
        return found, listed(samples)

    if not there:
        return not_run(selection, claim, source, said)
    return ordering_claim(selection, claim, source, said, [leader, *there], measured)


def listed(samples: Mapping[str, Sample]) -> str:
    """Return the methods' numbers in a row."""
    return ", ".join(f"{title(method)} {number(sample.estimate)}" for method, sample in samples.items())


def not_run(selection: Selection, claim: str, source: str, said: float | str) -> Comparison:
    """Return a claim that no run speaks to."""
    return Comparison(claim, source, said, None, None, None, 0, None, Verdict.NOT_RUN, selection.command)


def _row(
    selection: Selection,
    claim: str,
    methods: Sequence[str],
    source: str,
    said: float | str,
    ours: float | str,
    judgement: Judgement,
    n: int,
    *,
    se: float | None = None,
) -> Comparison:
    low, high = (end if math.isfinite(end) else None for end in (judgement.low, judgement.high))
    preset = selection.presets(methods)
    return Comparison(claim, source, said, ours, low, high, n, preset, judgement.verdict, selection.command, se)
