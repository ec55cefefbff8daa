"""Finished runs as one ZIP file: moved to another machine, they redraw every figure without computing anything."""

import io
import json
import re
import zipfile
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import yaml

from common.errors import UserError
from common.launch.experiment import experiments_of
from common.runs.checkpoint import block_name
from common.runs.files import sha256, write_bytes
from common.runs.identity import SCHEMA, RunSpec
from common.runs.store import Block, RunStore, StoredRun, block_bytes, lock, read_run, write_record

_WORD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.=-]*")
_TIMESTAMP = (1980, 1, 1, 0, 0, 0)
"""For every entry, so that the same runs give the same archive."""


def export_runs(runs: Iterable[StoredRun], path: Path) -> int:
    """Write the finished blocks of runs to a ZIP file and return how many runs it holds.

    Raises:
        UserError: a block is damaged, nothing is finished, or the file cannot be written.
    """
    content = io.BytesIO()
    count = 0
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for run in runs:
            if not run.blocks:
                continue
            count += 1
            folder = PurePosixPath(run.track, run.experiment, run.directory.name)
            _add(archive, folder / "config.yaml", (run.directory / "config.yaml").read_bytes())
            record = {"schema": SCHEMA, "blocks": [asdict(block) for block in run.blocks]}
            _add(archive, folder / "record.json", json.dumps(record, indent=1).encode())
            for block in run.blocks:
                data = block_bytes(run.directory, block)
                if data is None:
                    raise UserError(f"{run.directory / block.file}: damaged or missing; run the experiment again first")
                _add(archive, folder / block.file, data)
    if not count:
        raise UserError("nothing to export: the store holds no finished run that was asked for")
    write_bytes(path, content.getvalue())
    return count


def import_runs(path: Path, store: RunStore) -> tuple[int, int]:
    """Merge an exported file into a store; seeds that the store has already must be the same, and are left as they are.

    Everything is verified before anything is written: places, schema, checksums, that a run's key is that of its
    settings, that files hold the seeds that the record says, and that seeds which the store has are the same there.

    Returns:
        The number of runs in the file, and of seeds that were new.

    Raises:
        UserError: not an export of this store's schema, a damaged entry, a run that contradicts the store's (showing
            both records), or a store that cannot be written.
    """
    try:
        archive = zipfile.ZipFile(path)
    except (OSError, zipfile.BadZipFile) as error:
        raise UserError(f"{path}: cannot be read as an export of runs ({error})") from error
    with archive:
        folders = sorted({PurePosixPath(name).parent for name in archive.namelist()})
        arriving = [_read(archive, folder, path) for folder in folders]
    for run in arriving:
        _refuse_contradiction(run, store)
    return len(arriving), sum(_merge(run, store) for run in arriving)


@dataclass(frozen=True)
class _Arriving:
    """A run in the file, verified."""

    where: str
    folder: PurePosixPath
    config: bytes
    blocks: tuple[tuple[Block, bytes], ...]


def _add(archive: zipfile.ZipFile, name: PurePosixPath, content: bytes) -> None:
    archive.writestr(zipfile.ZipInfo(str(name), _TIMESTAMP), content, zipfile.ZIP_DEFLATED)


def _read(archive: zipfile.ZipFile, folder: PurePosixPath, source: Path) -> _Arriving:
    where = f"{source}: {folder}"
    if len(folder.parts) != 3 or not all(_WORD.fullmatch(part) for part in folder.parts):
        raise UserError(f"{where}: not a run's place (track/experiment/name-key)")
    try:
        config_bytes = archive.read(str(folder / "config.yaml"))
        config = yaml.safe_load(config_bytes)
        record = json.loads(archive.read(str(folder / "record.json")))
        blocks = [Block(**block) for block in record["blocks"]]
        if (config["track"], config["experiment"]) != folder.parts[:2] or config["schema"] != SCHEMA:
            raise ValueError(f"schema {config['schema']}, {config['track']}/{config['experiment']}")
        if not folder.name.endswith(f"-{config['key']}"):
            raise ValueError(f"key {config['key']}")
        key = _key_of(config["track"], config["experiment"], config["settings"])
        contents = [archive.read(str(folder / PurePosixPath(block.file).name)) for block in blocks]
    except (KeyError, TypeError, ValueError, yaml.YAMLError, zipfile.BadZipFile, zlib.error) as error:
        raise UserError(f"{where}: not a run of this store's schema {SCHEMA}, or damaged ({error!r})") from error
    if key not in (None, config["key"]):
        raise UserError(f"{where}: damaged (its settings have the key {key}, not {config['key']})")
    for block, content in zip(blocks, contents, strict=True):
        if sha256(content) != block.sha256:
            raise UserError(f"{where}/{block.file}: damaged (its checksum is not the record's)")
        if set(_seeds_of(content, f"{where}/{block.file}")) != set(block.seeds):
            raise UserError(f"{where}/{block.file}: damaged (its seeds are not the record's)")
    return _Arriving(where, folder, config_bytes, tuple(zip(blocks, contents, strict=True)))


def _key_of(track: str, experiment: str, settings: Mapping[str, Any]) -> str | None:
    """Return the key that settings have, None where they cannot be taken up here: another's track or objective."""
    try:
        taken_up = experiments_of(track)[experiment].settings(**settings)
        return RunSpec(track, experiment, taken_up).key
    except (ImportError, KeyError):
        return None
    except ValueError:
        if ":" in str(settings.get("objective", "")):
            return None
        raise


def _seeds_of(content: bytes, where: str) -> set[int]:
    try:
        return set(pq.read_table(io.BytesIO(content), columns=["seed"])["seed"].to_pylist())
    except (pa.ArrowException, KeyError) as error:
        raise UserError(f"{where}: damaged (it is no table of metrics by seed)") from error


def _refuse_contradiction(run: _Arriving, store: RunStore) -> None:
    """Raise UserError where the store has other settings or other numbers for a run that arrives."""
    directory = store.root.joinpath(*run.folder.parts)
    if not (directory / "config.yaml").exists():
        return
    stored = read_run(directory)
    way_out = f"import into another --store, or remove {directory} to take the file's"
    if stored.settings != yaml.safe_load(run.config)["settings"]:
        raise UserError(f"{run.where}: its settings are not those of {directory / 'config.yaml'}; {way_out}")
    for block, content in run.blocks:
        for kept in stored.blocks:
            seeds = sorted(set(kept.seeds) & set(block.seeds))
            there = block_bytes(directory, kept) if seeds and kept.sha256 != block.sha256 else None
            if there is not None and not _rows(content, seeds).equals(_rows(there, seeds)):
                raise UserError(
                    f"{run.where}: other numbers than the store's for seeds {seeds[0]} to {seeds[-1]};"
                    f" the file's record: {_shown(block)}; the store's: {_shown(kept)}; {way_out}"
                )


def _rows(content: bytes, seeds: Sequence[int]) -> pd.DataFrame:
    """Return the metrics of some seeds, sorted."""
    frame = pq.read_table(io.BytesIO(content)).to_pandas()
    wanted = frame[frame["seed"].isin(seeds)]
    return wanted.sort_values(["seed", "step"], ignore_index=True).sort_index(axis="columns")


def _shown(block: Block) -> str:
    """Return a block's record in a line."""
    return ", ".join(f"{name}={value}" for name, value in asdict(block).items())


def _merge(run: _Arriving, store: RunStore) -> int:
    directory = store.root.joinpath(*run.folder.parts)
    with lock(directory):
        if not (directory / "config.yaml").exists():
            write_bytes(directory / "config.yaml", run.config)
        return _add_missing(directory, run.blocks)


def _add_missing(directory: Path, incoming: Sequence[tuple[Block, bytes]]) -> int:
    kept = [block for block in read_run(directory).blocks if block_bytes(directory, block) is not None]
    have = {seed for block in kept for seed in block.seeds}
    before = len(have)
    for block, content in incoming:
        for seeds in _runs_of(set(block.seeds) - have):
            data = content if seeds == block.seeds else _only(content, seeds)
            name = f"metrics-{block_name(seeds)}.parquet"
            write_bytes(directory / name, data)
            first, last = seeds[0], seeds[-1]
            kept.append(replace(block, file=name, sha256=sha256(data), first_seed=first, last_seed=last))
            have |= set(seeds)
    write_record(directory, kept)
    return len(have) - before


def _runs_of(seeds: set[int]) -> list[range]:
    """Cut a set of seeds into ranges of consecutive ones."""
    ranges: list[range] = []
    for seed in sorted(seeds):
        if ranges and ranges[-1].stop == seed:
            ranges[-1] = range(ranges[-1].start, seed + 1)
        else:
            ranges.append(range(seed, seed + 1))
    return ranges


def _only(content: bytes, seeds: range) -> bytes:
    """Return the Parquet file with the rows of some seeds."""
    table = pq.read_table(io.BytesIO(content))
    wanted = pc.is_in(table["seed"], value_set=pa.array(seeds, pa.int32()))
    sink = io.BytesIO()
    pq.write_table(table.filter(wanted), sink, compression="zstd")
    return sink.getvalue()
