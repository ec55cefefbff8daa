"""``python -m report.gallery --store DIR --out DIR``: refresh the committed pictures and the table of claims."""

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from common.errors import UserError
from common.runs.files import write_bytes
from common.runs.store import RunStore
from common.statistics import Verdict
from figures.catalogue import FIGURES
from figures.judged import JudgedClaim, judged_claims
from figures.selection import NoRunsError, Selection
from figures.style import rendered
from report.sections import chosen_runs
from report.summary import MEANINGS, Row, row_of, verdict_counts

TABLE = "README.md"

_HEADING = """# Results

What the runs behind these pictures say on every claim of the paper. Written by `make gallery` from the run store; the
same numbers, with their intervals, commands and runs, stand on the page that `make report` writes. By hand and in more
depth: [bandits](bandits.md), [token sequences](sequence_tasks.md), [language models](llm_rlvr.md).
"""
_COLUMNS = ("claim", "source", "paper", "ours", "seeds", "preset", "commit", "verdict")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status: 0, or 2 after a mistake, told in one line."""
    options = _parser().parse_args(arguments)
    try:
        for path in refresh(RunStore(options.store), options.out):
            print(path)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def refresh(store: RunStore, folder: Path) -> list[Path]:
    """Write the picture of each figure that has runs, and the table of claims; other files are left alone.

    Raises:
        UserError: the store has no finished runs or cannot be read, or the folder cannot be written.
    """
    if not any(run.blocks for run in store.runs()):
        raise UserError(
            f"--store {store.root}: holds no finished run, and an empty gallery would replace the one there is;"
            " run make bandits, or import runs with python -m common.runs import FILE"
        )
    contents = {folder / f"{name}.png": content for name, content in _pictures(store)}
    contents[folder / TABLE] = table_of_claims(store, [path.name for path in contents]).encode()
    for path, content in contents.items():
        write_bytes(path, content)
    return list(contents)


def table_of_claims(store: RunStore, pictures: Sequence[str]) -> str:
    """Return the claims on which there are runs as Markdown, and how many there are none on.

    Args:
        store: the runs.
        pictures: files to show, by their names.
    """
    claims = judged_claims(store)
    rows = {each.id: row_of(each) for each in claims}
    commits = {name: _commits(selections) for name, selections in chosen_runs(store).items()}
    parts = [_HEADING, _tally(list(rows.values()))]
    for name, figure in FIGURES.items():
        judged = [each for each in claims if each.figure == name and each.verdict is not Verdict.NOT_RUN]
        shown = f"{name}.png" in pictures
        if not (judged or shown):
            continue
        parts.append(f"## {figure.TITLE}\n")
        if shown:
            parts.append(f"![{figure.TITLE}]({name}.png)\n")
        if judged:
            parts.append(_table(judged, rows, commits[name]))
    return "\n".join(parts)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m report.gallery", description=__doc__, allow_abbrev=False)
    parser.add_argument("--store", default="runs", help="the run store (default: runs)")
    parser.add_argument("--out", type=Path, default=Path("docs/results"), help="folder (default: docs/results)")
    return parser


def _pictures(store: RunStore) -> Iterator[tuple[str, bytes]]:
    for name, figure in FIGURES.items():
        try:
            yield name, rendered(figure.draw(store), "png")
        except NoRunsError:
            continue


def _tally(rows: Sequence[Row]) -> str:
    counts = verdict_counts(rows)
    lines = [f"| {verdict} | {count} | {MEANINGS[verdict]} |" for verdict, count in counts.items()]
    return "\n".join(["| verdict | claims | |", "|---|---|---|", *lines, ""])


def _table(judged: Sequence[JudgedClaim], rows: Mapping[str, Row], commits: str) -> str:
    lines = [_COLUMNS, ("---",) * len(_COLUMNS), *(_cells(rows[each.id], commits) for each in judged)]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines) + "\n"


def _cells(row: Row, commits: str) -> tuple[str, ...]:
    return row.claim, row.source, row.paper, row.ours, row.seeds, row.preset, commits, str(row.verdict)


def _commits(selections: Sequence[Selection]) -> str:
    return ", ".join(sorted(set().union(*(each.recorded("commit", each.runs) for each in selections))))


if __name__ == "__main__":
    raise SystemExit(main())
