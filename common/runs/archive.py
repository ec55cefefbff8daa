"""Finished runs as one ZIP file: moved to another machine, they redraw every figure without computing anything."""

import io
import json
import re
import zipfile
import zlib
from collections.abc import Iterable
from dataclasses import asdict, replace
from pathlib import Path, PurePosixPath

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import yaml

from common.errors import UserError
from common.runs.checkpoint import block_name
from common.runs.files import sha256, write_bytes
from common.runs.identity import SCHEMA
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
    """Merge an exported file into a store; seeds that the store has already are left as they are.

    Returns:
        The number of runs in the file, and of seeds that were new.

    Raises:
        UserError: not an export of this store's schema, a damaged entry, or a store that cannot be written.
    """
    try:
        archive = zipfile.ZipFile(path)
    except (OSError, zipfile.BadZipFile) as error:
        raise UserError(f"{path}: cannot be read as an export of runs ({error})") from error
    with archive:
        folders = sorted({PurePosixPath(name).parent for name in archive.namelist()})
        new_seeds = sum(_import_run(archive, folder, path, store) for folder in folders)
    return len(folders), new_seeds


def _add(archive: zipfile.ZipFile, name: PurePosixPath, content: bytes) -> None:
    archive.writestr(zipfile.ZipInfo(str(name), _TIMESTAMP), content, zipfile.ZIP_DEFLATED)


def _import_run(archive: zipfile.ZipFile, folder: PurePosixPath, source: Path, store: RunStore) -> int:
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
        contents = [archive.read(str(folder / PurePosixPath(block.file).name)) for block in blocks]
    except (KeyError, TypeError, ValueError, yaml.YAMLError, zipfile.BadZipFile, zlib.error) as error:
        raise UserError(f"{where}: not a run of this store's schema {SCHEMA}, or damaged ({error!r})") from error
    for block, content in zip(blocks, contents, strict=True):
        if sha256(content) != block.sha256:
            raise UserError(f"{where}/{block.file}: damaged (its checksum is not the record's)")
    directory = store.root.joinpath(*folder.parts)
    with lock(directory):
        if not (directory / "config.yaml").exists():
            write_bytes(directory / "config.yaml", config_bytes)
        return _merge(directory, list(zip(blocks, contents, strict=True)))


def _merge(directory: Path, incoming: list[tuple[Block, bytes]]) -> int:
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
