"""Files that are either whole or not there."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from fallow.lab.errors import Failed
from fallow.runtimes.wire import pack, unpack


def write_whole(path: Path, content: bytes) -> str:
    """Write a file through a temporary name, fsync, rename, fsync of the folder; its sha256.

    Raises Failed when the disk is full or read-only; an older file of that name stays.
    """
    draft = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(draft, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise Failed(
            f"{path} cannot be written ({error.strerror}): free some space or choose another folder "
            "with --out; earlier results are untouched"
        ) from error
    return hashlib.sha256(content).hexdigest()


def write_json(path: Path, tree: Any) -> None:
    write_whole(path, (json.dumps(tree, indent=1) + "\n").encode())


def write_lines(path: Path, rows: list[dict[str, Any]]) -> None:
    """One JSON object per line."""
    write_whole(path, "".join(json.dumps(row) + "\n" for row in rows).encode())


def save_tree(path: Path, tree: Any) -> str:
    """A checkpoint: tensors and plain values as safetensors; returns the file's sha256."""
    return write_whole(path, pack(tree))


def load_tree(path: Path, sha256: str | None = None) -> Any:
    """A checkpoint back; Failed when the file is not what was written."""
    content = path.read_bytes()
    if sha256 is not None and hashlib.sha256(content).hexdigest() != sha256:
        raise Failed(f"checkpoint {path} is damaged (its hash differs from the journal's): "
                         "delete the folder of this run and run again")  # fmt: skip
    try:
        return unpack(content)
    except ValueError as error:
        raise Failed(f"checkpoint {path} is damaged: delete it and run again") from error
