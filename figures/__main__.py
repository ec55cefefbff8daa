"""``python -m figures [NAME ...] --store DIR --out DIR``: draw figures from the run store, compare with the paper."""

import argparse
import difflib
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from common.console import stdout_console
from common.errors import UserError
from common.runs.store import RunStore
from figures.catalogue import FIGURES
from figures.comparison import print_table, to_json, to_markdown
from figures.selection import NoRunsError, what_is_missing
from figures.style import FORMATS, rendered


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status: 0, or 2 after a mistake, told in one line."""
    options = _parser().parse_args(arguments)
    try:
        names = _known(options.names)
        store = RunStore(options.store)
        if options.list:
            for name in names:
                print(f"{name}  {FIGURES[name].TITLE}")
        elif options.json:
            print(to_json([row for name in names for row in FIGURES[name].compare(store)]))
        elif options.markdown:
            for name in names:
                print(f"### {FIGURES[name].TITLE}\n\n{to_markdown(FIGURES[name].compare(store))}\n")
        else:
            _draw_and_compare(names, store, options.out)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m figures", description=__doc__, allow_abbrev=False)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(FIGURES)}; all where none is given")
    parser.add_argument("--store", default="runs", help="the run store (default: runs)")
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder for PNG and PDF files (default: out)")
    parser.add_argument("--list", action="store_true", help="name the figures")
    parser.add_argument("--json", action="store_true", help="draw nothing; print the comparison as a JSON list")
    parser.add_argument("--markdown", action="store_true", help="draw nothing; print the comparison as Markdown")
    return parser


def _known(names: Sequence[str]) -> list[str]:
    """Return the figures asked for, all where none is; a mistaken name is refused."""
    for name in names:
        if name not in FIGURES:
            padded = re.sub(r"\d+", lambda digits: digits[0].zfill(2), name)
            near = difflib.get_close_matches(padded, FIGURES, n=1, cutoff=0.3)
            nearest = f" (did you mean {near[0]!r}?)" if near else ""
            raise UserError(f"figure: {name!r} is unknown{nearest}; there are {', '.join(FIGURES)}")
    return list(dict.fromkeys(names)) or list(FIGURES)


def _draw_and_compare(names: Sequence[str], store: RunStore, out: Path) -> None:
    """Draw each figure that has runs, print each comparison, then the paths."""
    console = stdout_console(markup=True)
    paths: list[Path] = []
    for name in names:
        figure = FIGURES[name]
        try:
            paths += _save(figure.draw(store), name, out)
        except NoRunsError as nothing:
            print(nothing, file=sys.stderr)
        else:
            for line in what_is_missing(figure.chosen(store)):
                print(f"{name}: {line}", file=sys.stderr)
        if rows := figure.compare(store):
            print_table(console, figure.TITLE, rows)
    for path in paths:
        print(path)


def _save(figure: Figure, name: str, out: Path) -> list[Path]:
    """Write the figure in every format and return the paths."""
    contents = {out / f"{name}.{kind}": rendered(figure, kind) for kind in FORMATS}
    try:
        out.mkdir(parents=True, exist_ok=True)
        for path, content in contents.items():
            path.write_bytes(content)
    except OSError as error:
        raise UserError(f"--out {out}: cannot be written ({error.strerror or error}); choose another") from error
    return list(contents)


if __name__ == "__main__":
    raise SystemExit(main())
