"""The judged claims as rows of the table at the top."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from common.statistics import Verdict
from figures.comparison import Comparison, number
from figures.judged import JudgedClaim
from figures.variants import in_a_row
from report.wording import NOTHING, command_that_made, distinct, interval, measured, published, spread

MEANINGS: dict[Verdict, str] = {
    Verdict.REPRODUCED: "at the paper's settings and seeds, our interval agrees",
    Verdict.REDUCED: "agrees, in runs smaller than the paper's",
    Verdict.INCONCLUSIVE: "our intervals, or smaller runs, cannot tell",
    Verdict.DIFFERS: "at the paper's settings, ours is another number or order",
    Verdict.NOT_RUN: "the store has no runs that speak to it",
}
"""Of the verdicts, in the order in which they are shown."""


@dataclass(frozen=True)
class Part:
    """A measurement behind a claim."""

    claim: str
    source: str
    paper: str
    ours: str
    interval: str
    seeds: str
    preset: str
    verdict: Verdict
    made_by: str
    """The command behind our number."""
    full_size: str
    """The command that makes it at the paper's size."""


@dataclass(frozen=True)
class Row:
    """A claim; one with several parts says in short what they say."""

    id: str
    claim: str
    source: str
    figure: str
    paper: str
    ours: str
    interval: str
    seeds: str
    fewest_seeds: int
    preset: str
    verdict: Verdict
    rank: int
    """Of the verdict, for sorting."""
    parts: tuple[Part, ...]
    commands: tuple[tuple[str, str], ...]
    """What they do, and the commands."""


def row_of(judged: JudgedClaim) -> Row:
    """Return a claim as a row."""
    parts = [_part(each) for each in judged.parts]
    alone = parts[0] if len(parts) == 1 else None
    runs = [each.n for each in judged.parts if each.n]
    return Row(
        id=judged.id,
        claim=judged.claim,
        source=judged.source,
        figure=judged.figure,
        paper=alone.paper if alone else _together([part.paper for part in parts]),
        ours=alone.ours if alone else _in_short(judged.parts),
        interval=alone.interval if alone else NOTHING,
        seeds=spread(runs),
        fewest_seeds=min(runs, default=0),
        preset=", ".join(distinct(each.preset for each in judged.parts if each.preset)) or NOTHING,
        verdict=judged.verdict,
        rank=list(MEANINGS).index(judged.verdict),
        parts=() if alone else tuple(parts),
        commands=tuple(_commands(parts)),
    )


def verdict_counts(rows: Sequence[Row]) -> dict[Verdict, int]:
    """Return how many claims there are of each verdict, the absent ones with 0."""
    counts = Counter(row.verdict for row in rows)
    return {verdict: counts[verdict] for verdict in MEANINGS}


def _part(each: Comparison) -> Part:
    return Part(
        claim=each.claim,
        source=each.source,
        paper=published(each),
        ours=measured(each),
        interval=interval(each),
        seeds=str(each.n) if each.n else NOTHING,
        preset=each.preset or NOTHING,
        verdict=each.verdict,
        made_by=command_that_made(each),
        full_size=each.command,
    )


def _together(words: Sequence[str]) -> str:
    """Return what the parts have, each once, or how many there are where that is much."""
    once = distinct(words)
    return ", ".join(once) if sum(map(len, once)) <= _MUCH else f"{len(words)} parts"


_MUCH = 40
"""Letters."""


def _in_short(parts: Sequence[Comparison]) -> str:
    """Return our numbers beside those published, or what became of the parts where there are none or too many."""
    numbers = [each.ours for each in parts if not isinstance(each.paper, str)]
    words = ", ".join(number(each) if isinstance(each, float) else NOTHING for each in numbers)
    if any(isinstance(each, float) for each in numbers) and len(words) <= _MUCH:
        return words
    return _tally([each.verdict for each in parts])


def _tally(verdicts: Sequence[Verdict]) -> str:
    counts = Counter(verdicts)
    return in_a_row(f"{counts[verdict]} {verdict}" for verdict in MEANINGS if counts[verdict])


def _commands(parts: Sequence[Part]) -> list[tuple[str, str]]:
    ran = [part for part in parts if part.verdict is not Verdict.NOT_RUN]
    made = distinct(part.made_by for part in ran)
    full = [command for command in distinct(part.full_size for part in parts) if command not in made]
    return [*(("made by", command) for command in made), *(("at full size", command) for command in full)]
