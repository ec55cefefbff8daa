"""All figures, by name."""

from collections.abc import Sequence
from typing import Protocol

from matplotlib.figure import Figure

from common.runs.store import RunStore
from figures import (
    candidate_logprob,
    fig02,
    fig03,
    fig04,
    fig05,
    fig06,
    fig06_sequence,
    fig07,
    fig08,
    fig09,
    fig10,
    fig11,
    fig12,
    fig13,
    fig14,
    fig15,
    fig16,
    fig17,
)
from figures.comparison import Comparison
from figures.rules import Subject
from figures.selection import Selection


class PaperFigure(Protocol):
    """What a figure's module offers."""

    TITLE: str

    def chosen(self, store: RunStore) -> Sequence[Selection]:
        """Return the runs that the figure shows, a selection a panel."""
        ...

    def draw(self, store: RunStore) -> Figure:
        """Draw the figure; raises NoRunsError."""
        ...

    def compare(self, store: RunStore) -> list[Comparison]:
        """Judge the paper's claims on it, and what stands beside them."""
        ...


class ClaimedFigure(PaperFigure, Protocol):
    """One of the paper's: ``claims.yaml`` has claims on it."""

    def subject(self, store: RunStore) -> Subject:
        """Return what its claims are judged by."""
        ...


PAPER_FIGURES: dict[str, ClaimedFigure] = {
    "fig02": fig02,
    "fig03": fig03,
    "fig04": fig04,
    "fig05": fig05,
    "fig06": fig06,
    "fig06_sequence": fig06_sequence,
    "fig07": fig07,
    "fig08": fig08,
    "fig09": fig09,
    "fig10": fig10,
    "fig11": fig11,
    "fig12": fig12,
    "fig13": fig13,
    "fig14": fig14,
    "fig15": fig15,
    "fig16": fig16,
    "fig17": fig17,
}
FIGURES: dict[str, PaperFigure] = {**PAPER_FIGURES, "candidate_logprob": candidate_logprob}
