"""``python -m report --store DIR --out DIR``: write ``index.html``, every claim of the paper judged by the store."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from common.errors import UserError
from common.runs.store import RunStore
from report.page import gather, render
from report.wording import counted


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status: 0, or 2 after a mistake, told in one line."""
    options = _parser().parse_args(arguments)
    path = options.out / "index.html"
    try:
        page = gather(RunStore(options.store))
        _write(path, render(page))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    verdicts = ", ".join(f"{count} {verdict}" for verdict, count in page.counts.items() if count)
    print(f"{counted(len(page.rows), 'claim')}: {verdicts}")
    print(path)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m report", description=__doc__, allow_abbrev=False)
    parser.add_argument("--store", default="runs", help="the run store (default: runs)")
    parser.add_argument("--out", type=Path, default=Path("reports"), help="folder for the page (default: reports)")
    return parser


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        reason = error.strerror or error
        raise UserError(f"--out {path.parent}: cannot be written ({reason}); choose another") from error


if __name__ == "__main__":
    raise SystemExit(main())
