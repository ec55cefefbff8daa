"""``python -m bandits`` in a process of its own, forked from one that has imported everything: it starts at once.

It leads its own process group, writes to files, and has no standard input.
"""

import multiprocessing
import os
import runpy
import signal
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple


class Ended(NamedTuple):
    status: int
    stdout: str
    stderr: str


class Command:
    """A command line under way."""

    def __init__(self, arguments: tuple[str, ...], directory: Path, environment: Mapping[str, str]) -> None:
        self._outputs = directory / "stdout", directory / "stderr"
        for path in self._outputs:
            path.touch()
        context = multiprocessing.get_context("forkserver")
        self._process = context.Process(target=_run, args=(arguments, directory, dict(environment)))
        self._process.start()

    @property
    def running(self) -> bool:
        return self._process.is_alive()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal to the whole process group."""
        if self.running:
            os.killpg(self.pid, number)

    def end(self, seconds: float = 120) -> Ended:
        """Wait for the end; a command that goes on for too long is killed."""
        self._process.join(seconds)
        if self.running:
            self.kill()
            raise TimeoutError(f"still running after {seconds} s: {self._outputs[1].read_text()}")
        status = self._process.exitcode
        assert status is not None
        return Ended(status, *(path.read_text() for path in self._outputs))


def wait_for(condition: Callable[[], object], seconds: float = 60) -> bool:
    """Wait until the condition holds; return whether it does."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.01)
    return bool(condition())


def _run(arguments: tuple[str, ...], directory: Path, environment: dict[str, str]) -> None:
    os.setsid()
    for number, name in ((0, os.devnull), (1, directory / "stdout"), (2, directory / "stderr")):
        os.dup2(os.open(name, os.O_RDWR | (os.O_APPEND if number else 0)), number)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(directory)
    sys.path[:0] = [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path]
    sys.argv = ["bandits", *arguments]
    runpy.run_module("bandits", run_name="__main__", alter_sys=True)
