"""Tiny synthetic data sets in the IDX format of MNIST, as bytes and as files."""

import gzip
import hashlib
import struct
from pathlib import Path

import numpy as np

TRAIN_IMAGES, TRAIN_LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"
TEST_IMAGES, TEST_LABELS = "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"
NAMES = (TRAIN_IMAGES, TRAIN_LABELS, TEST_IMAGES, TEST_LABELS)


def image_bytes(images: np.ndarray) -> bytes:
    """IDX file of uint8 images [N, rows, columns]."""
    return struct.pack(">4I", 0x803, *images.shape) + images.astype(np.uint8).tobytes()


def label_bytes(labels: np.ndarray) -> bytes:
    """IDX file of labels [N]."""
    return struct.pack(">2I", 0x801, len(labels)) + labels.astype(np.uint8).tobytes()


def synthetic_arrays(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Random images, uint8 [count, 28, 28], and labels 0 to 9 in turn, uint8 [count]."""
    images = np.random.default_rng(seed).integers(0, 256, size=(count, 28, 28), dtype=np.uint8)
    return images, (np.arange(count) % 10).astype(np.uint8)


def synthetic_set(train: int = 30, test: int = 20, seed: int = 0) -> dict[str, bytes]:
    """The four raw files by name."""
    train_images, train_labels = synthetic_arrays(train, seed)
    test_images, test_labels = synthetic_arrays(test, seed + 1)
    contents = (
        image_bytes(train_images),
        label_bytes(train_labels),
        image_bytes(test_images),
        label_bytes(test_labels),
    )
    return dict(zip(NAMES, contents, strict=True))


def write_set(directory: Path, files: dict[str, bytes], *, dotted: bool = False, zipped: bool = False) -> Path:
    """Write the files into `directory` (made if need be), with a dot before `idx` and as `.gz` if asked."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, raw in files.items():
        spelt = name.replace("-idx", ".idx") if dotted else name
        path = directory / (f"{spelt}.gz" if zipped else spelt)
        path.write_bytes(gzip.compress(raw) if zipped else raw)
    return directory


def md5_table(files: dict[str, bytes]) -> dict[str, str]:
    """MD5 of each raw file."""
    return {name: hashlib.md5(raw, usedforsecurity=False).hexdigest() for name, raw in files.items()}
