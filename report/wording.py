"""Numbers and runs in words, as the page and the gallery have them."""

from collections.abc import Iterable, Sequence

from figures.comparison import Comparison, number, with_error

NOTHING = "–"


def published(part: Comparison) -> str:
    """Return what the paper has."""
    return part.paper if isinstance(part.paper, str) else number(part.paper)


def measured(part: Comparison) -> str:
    """Return what we have, with its standard error where it is a number."""
    if part.ours is None:
        return NOTHING
    return part.ours if isinstance(part.ours, str) else with_error(part.ours, part.se)


def interval(part: Comparison) -> str:
    """Return the 95 % interval."""
    if part.low is None and part.high is None:
        return NOTHING
    low = "−∞" if part.low is None else number(part.low)
    high = "∞" if part.high is None else number(part.high)
    return f"{low} … {high}".replace("-", "−")


def command_that_made(part: Comparison) -> str:
    """Return the command behind a judged number; where nothing was run, the one that would make it at full size."""
    if part.preset is None or part.preset == "paper" or "," in part.preset:
        return part.command
    return f"{part.command.replace('preset=paper', f'preset={part.preset}')} seeds={part.n}"


def spread(counts: Iterable[int]) -> str:
    """Return the smallest and the largest of some counts, or the one there is."""
    ordered = sorted(set(counts))
    if not ordered:
        return NOTHING
    return f"{ordered[0]:,}" if len(ordered) == 1 else f"{ordered[0]:,}–{ordered[-1]:,}"


def counted(count: int, noun: str) -> str:
    """Return a count with its noun, in the plural where it is one."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def hours(seconds: float) -> str:
    """Return a time in the unit that suits it."""
    if seconds < 120:
        return f"{seconds:.3g}\N{NO-BREAK SPACE}s"
    if seconds < 7200:
        return f"{seconds / 60:.0f}\N{NO-BREAK SPACE}min"
    digits = ".3g" if seconds < 360_000 else ",.0f"
    return f"{seconds / 3600:{digits}}\N{NO-BREAK SPACE}h"


def distinct(words: Iterable[str]) -> Sequence[str]:
    """Return the words in their order, each once."""
    return list(dict.fromkeys(words))
