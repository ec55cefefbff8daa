"""``python -m common.runs``: list the runs of a store; ``export FILE`` and ``import FILE`` move finished ones."""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from common.console import stdout_console
from common.errors import UserError
from common.runs.archive import export_runs, import_runs
from common.runs.store import RunStore, StoredRun


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status: 0, or 2 after a mistake, told in one line."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if (options.file is None) != (options.action == "list"):
        parser.error(f"{options.action} takes {'no file' if options.action == 'list' else 'a file'}")
    store = RunStore(options.store)
    try:
        runs = list(store.runs(options.track, options.experiment))
        if options.action == "export":
            count = export_runs(runs, options.file)
            print(f"{count} runs written to {options.file}")
        elif options.action == "import":
            count, seeds = import_runs(options.file, store)
            print(f"{count} runs read from {options.file}, {seeds} seeds new to {store.root}")
        elif options.json:
            print(json.dumps([_described(run) for run in runs], indent=1))
        else:
            _print_table(runs, store)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m common.runs", description=__doc__, allow_abbrev=False)
    parser.add_argument("action", nargs="?", choices=("list", "export", "import"), default="list")
    parser.add_argument("file", nargs="?", type=Path, help="for export and import: the ZIP file")
    parser.add_argument("--store", default="runs", help="the run store (default: runs)")
    parser.add_argument("--track", help="only this track's runs")
    parser.add_argument("--experiment", help="only this experiment's runs")
    parser.add_argument("--json", action="store_true", help="list as JSON")
    return parser


def _described(run: StoredRun) -> dict[str, Any]:
    return {
        "track": run.track,
        "experiment": run.experiment,
        "key": run.key,
        "state": run.state,
        "seeds": run.seeds,
        "settings": run.settings,
        "presets": sorted({block.preset for block in run.blocks}),
        "commits": sorted({block.commit for block in run.blocks}),
        "cpu_seconds": sum(block.cpu_seconds for block in run.blocks),
        "directory": str(run.directory),
    }


def _print_table(runs: Sequence[StoredRun], store: RunStore) -> None:
    console = stdout_console()
    table = Table("run", "state", "seeds", "preset", "commit", "CPU-s")
    for run in runs:
        described = _described(run)
        name = f"{run.track}/{run.experiment}/{run.directory.name}"
        words = (" ".join(described["presets"]), " ".join(described["commits"]))
        table.add_row(name, run.state, str(len(run.seeds)), *words, f"{described['cpu_seconds']:.1f}")
    console.print(table if runs else f"no runs in {store.root}")


if __name__ == "__main__":
    raise SystemExit(main())
