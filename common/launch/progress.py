"""Live progress of a sweep, read from the store, so that it works with any launcher."""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from common.launch.plan import PlannedRun
from common.launch.status import steps_done
from common.runs.store import RunStore

_POLL_SECONDS = 0.5
_LINE_SECONDS = 15.0
"""Between lines where the output is no terminal."""


@contextmanager
def watched(runs: Sequence[PlannedRun], store: RunStore, console: Console) -> Iterator[None]:
    """Show a bar with an ETA while the body runs; without a terminal, a line now and then."""
    finished = threading.Event()
    show = _bar if console.is_terminal else _lines
    thread = threading.Thread(target=show, args=(runs, store, console, finished), daemon=True)
    thread.start()
    try:
        yield
    finally:
        finished.set()
        thread.join()


def _bar(runs: Sequence[PlannedRun], store: RunStore, console: Console, finished: threading.Event) -> None:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("seed-steps"),
        TimeElapsedColumn(),
        TextColumn("ETA"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as progress:
        task = progress.add_task(runs[0].spec.experiment, total=_total(runs), completed=_done(runs, store))
        while not finished.wait(_POLL_SECONDS):
            progress.update(task, completed=_done(runs, store))
        progress.update(task, completed=_done(runs, store))


def _lines(runs: Sequence[PlannedRun], store: RunStore, console: Console, finished: threading.Event) -> None:
    started, before, total = time.monotonic(), _done(runs, store), _total(runs)
    while not finished.wait(_LINE_SECONDS):
        done = _done(runs, store)
        rate = (done - before) / (time.monotonic() - started)
        eta = f"ETA {(total - done) / rate:.0f} s" if rate > 0 else "ETA unknown"
        console.print(f"{runs[0].spec.experiment}: {done}/{total} seed-steps ({100 * done / total:.0f} %), {eta}")


def _total(runs: Sequence[PlannedRun]) -> int:
    return sum(run.seeds * run.spec.settings.steps for run in runs)


def _done(runs: Sequence[PlannedRun], store: RunStore) -> int:
    return sum(steps_done(run, store) for run in runs)
