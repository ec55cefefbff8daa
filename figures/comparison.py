"""What the paper claims beside what our runs say, as JSON and as a table."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from common.statistics import Verdict
from figures.variants import common_words

_COLOURS = {Verdict.REPRODUCED: "green", Verdict.REDUCED: "cyan", Verdict.DIFFERS: "red", Verdict.NOT_RUN: "dim"}


@dataclass(frozen=True)
class Comparison:
    """One claim and what became of it."""

    claim: str
    """With its unit, where it is about a number."""
    source: str
    """Where the claim stands: a figure or section of the paper, or the artefact."""
    paper: float | str
    """The published number, or what is claimed."""
    ours: float | str | None
    low: float | None
    """The 95 % interval: for a number to be read against ``paper``, for an ordering against 0; None if unbounded."""
    high: float | None
    n: int
    """Seeds behind it."""
    preset: str | None
    """Under which the runs were made; None where there are none."""
    verdict: Verdict
    command: str
    """Makes the runs at the paper's size."""
    se: float | None = None
    """Standard error of our number; for the table."""

    def as_json(self) -> dict[str, Any]:
        """Return the claim as plain JSON values, numbers as numbers."""
        return {
            "claim": self.claim,
            "source": self.source,
            "paper": self.paper,
            "ours": _plain(self.ours),
            "low": _plain(self.low),
            "high": _plain(self.high),
            "n": self.n,
            "preset": self.preset,
            "verdict": str(self.verdict),
            "command": self.command,
        }


def to_json(comparisons: Sequence[Comparison]) -> str:
    """Return a JSON list of the claims."""
    return json.dumps([each.as_json() for each in comparisons], indent=1, ensure_ascii=False, allow_nan=False)


def table(heading: str, comparisons: Sequence[Comparison]) -> Table:
    """Return the claims as a table."""
    columns = Table(title=heading, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    for column, ratio in zip(_COLUMNS, (5, 3, 2, 4, 3, None), strict=True):
        columns.add_column(column, ratio=ratio, no_wrap=ratio is None)
    for each in comparisons:
        *cells, verdict = _cells(each)
        colour = _COLOURS.get(each.verdict)
        columns.add_row(*cells, f"[{colour}]{verdict}[/]" if colour else verdict)
    return columns


def to_markdown(comparisons: Sequence[Comparison]) -> str:
    """Return the claims as a Markdown table."""
    rows = [_COLUMNS, ("---",) * len(_COLUMNS), *(_cells(each) for each in comparisons)]
    escaped = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in escaped)


_COLUMNS = ("claim", "source", "paper", "ours ± s.e. (seeds)", "95 % interval", "verdict")


def _cells(each: Comparison) -> tuple[str, ...]:
    paper = each.paper if isinstance(each.paper, str) else number(each.paper)
    return each.claim, each.source, paper, _ours(each), _interval(each), str(each.verdict)


def print_table(console: Console, heading: str, comparisons: Sequence[Comparison]) -> None:
    """Print the claims as a table, and the commands that make what was not run; if that is much, it is only counted."""
    not_run = [each for each in comparisons if each.verdict is Verdict.NOT_RUN]
    commands = list(dict.fromkeys(each.command for each in not_run))
    if len(not_run) <= _NOT_RUN_SHOWN:
        console.print(table(heading, comparisons))
        lines = [f"not run: {command}" for command in commands]
    else:
        judged = [each for each in comparisons if each.verdict is not Verdict.NOT_RUN]
        console.print(table(heading, judged) if judged else heading, highlight=False)
        lines = [f"not run, {len(not_run)} claims: {common_words(commands)}"]
    for line in lines:
        console.print(line, soft_wrap=True, markup=False, highlight=False)


_NOT_RUN_SHOWN = 10


def number(value: float) -> str:
    """Return a number with four significant digits; +inf is a threshold that was never reached."""
    if math.isinf(value):
        return "not reached"
    return f"{value:.4g}"


def with_error(value: float, se: float | None) -> str:
    """Return ``value ± se`` to the second digit of the s.e., with a power of ten for small numbers."""
    if se is None or not math.isfinite(value):
        return number(value)
    if se == 0:
        return f"{number(value)} ± 0"
    power = math.floor(math.log10(max(abs(value), se)))
    if power < -2:
        shifted = 10.0**-power
        return f"({with_error(value * shifted, se * shifted)})e{power}"
    decimals = max(0, 1 - math.floor(math.log10(se)))
    return f"{value:.{decimals}f} ± {se:.{decimals}f}"


def _ours(each: Comparison) -> str:
    if each.ours is None:
        return "–"
    shown = each.ours if isinstance(each.ours, str) else with_error(each.ours, each.se)
    return f"{shown} ({each.n})"


def _interval(each: Comparison) -> str:
    if each.low is None and each.high is None:
        return "–"
    ends = ("−∞" if each.low is None else number(each.low), "∞" if each.high is None else number(each.high))
    return f"{ends[0]} … {ends[1]}"


def _plain(value: float | str | None) -> float | str | None:
    if isinstance(value, float) and not math.isfinite(value):
        return "not reached" if value == math.inf else None
    return value
