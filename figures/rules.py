"""The rules by which claims are judged, each a few fields of data; ``claims.yaml`` is written in them.

A rule is judged on one panel at a time. What its names stand for (panels, quantities, findings, published numbers) is a
figure's ``Subject``; a name that it does not have raises ``UnknownNameError``.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import ClassVar, TypeVar

from common.statistics import (
    Interval,
    Judgement,
    Sample,
    Verdict,
    all_of,
    difference,
    interval,
    judge_below,
    judge_value,
)
from figures.comparison import Comparison, number
from figures.published import Number, PublishedFigure
from figures.quantities import Measurable
from figures.selection import Selection
from figures.variants import title, titles

Finding = Callable[[Selection, Sequence[str]], tuple[Interval, str]]
"""Of these methods: the 95 % interval of what is claimed to be below 0, and our finding in words."""
NamedT = TypeVar("NamedT")

_BOUNDS = ("above", "below")


class UnknownNameError(ValueError):
    """A claim names something that its figure does not have."""


@dataclass(frozen=True)
class Subject:
    """What claims on one figure can speak of, by name."""

    panels: Mapping[str, Selection]
    quantities: Mapping[str, Measurable]
    numbers: PublishedFigure
    findings: Mapping[str, Finding] = field(default_factory=dict)


@dataclass(frozen=True)
class _Said:
    """A claim in words, where it stands, and what stands in the column of the paper's numbers."""

    claim: str
    source: str
    paper: float | str


@dataclass(frozen=True, kw_only=True)
class Rule(ABC):
    """What all rules have."""

    placeholders: ClassVar[frozenset[str]]
    """What the rule's ``claim`` may hold in braces."""

    panels: tuple[str, ...] = ("*",)
    """Names of panels, or patterns of names; all panels where nothing is said."""

    def on(self, subject: Subject) -> dict[str, Selection]:
        """Return the panels that the rule is about.

        Raises:
            UnknownNameError: a name or pattern fits none.
        """
        for pattern in self.panels:
            if not any(fnmatchcase(name, pattern) for name in subject.panels):
                raise UnknownNameError(f"panel: {pattern!r} is unknown; there are {', '.join(subject.panels)}")
        return {
            name: selection
            for name, selection in subject.panels.items()
            if any(fnmatchcase(name, pattern) for pattern in self.panels)
        }

    @abstractmethod
    def rows(self, subject: Subject, panel: str) -> list[Comparison]:
        """Judge on one panel.

        Raises:
            UnknownNameError: a name that the figure does not have.
        """


@dataclass(frozen=True, kw_only=True)
class Numbers(Rule):
    """Published numbers are ours within both spreads; published bounds, such as "> 95", are kept."""

    placeholders = frozenset({"method", "quantity", "value"})

    numbers: str
    """Key in ``paper_numbers.yaml``; ``{panel}`` is the panel's name."""
    quantity: tuple[str, ...]
    methods: tuple[str, ...] = ()
    """All that have a published number where none is named."""
    claim: str = ""
    table: str = "paper"
    """``paper``, its bounds included, or ``artefact``."""

    def __post_init__(self) -> None:
        if self.table not in ("paper", "artefact"):
            raise ValueError(f"table: {self.table!r} is unknown; there are paper, artefact")

    def published(self, subject: Subject, panel: str) -> list[tuple[str, str, Number]]:
        """Return kind (``paper``, ``above``, ...), method and number of everything published that it judges."""
        key = self.numbers.format(panel=panel)
        kinds = ("paper", *_BOUNDS) if self.table == "paper" else (self.table,)
        found = [(kind, *item) for kind in kinds for item in subject.numbers.at(kind, key).items()]
        if not found and subject.panels[panel].in_paper:
            raise UnknownNameError(f"numbers: {key!r} is unknown in paper_numbers.yaml ({', '.join(kinds)})")
        for method in self.methods:
            if found and method not in {name for _, name, _ in found}:
                raise UnknownNameError(f"numbers: {key!r} has none of {method!r}")
        return [each for each in found if not self.methods or each[1] in self.methods]

    def rows(self, subject: Subject, panel: str) -> list[Comparison]:
        """Judge each number."""
        selection = subject.panels[panel]
        published = self.published(subject, panel)
        _known_methods(selection, [method for _, method, _ in published])
        return [
            self._row(selection, _named("quantity", name, subject.quantities), *each)
            for name in self.quantity
            for each in published
        ]

    def _row(self, selection: Selection, quantity: Measurable, kind: str, method: str, published: Number) -> Comparison:
        words = {"method": title(method), "quantity": _words(quantity, selection), "value": number(published.value)}
        if kind not in _BOUNDS:
            claim = (self.claim or "{method}: {quantity}").format(**words)
            return _value_row(selection, quantity, method, published, claim)
        above = kind == "above"
        said = published.said or f"{'>' if above else '<'} {number(published.value)}"
        claim = (self.claim or "{method}: {quantity}: {said}").format(said=said, **words)
        low, high = (published.value, None) if above else (None, published.value)
        return _within_row(selection, quantity, [method], low, high, _Said(claim, published.source, said))


@dataclass(frozen=True, kw_only=True)
class Ordering(Rule):
    """What the rules have whose claim is a few words: some difference is to be below 0."""

    placeholders = frozenset({"said", "quantity"})

    said: str
    """The claim in short, for the column of the paper's numbers."""
    source: str
    """That of the claim where nothing is said."""
    claim: str = "{said}: {quantity}"

    def _said(self, **words: str) -> _Said:
        return _Said(self.claim.format(said=self.said, **words), self.source, self.said)


@dataclass(frozen=True, kw_only=True)
class Below(Ordering):
    """A quantity of each of the ``lower`` methods is below that of each of the ``upper`` ones."""

    quantity: str
    lower: tuple[str, ...]
    upper: tuple[str, ...] = ()
    """The panel's others where nothing is said."""

    def rows(self, subject: Subject, panel: str) -> list[Comparison]:
        """Judge against those that have runs: where one has none, the claim can fail but not hold."""
        selection = subject.panels[panel]
        quantity = _named("quantity", self.quantity, subject.quantities)
        _known_methods(selection, [*self.lower, *self.upper])
        said = self._said(quantity=_words(quantity, selection))
        upper = self.upper or self._others(selection)
        there, against = (
            [method for method in methods if selection.has(quantity.needs(method))] for methods in (self.lower, upper)
        )
        if not (there and against):
            return [_not_run(selection, said)]
        samples = {method: quantity.of(selection, method) for method in [*there, *against]}
        pairs = [difference(samples[left], samples[right]) for left in there for right in against]
        found = all_of([interval(pair) for pair in pairs])
        if len(there) < len(self.lower) or len(against) < len(upper):
            found = Interval(found.low, math.inf)
        return [_ordering_row(selection, said, _needed(quantity, samples), found, _listed(samples))]

    def _others(self, selection: Selection) -> list[str]:
        """Return the panel's other methods; where it is not the paper's task, those that have runs."""
        among = selection.methods if selection.same_task else tuple(selection.runs)
        return [method for method in among if method not in self.lower]


@dataclass(frozen=True, kw_only=True)
class Within(Ordering):
    """A quantity of each method is above ``low``, below ``high``, or between them."""

    quantity: str
    methods: tuple[str, ...]
    low: float | None = None
    high: float | None = None

    def __post_init__(self) -> None:
        if self.low is None and self.high is None:
            raise ValueError("low, high: found neither; give one or both")

    def rows(self, subject: Subject, panel: str) -> list[Comparison]:
        """Judge all methods at once."""
        selection = subject.panels[panel]
        quantity = _named("quantity", self.quantity, subject.quantities)
        _known_methods(selection, self.methods)
        said = self._said(quantity=_words(quantity, selection))
        return [_within_row(selection, quantity, self.methods, self.low, self.high, said)]


@dataclass(frozen=True, kw_only=True)
class Found(Ordering):
    """What a figure finds in a way of its own is below 0."""

    placeholders = frozenset({"said", "methods"})

    finding: str
    claim: str
    methods: tuple[str, ...] = ()
    """All of the panel where none is named."""

    def rows(self, subject: Subject, panel: str) -> list[Comparison]:
        """Judge the finding."""
        selection = subject.panels[panel]
        finding = _named("finding", self.finding, subject.findings)
        _known_methods(selection, self.methods)
        methods = self.methods or selection.methods
        said = self._said(methods=titles(self.methods) if self.methods else "")
        if not selection.has(methods):
            return [_not_run(selection, said)]
        return [_ordering_row(selection, said, methods, *finding(selection, methods))]


RULES: dict[str, type[Rule]] = {"numbers": Numbers, "below": Below, "within": Within, "finding": Found}
"""By the name that ``claims.yaml`` has for them."""


def _value_row(selection: Selection, quantity: Measurable, method: str, published: Number, claim: str) -> Comparison:
    """Judge one published number."""
    said = _Said(claim, published.source, published.value)
    methods = quantity.needs(method)
    if not (selection.has(methods) and selection.same_task):
        return _not_run(selection, said)
    ours = quantity.of(selection, method)
    if math.isnan(ours.estimate):
        absent = Judgement(Verdict.INCONCLUSIVE, -math.inf, math.inf)
        return _row(selection, said, methods, "not in these runs", absent, 0)
    judgement = judge_value(ours, published.published, selection.size(methods))
    return _row(selection, said, methods, ours.estimate, judgement, ours.n, ours.se)


def _within_row(
    selection: Selection,
    quantity: Measurable,
    methods: Sequence[str],
    low: float | None,
    high: float | None,
    said: _Said,
) -> Comparison:
    """Judge that a quantity of all the methods lies within bounds.

    That it stays above a bound in runs shorter than the paper's says nothing: it has not got there yet.
    """
    needed = _needed(quantity, methods)
    if not (selection.has(needed) and selection.same_task):
        return _not_run(selection, said)
    samples = {method: quantity.of(selection, method) for method in methods}
    beyond = [sample.transformed(-1, low) for sample in samples.values() if low is not None]
    beyond += [sample.transformed(1, -high) for sample in samples.values() if high is not None]
    found = all_of([interval(each) for each in beyond])
    if high is None and selection.steps < selection.paper_steps and found.high < 0:
        found = Interval(found.low, math.inf)
    return _ordering_row(selection, said, needed, found, _listed(samples))


def _ordering_row(selection: Selection, said: _Said, methods: Sequence[str], found: Interval, words: str) -> Comparison:
    """Judge by its 95 % interval that something is below 0."""
    judgement = judge_below(found, selection.size(methods))
    return _row(selection, said, methods, words, judgement, selection.seeds(methods))


def _not_run(selection: Selection, said: _Said) -> Comparison:
    """Return a claim that no run speaks to."""
    return Comparison(
        said.claim, said.source, said.paper, None, None, None, 0, None, Verdict.NOT_RUN, selection.command
    )


def _row(
    selection: Selection,
    said: _Said,
    methods: Sequence[str],
    ours: float | str,
    judgement: Judgement,
    n: int,
    se: float | None = None,
) -> Comparison:
    low, high = (end if math.isfinite(end) else None for end in (judgement.low, judgement.high))
    return Comparison(
        said.claim,
        said.source,
        said.paper,
        ours,
        low,
        high,
        n,
        selection.presets(methods),
        judgement.verdict,
        selection.command,
        se,
    )


def _words(quantity: Measurable, selection: Selection) -> str:
    return quantity.words.format(place=selection.place)


def _needed(quantity: Measurable, methods: Iterable[str]) -> list[str]:
    """Return the methods that must have runs for a quantity of several."""
    return list(dict.fromkeys(needed for method in methods for needed in quantity.needs(method)))


def _listed(samples: Mapping[str, Sample]) -> str:
    """Return the methods' numbers in a row."""
    return ", ".join(f"{title(method)} {number(sample.estimate)}" for method, sample in samples.items())


def _named(kind: str, name: str, there: Mapping[str, NamedT]) -> NamedT:
    if name not in there:
        raise UnknownNameError(f"{kind}: {name!r} is unknown; there are {', '.join(there)}")
    return there[name]


def _known_methods(selection: Selection, methods: Iterable[str]) -> None:
    for method in methods:
        if method not in selection.methods:
            raise UnknownNameError(f"method: {method!r} is not in the panel; there are {', '.join(selection.methods)}")
