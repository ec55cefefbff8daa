"""Command lines in a temporary directory, without logins, terminal, display or standard input."""

import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from command_line import Command, Ended


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "runs"


@pytest.fixture
def start(tmp_path: Path, environment: dict[str, str]) -> Iterator[Callable[..., Command]]:
    """Start ``python -m bandits`` in one worker, forked; what still runs at the end of the test is killed."""
    started = []
    numbers = itertools.count()

    def start(*arguments: str) -> Command:
        directory = tmp_path / f"command-{next(numbers)}"
        directory.mkdir()
        given = {argument.partition("=")[0] for argument in arguments}
        shared = {"workers": "1", "store": str(tmp_path / "runs")}
        missing = tuple(f"{key}={value}" for key, value in shared.items() if key not in given)
        started.append(Command((*arguments, *missing), directory, environment | {"PYTHONPATH": str(tmp_path)}))
        return started[-1]

    yield start
    for command in started:
        command.kill()


@pytest.fixture
def bandits(start: Callable[..., Command]) -> Callable[..., Ended]:
    """Run ``python -m bandits`` in one worker, forked."""
    return lambda *arguments: start(*arguments).end()


@pytest.fixture
def popen(tmp_path: Path, environment: dict[str, str]) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start ``python -m bandits`` as a user does, in a process group of its own."""
    started = []

    def popen(*arguments: str, **changes: str) -> subprocess.Popen[str]:
        (tmp_path / "work").mkdir(exist_ok=True)
        process = subprocess.Popen(
            [sys.executable, "-m", "bandits", *arguments],
            cwd=tmp_path / "work",
            env=environment | {"PYTHONPATH": str(tmp_path)} | changes,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        return process

    yield popen
    for process in started:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
