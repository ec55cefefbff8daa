"""A track's command line: plan, skip what is done, run the rest, say how it ended."""

import logging
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

# Before torch is imported anywhere: competing thread pools are many times slower than one thread a process.
for _variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

import hydra  # noqa: E402

from common.console import stdout_console  # noqa: E402
from common.errors import UserError  # noqa: E402
from common.launch.job import run_job  # noqa: E402
from common.launch.plan import CONFIGS, PlannedRun, plan_runs  # noqa: E402
from common.launch.progress import watched  # noqa: E402
from common.launch.status import Status, left_over, print_plan, print_summary, status_of  # noqa: E402
from common.runs.files import write_bytes  # noqa: E402
from common.runs.store import RunStore  # noqa: E402
from common.tracking import announce_off, tracking_mode  # noqa: E402


def main(track: str, arguments: Sequence[str] | None = None) -> int:
    """Run a track's command line and return its exit status.

    0: all runs are done (or ``dry_run``). 1: some run is not; each is listed with its directory. 2: a mistake in what
    was asked for, in one line.
    """
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    arguments = [argument for argument in arguments if argument not in ("-m", "--multirun")]  # it always is one
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    for talkative in ("hydra", "hydra_plugins"):
        logging.getLogger(talkative).setLevel(logging.WARNING)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that workers are stopped, too
    try:
        if any(argument.startswith("-") for argument in arguments):  # --help, --cfg job, --info: Hydra's own
            return 0 if _call_hydra(track, arguments) else 2
        return _sweep(track, arguments)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted; the same command takes up where it stopped", file=sys.stderr)
        return 130


def _sweep(track: str, arguments: list[str]) -> int:
    console = stdout_console()
    tracking = tracking_mode()
    runs = list({run.spec.key: run for run in plan_runs(track, arguments)}.values())
    store = RunStore(runs[0].config["store"])
    before = [status_of(run, store) for run in runs]
    if runs[0].config["dry_run"]:
        print_plan(before, console)
        return 0
    _require_writable(store)
    if any(status.state != "done" or left_over(status) for status in before):
        if tracking == "off":
            announce_off()
        with watched(runs, store, console):
            whole = _call_hydra(track, arguments)
        if not whole:
            print("the sweep was cut short (see above)", file=sys.stderr)
    after = [status_of(run, store) for run in runs]
    print_summary(after, _newly_done(before, after), console)
    return 0 if all(status.state == "done" for status in after) else 1


def _newly_done(before: Sequence[Status], after: Sequence[Status]) -> int:
    return sum(old.state != "done" and new.state == "done" for old, new in zip(before, after, strict=True))


def _call_hydra(track: str, arguments: list[str]) -> bool:
    """Hand the command line to Hydra, which runs the sweep with the launcher it was told to use.

    Failed jobs do not make it stop early; a worker that was killed does, and what it left is listed afterwards.

    Returns:
        Whether Hydra came to its end.
    """
    sys.argv = [f"python -m {track}", *arguments]
    try:
        hydra.main(config_path=str(CONFIGS / track), config_name="config", version_base="1.3")(run_job)()
    except SystemExit as stop:
        return stop.code in (0, None)
    return True


def _require_writable(store: RunStore) -> None:
    probe = Path(store.root) / ".hydra" / "writable"
    write_bytes(probe, b"")
    probe.unlink()


__all__ = ["PlannedRun", "main"]
