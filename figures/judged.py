"""Every claim of the paper with its verdict, in the order of ``claims.yaml``."""

from dataclasses import dataclass, replace

from common.runs.store import RunStore
from common.statistics import Verdict, judge_parts
from figures.catalogue import PAPER_FIGURES
from figures.claims import Claim, all_rows, claim_file, mistake
from figures.comparison import Comparison
from figures.rules import Subject


@dataclass(frozen=True)
class JudgedClaim:
    """A claim of the paper and what became of it."""

    id: str
    claim: str
    """A sentence."""
    source: str
    """Table, figure or section."""
    figure: str
    """The module in ``figures`` that it is judged in."""
    verdict: Verdict
    """By those of the parts (``common.statistics.verdicts``)."""
    parts: tuple[Comparison, ...]


def judged_claims(store: RunStore) -> list[JudgedClaim]:
    """Judge all claims of the paper.

    Raises:
        UserError: a mistake in ``claims.yaml``, naming the claim; or a run cannot be read.
    """
    claims = claim_file().claims
    for claim in claims:
        if claim.figure not in PAPER_FIGURES:
            raise mistake(claim.id, f"figure: {claim.figure!r} is unknown; there are {', '.join(PAPER_FIGURES)}")
    subjects = {name: _subject(name, store) for name in dict.fromkeys(claim.figure for claim in claims)}
    return [_judged(claim, subjects[claim.figure]) for claim in claims]


def _subject(figure: str, store: RunStore) -> Subject:
    """Return what a figure's claims are judged by.

    Panels that are not in the paper stand in for the paper's own only while these have no runs.
    """
    subject = PAPER_FIGURES[figure].subject(store)
    own = {name: selection for name, selection in subject.panels.items() if selection.in_paper}
    return replace(subject, panels=own) if any(selection.runs for selection in own.values()) else subject


def _judged(claim: Claim, subject: Subject) -> JudgedClaim:
    parts = tuple(all_rows(claim.id, claim.parts, subject))
    verdict = judge_parts([part.verdict for part in parts])
    return JudgedClaim(claim.id, claim.claim, claim.source, claim.figure, verdict, parts)
