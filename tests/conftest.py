"""What several folders share: processes that start at once, and an environment without logins or a terminal."""

import multiprocessing
import os
import signal
from pathlib import Path

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")
# A shell's background job ignores interrupts, and so would the commands that tests interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# Processes are forked from a server that has imported what takes seconds: a context "forkserver" gives them.
multiprocessing.set_forkserver_preload(["pytest", "common.launch.main", "bandits.experiments"])


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """The environment of a command line: nobody is logged in, and there is neither a terminal nor a display."""
    unwanted = ("NETRC", "DISPLAY", "COLUMNS", "HYDRA_FULL_ERROR", "PYTHONPATH")
    kept = {key: value for key, value in os.environ.items() if not key.startswith("WANDB_") and key not in unwanted}
    return {**kept, "HOME": str(tmp_path / "home"), "TERM": "dumb", "PYTHONDONTWRITEBYTECODE": "1"}
