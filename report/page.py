"""The page: what stands on it, and how it becomes one HTML file."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from jinja2 import Environment, PackageLoader, StrictUndefined

from common.runs.provenance import commit
from common.runs.store import RunStore
from common.statistics import Verdict
from figures.judged import judged_claims
from report.cost import Costs, costs
from report.disagreements import Disagreement, disagreements
from report.own_objectives import Contest, contests
from report.sections import Section, chosen_runs, sections
from report.stored import Holdings, holdings
from report.summary import MEANINGS, Row, row_of, verdict_counts


@dataclass(frozen=True)
class Page:
    """Everything that the page shows."""

    made: str
    """When, in UTC."""
    commit: str
    """Of the code that made it."""
    holdings: Holdings
    rows: tuple[Row, ...]
    counts: dict[Verdict, int]
    sections: tuple[Section, ...]
    disagreements: tuple[Disagreement, ...]
    contests: tuple[Contest, ...]
    costs: Costs


def gather(store: RunStore) -> Page:
    """Read the store, draw the figures, and judge the claims.

    Raises:
        UserError: the store, or a file of a run, cannot be read.
    """
    chosen = chosen_runs(store)
    points = disagreements(chosen)
    rows = [row_of(each) for each in judged_claims(store)]
    return Page(
        made=f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        commit=commit(),
        holdings=holdings(store),
        rows=tuple(rows),
        counts=verdict_counts(rows),
        sections=tuple(sections(store, chosen, points, rows)),
        disagreements=tuple(points),
        contests=tuple(contests(store)),
        costs=costs(store),
    )


def render(page: Page) -> str:
    """Return the page as HTML, styles, script and pictures inside."""
    environment = Environment(
        loader=PackageLoader("report"), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["slug"] = _slug
    shorts = {section.name: section.about.short for section in page.sections}
    return environment.get_template("page.html").render(page=page, meanings=MEANINGS, shorts=shorts, tally=_tally)


def _slug(words: str) -> str:
    """Return words as the name of a style."""
    return words.replace(" ", "-")


def _tally(rows: Sequence[Row]) -> list[tuple[Verdict, int]]:
    """Return the verdicts that rows have, with their numbers."""
    return [(verdict, count) for verdict, count in verdict_counts(rows).items() if count]
