"""A store in a temporary directory, and what a run in it looks like."""

import json
from pathlib import Path
from typing import Any

import pytest
from fake_training import work

from common.runs.store import RunStore


class Place:
    """A run's directory in a store."""

    def __init__(self, root: Path) -> None:
        self.store = RunStore(root)
        self.directory = self.store.directory(work().spec)

    def names(self) -> set[str]:
        """Return the names of its files, the lock's excepted."""
        return {path.name for path in self.directory.iterdir()} - {".lock"}

    def metrics(self) -> dict[str, bytes]:
        """Return the bytes of its metrics by file name."""
        return {path.name: path.read_bytes() for path in self.directory.glob("metrics-*")}

    def record(self) -> list[dict[str, Any]]:
        """Return what is recorded about its blocks."""
        return json.loads((self.directory / "record.json").read_text())["blocks"]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "runs")


@pytest.fixture
def another(tmp_path: Path) -> Place:
    return Place(tmp_path / "other")
