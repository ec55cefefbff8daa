"""Temporary: each row of the figures' comparisons as a claim of its own."""

from dataclasses import dataclass

from common.runs.store import RunStore
from common.statistics import Verdict
from figures.__main__ import FIGURES
from figures.comparison import Comparison


@dataclass(frozen=True)
class JudgedClaim:
    """A claim of the paper and what became of it."""

    id: str
    claim: str
    source: str
    figure: str
    verdict: Verdict
    parts: tuple[Comparison, ...]


def judged_claims(store: RunStore) -> list[JudgedClaim]:
    """Judge every claim."""
    return [
        JudgedClaim(f"{name}-{index}", row.claim, row.source, name, row.verdict, (row,))
        for name, figure in FIGURES.items()
        for index, row in enumerate(figure.compare(store))
    ]
