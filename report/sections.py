"""The page's sections, one a figure: picture, settings, runs, disagreements, what is missing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import yaml

from common.runs.store import RunStore, StoredRun
from figures.catalogue import FIGURES
from figures.selection import NoRunsError, Selection, what_is_missing
from figures.variants import common_words, title
from report.disagreements import Disagreement
from report.pictures import Picture, picture
from report.stored import cpu_seconds, gpu_seconds
from report.summary import Row
from report.wording import counted, distinct, hours

_ABOUT = Path(__file__).with_name("figures.yaml")


@dataclass(frozen=True)
class About:
    """A figure in words."""

    short: str
    shows: str
    setting: str
    alt: str


@dataclass(frozen=True)
class PanelSize:
    """How a panel's runs compare with the paper's."""

    place: str
    paper: str
    ours: str
    differs: bool
    others: tuple[str, ...]
    """Settings besides length and seeds in which they differ."""


@dataclass(frozen=True)
class RunRow:
    """A run behind a figure."""

    key: str
    method: str
    places: str
    seeds: int
    steps: int
    preset: str
    commits: str
    machines: str
    cpu: str
    gpu: str
    state: str


@dataclass(frozen=True)
class Section:
    """A figure, its runs, and what is to be known of them."""

    name: str
    title: str
    about: About
    picture: Picture | None
    """None where there are no runs."""
    to_run: str
    """Makes the runs at the paper's size."""
    panels: tuple[PanelSize, ...]
    """Those with runs."""
    runs: tuple[RunRow, ...]
    missing: tuple[str, ...]
    disagreements: tuple[Disagreement, ...]
    rows: tuple[Row, ...]
    """Claims of the figure."""


def chosen_runs(store: RunStore) -> dict[str, Sequence[Selection]]:
    """Return the runs of each figure."""
    return {name: figure.chosen(store) for name, figure in FIGURES.items()}


def sections(
    store: RunStore,
    chosen: Mapping[str, Sequence[Selection]],
    points: Sequence[Disagreement],
    rows: Sequence[Row],
) -> list[Section]:
    """Return a section for each figure."""
    return [_section(name, store, chosen[name], points, rows) for name in FIGURES]


@lru_cache(maxsize=1)
def about_figures() -> Mapping[str, About]:
    """Return the figures in words, by module."""
    return {name: About(**words) for name, words in yaml.safe_load(_ABOUT.read_text(encoding="utf-8")).items()}


def _section(
    name: str, store: RunStore, selections: Sequence[Selection], points: Sequence[Disagreement], rows: Sequence[Row]
) -> Section:
    shown = [each for each in selections if each.runs]
    return Section(
        name=name,
        title=FIGURES[name].TITLE,
        about=about_figures()[name],
        picture=_drawn(name, store, selections),
        to_run=common_words(each.command for each in selections),
        panels=tuple(_size(each) for each in shown),
        runs=tuple(_runs(shown)),
        missing=tuple(what_is_missing(selections)) if shown else (),
        disagreements=tuple(point for point in points if name in point.figures),
        rows=tuple(row for row in rows if row.figure == name),
    )


def _drawn(name: str, store: RunStore, selections: Sequence[Selection]) -> Picture | None:
    try:
        figure = FIGURES[name].draw(store)
    except NoRunsError:
        return None
    return picture(figure, about_figures()[name].alt, selections)


def _size(selection: Selection) -> PanelSize:
    seeds = [len(run.seeds) for run in selection.runs.values()]
    few, many = min(seeds), max(seeds)
    ours = counted(many, "seed") if few == many else f"{few}–{many} seeds"
    return PanelSize(
        place=selection.place,
        paper=f"{selection.paper_steps:,} {selection.unit}, {counted(selection.paper_seeds, 'seed')}",
        ours=f"{selection.steps:,} {selection.unit}, {ours}",
        differs=bool(selection.reductions) or few < selection.paper_seeds,
        others=selection.differences,
    )


def _runs(selections: Sequence[Selection]) -> list[RunRow]:
    """Return each run once, with the panels that it stands in."""
    places: dict[str, list[str]] = {}
    found: dict[str, tuple[str, StoredRun]] = {}
    for selection in selections:
        for method, run in selection.runs.items():
            found.setdefault(run.key, (method, run))
            places.setdefault(run.key, []).append(selection.place)
    return [_run(method, run, places[key]) for key, (method, run) in found.items()]


def _run(method: str, run: StoredRun, places: Sequence[str]) -> RunRow:
    on_gpu = gpu_seconds([run])
    return RunRow(
        key=run.key,
        method=title(method),
        places=", ".join(distinct(filter(None, places))),
        seeds=len(run.seeds),
        steps=max(block.steps for block in run.blocks),
        preset=_recorded(run, "preset"),
        commits=_recorded(run, "commit"),
        machines=_recorded(run, "machine"),
        cpu=hours(cpu_seconds([run])),
        gpu=hours(on_gpu) if on_gpu else "",
        state=run.state,
    )


def _recorded(run: StoredRun, attribute: str) -> str:
    return ", ".join(distinct(str(getattr(block, attribute)) for block in run.blocks))
