"""Figures as pictures inside the page: sharp at any size, and described for those who cannot see them."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure

from figures.selection import Selection
from figures.style import rendered
from figures.variants import in_a_row, title
from report.wording import counted, spread

_PIXELS_AN_INCH = 96


@dataclass(frozen=True)
class Picture:
    """A drawn figure."""

    uri: str
    alt: str
    width: int
    height: int
    """In CSS pixels, at its natural size."""


def picture(figure: Figure, words: str, selections: Sequence[Selection]) -> Picture:
    """Return a drawn figure as a picture.

    Args:
        figure: as its module drew it.
        words: what it shows, for those who cannot see it.
        selections: the runs in it.
    """
    content = base64.b64encode(rendered(figure, "svg")).decode()
    width, height = (round(_PIXELS_AN_INCH * inches) for inches in figure.get_size_inches())
    return Picture(f"data:image/svg+xml;base64,{content}", f"{words} {_curves(selections)}", width, height)


def _curves(selections: Sequence[Selection]) -> str:
    shown = [each for each in selections if each.runs]
    methods = dict.fromkeys(method for each in shown for method in each.runs)
    seeds = {len(run.seeds) for each in shown for run in each.runs.values()}
    panels = f" in {counted(len(shown), 'panel')}" if len(shown) > 1 else ""
    return f"Methods: {in_a_row(title(method) for method in methods)}{panels}, {spread(seeds)} seeds each."
