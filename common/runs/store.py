"""The run store: one directory a run, holding its settings, metrics, and a record that is written last.

    store/track/experiment/name-key/
        config.yaml            resolved settings
        metrics-0-19.parquet   seed, step, metrics; one file a block of seeds
        record.json            the finished blocks, each with its file's SHA-256 and provenance
        checkpoint-*.pt        while a block is unfinished
        progress.json          while a process is at work
        failure.json           why the last attempt failed, if it did

Only what ``record.json`` lists, with a matching checksum, counts as done.
"""

import io
import json
import logging
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import filelock
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from common.errors import UserError
from common.runs.checkpoint import unfinished_blocks
from common.runs.files import LOCK_NAME, read_json, sha256, write_bytes, write_json
from common.runs.identity import SCHEMA, RunSpec
from common.runs.trainer import Records

log = logging.getLogger(__name__)

_PROBE_SECONDS = 0.5
"""How long a lock is waited for: whoever only looks whether it is held (``is_locked``) holds it for a moment."""


class BusyError(UserError):
    """Another process is at work on the run."""

    def __init__(self, message: str, process: int | None = None) -> None:
        """Take the process's number, where it is known."""
        super().__init__(message)
        self.process = process


@dataclass(frozen=True)
class Block:
    """A finished block of consecutive seeds."""

    file: str
    sha256: str
    first_seed: int
    last_seed: int
    steps: int
    preset: str
    commit: str
    machine: str
    versions: dict[str, str]
    finished: str
    """Time in UTC, ISO 8601."""
    wall_seconds: float
    cpu_seconds: float
    """Over all attempts that led to it."""
    resumed: bool = False

    @property
    def seeds(self) -> range:
        """The block's seeds."""
        return range(self.first_seed, self.last_seed + 1)


@dataclass(frozen=True)
class StoredRun:
    """A run's directory, read back."""

    directory: Path
    track: str
    experiment: str
    key: str
    settings: dict[str, Any]
    blocks: tuple[Block, ...] = field(default=())

    @property
    def objective(self) -> str:
        """Name of the objective."""
        return str(self.settings["objective"])

    @property
    def seeds(self) -> list[int]:
        """The finished seeds."""
        return sorted(seed for block in self.blocks for seed in block.seeds)

    @property
    def state(self) -> str:
        """``running``, ``unfinished`` (can be resumed), ``failed``, ``done`` or ``empty``."""
        if is_locked(self.directory):
            return "running"
        if (self.directory / "failure.json").exists():
            return "failed"
        if unfinished_blocks(self.directory):
            return "unfinished"
        return "done" if self.blocks else "empty"

    def metrics(self, seeds: int | None = None) -> pd.DataFrame:
        """Return the finished seeds' metrics: columns seed, step, and one a metric.

        Args:
            seeds: only seeds below this number.

        Raises:
            UserError: a file is missing or damaged, naming it and the way out; or no such seed is finished.
        """
        frames = []
        for block in self.blocks:
            if seeds is not None and block.first_seed >= seeds:
                continue
            content = block_bytes(self.directory, block)
            if content is None:
                raise UserError(
                    f"{self.directory / block.file}: damaged or missing (its checksum is not the record's); run the"
                    " experiment again to compute its seeds anew"
                )
            frames.append(pq.read_table(io.BytesIO(content)).to_pandas())
        if not frames:
            raise UserError(f"{self.directory}: holds no finished seeds that were asked for; run the experiment")
        frame = pd.concat(frames, ignore_index=True).sort_values(["seed", "step"], ignore_index=True)
        return frame if seeds is None else frame[frame["seed"] < seeds]


class RunStore:
    """Runs below one directory."""

    def __init__(self, root: Path | str) -> None:
        self.root = Path(root)

    def directory(self, spec: RunSpec) -> Path:
        """Return where the run lives."""
        return self.root / spec.path

    def find(self, spec: RunSpec) -> StoredRun | None:
        """Return the stored run, or None where nothing was ever started."""
        directory = self.directory(spec)
        return read_run(directory) if (directory / "config.yaml").exists() else None

    def runs(self, track: str | None = None, experiment: str | None = None) -> Iterator[StoredRun]:
        """Iterate over the stored runs in the order of their paths.

        Raises:
            UserError: the store or one of its files cannot be read.
        """
        if self.root.exists() and not self.root.is_dir():
            raise UserError(f"store={self.root}: is a file; give a directory")
        for path in sorted(self.root.glob(f"{track or '[!.]*'}/{experiment or '*'}/*/config.yaml")):
            yield read_run(path.parent)

    def prepare(self, spec: RunSpec) -> None:
        """Write the run's settings into its directory unless they are there; call it only while holding its lock.

        Raises:
            UserError: the directory cannot be written.
        """
        config = {
            "schema": SCHEMA,
            "track": spec.track,
            "experiment": spec.experiment,
            "key": spec.key,
            "settings": json.loads(json.dumps(spec.all_settings())),
        }
        path = self.directory(spec) / "config.yaml"
        if not path.exists():
            write_bytes(path, yaml.safe_dump(config, sort_keys=False).encode())


def read_run(directory: Path) -> StoredRun:
    """Read a run's settings and record.

    Raises:
        UserError: a file cannot be read, or was written by another version of the store.
    """
    try:
        config = yaml.safe_load((directory / "config.yaml").read_text())
        identity = {key: config[key] for key in ("track", "experiment", "key", "settings")}
        schema = config["schema"]
    except (OSError, ValueError, yaml.YAMLError, KeyError, TypeError) as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise UserError(f"{directory / 'config.yaml'}: not a run's settings ({reason}); remove the run") from error
    if schema != SCHEMA:
        raise UserError(f"{directory}: written with store schema {schema}; this version reads schema {SCHEMA}")
    record = read_json(directory / "record.json")
    try:
        blocks = tuple(Block(**block) for block in record["blocks"]) if record is not None else ()
    except (KeyError, TypeError) as error:
        raise UserError(f"{directory / 'record.json'}: not a run's record ({error}); remove it") from error
    return StoredRun(directory, blocks=blocks, **identity)


def write_record(directory: Path, blocks: Sequence[Block]) -> None:
    """Write which blocks are finished."""
    ordered = sorted(blocks, key=lambda block: block.first_seed)
    write_json(directory / "record.json", {"schema": SCHEMA, "blocks": [asdict(block) for block in ordered]})


def block_bytes(directory: Path, block: Block) -> bytes | None:
    """Return the bytes of a block's metrics, or None where they are missing or not what was recorded."""
    try:
        content = (directory / block.file).read_bytes()
    except OSError:
        return None
    return content if sha256(content) == block.sha256 else None


def parquet_bytes(records: Records, seeds: Sequence[int]) -> bytes:
    """Return metrics as a Parquet file with columns seed, step and one a metric, sorted by seed and step."""
    steps = len(records.steps)
    columns: dict[str, Any] = {
        "seed": pd.Series(seeds, dtype="int32").repeat(steps).to_numpy(),
        "step": pd.Series(records.steps.numpy().astype("int32").tolist() * len(seeds), dtype="int32").to_numpy(),
    }
    columns |= {name: values.reshape(-1).numpy() for name, values in records.metrics.items()}
    sink = io.BytesIO()
    pq.write_table(pa.table(columns), sink, compression="zstd")
    return sink.getvalue()


def lock(directory: Path) -> filelock.AcquireReturnProxy:
    """Take the run's lock until the context ends; the operating system gives it back however the process ends.

    Raises:
        BusyError: another process holds it.
        UserError: the directory cannot be made or written.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        return filelock.FileLock(directory / LOCK_NAME, timeout=_PROBE_SECONDS).acquire()
    except filelock.Timeout as error:
        progress = read_json(directory / "progress.json") or {}
        process = progress.get("pid")
        by = "" if process is None else f" (process {process})"
        words = f"{directory}: another process{by} is at work on this run; it was left to it"
        raise BusyError(words, process) from error
    except OSError as error:
        reason = error.strerror or error
        raise UserError(f"{directory}: cannot be written ({reason}); choose a writable store=") from error


def is_locked(directory: Path) -> bool:
    """Whether some process holds the run's lock, as far as this user may know."""
    if not (directory / LOCK_NAME).exists():
        return False
    probe = filelock.FileLock(directory / LOCK_NAME, timeout=0)
    try:
        with probe:
            return False
    except filelock.Timeout:
        return True
    except OSError:  # somebody else's store, for reading only
        return False
