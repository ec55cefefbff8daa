"""Files that are either whole or absent: written under a temporary name, flushed to disk, then renamed."""

import hashlib
import json
import os
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any

from common.errors import UserError


def write_bytes(path: Path, content: bytes) -> None:
    """Replace ``path`` by ``content``; whoever reads it sees the old file or the new one, whole.

    Raises:
        UserError: the file cannot be written.
    """
    temporary = path.parent / f".{path.name}.{uuid.uuid4().hex}"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("xb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise UserError(f"{path}: cannot be written ({error.strerror or error}); choose a writable store=") from error


def write_json(path: Path, content: Any) -> None:
    """Write ``content`` as indented JSON."""
    write_bytes(path, (json.dumps(content, indent=1) + "\n").encode())


def read_json(path: Path) -> Any:
    """Return the parsed file, or None where there is none.

    Raises:
        UserError: the file is there but is not JSON.
    """
    try:
        return json.loads(path.read_text())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: cannot be read ({error}); mend or remove it") from error


def sha256(content: bytes) -> str:
    """Return the SHA-256 digest in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def remove_leftovers(directory: Path) -> None:
    """Remove temporary files that a killed process left; call it only while holding the directory's lock."""
    for leftover in directory.glob(".*.*"):
        if leftover.is_file() and leftover.name != LOCK_NAME:
            leftover.unlink(missing_ok=True)


LOCK_NAME = ".lock"
