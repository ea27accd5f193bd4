"""Files that are written atomically."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import Tensor

from fallow.storage.errors import Failed, Unwritable
from fallow.storage.packing import pack, unpack
from fallow.storage.private import for_owner_alone, make_folder, rights_in

DRAFT = ".part"


def write_whole(path: Path, content: bytes, mode: int = 0o666) -> str:
    """Write a file atomically (temporary name, fsync, rename, fsync of the folder); return its
    sha256.

    ``mode``: permissions of the file before the umask; in a private folder, those of other users
    are removed. Use 0o600 for a secret. Raises Failed if the disk is full or read-only; an earlier
    file of that name is kept.
    """
    draft = path.with_name(f"{path.name}.{os.getpid()}{DRAFT}")
    try:
        make_folder(path.parent)
        mode = rights_in(path.parent, mode)
        draft.unlink(missing_ok=True)
        try:
            # "x": does not follow a link that another user creates meanwhile
            with open(draft, "xb", opener=for_owner_alone(mode)) as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(draft, path)
        finally:
            draft.unlink(missing_ok=True)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise unwritable(path, error) from error
    return hashlib.sha256(content).hexdigest()


def unwritable(path: Path, error: OSError) -> Failed:
    """Return the error for a full or read-only disk, with a message of one sentence."""
    return Unwritable(
        f"{path} cannot be written ({error.strerror}): free some space, make the "
        "folder writable, or choose another folder; earlier results are unchanged"
    )


def sweep(folder: Path, name: str = "*") -> None:
    """Remove the temporary files of a killed process; the caller has the lock of the folder."""
    for draft in folder.rglob(f"{name}{DRAFT}"):
        draft.unlink(missing_ok=True)


@contextmanager
def only_one(path: Path, wait: bool = True) -> Iterator[None]:
    """Lock a folder for one process; the lock ends with its process, also after a crash.

    Raises Failed if another process has the lock and ``wait`` is off.
    """
    try:
        make_folder(path.parent)
        # does not create a file through a link of another user
        how = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
        file = os.open(path, how, rights_in(path.parent, 0o666))
    except OSError as error:
        raise unwritable(path, error) from error
    try:
        _lock(file, path, wait)
        yield
    finally:
        os.close(file)


def _lock(file: int, path: Path, wait: bool) -> None:
    how = fcntl.LOCK_EX
    if not wait:
        how |= fcntl.LOCK_NB
    try:
        fcntl.flock(file, how)
    except BlockingIOError as error:
        raise Failed(
            f"another process uses {path.parent}: wait until it ends, or choose "
            "another folder"
        ) from error


def write_json(path: Path, tree: Any) -> None:
    """Write a JSON value, indented; raise Failed if the disk is full or read-only."""
    write_whole(path, (json.dumps(tree, indent=1) + "\n").encode())


def write_lines(path: Path, rows: Sequence[Mapping[str, object]]) -> None:
    """Append one JSON object per line."""
    lines = [json.dumps(row) + "\n" for row in rows]
    write_whole(path, "".join(lines).encode())


def save_tree(path: Path, tree: Any, mode: int = 0o666) -> str:
    """Write tensors and plain values as a safetensors checkpoint; return the file's sha256."""
    return write_whole(path, pack({"tree": tree, "digest": digest_of(tree)}), mode)


def load_tree(path: Path, folder: Path, sha256: str | None = None) -> Any:
    """Read a checkpoint; raise Failed if it differs from the written one.

    ``folder``: folder of the run, named in the message about a damaged file.
    """
    way_out = f"delete the folder {folder} and run again with --resume (coordinate start: without)"
    try:
        content = path.read_bytes()
    except OSError as error:
        raise Failed(
            f"checkpoint {path} cannot be read ({error.strerror}): {way_out}"
        ) from error
    if sha256 is not None and hashlib.sha256(content).hexdigest() != sha256:
        raise Failed(
            f"checkpoint {path} is damaged (it is not the file named in the event "
            f"log): {way_out}"
        )
    try:
        saved = unpack(content)
        tree = saved["tree"]
        digest = saved["digest"]
    except (ValueError, KeyError, TypeError) as error:
        raise Failed(f"checkpoint {path} is damaged: {way_out}") from error
    if digest_of(tree) != digest:
        raise Failed(f"checkpoint {path} is damaged (wrong checksum): {way_out}")
    return tree


def raw(tensor: Tensor) -> memoryview:
    """Return the bytes of a tensor, in the order of its elements."""
    return tensor.detach().reshape(-1).contiguous().numpy().data


def digest_of(tree: Any) -> str:
    """Return a hash of a nested structure's values, which writing and reading do not change.

    >>> digest_of({"a": (1, 2.5)}) == digest_of({"a": [1, 2.5]})
    True
    """
    h = hashlib.sha256()

    def walk(node: Any) -> None:
        if isinstance(node, Tensor):
            h.update(repr((node.dtype, tuple(node.shape))).encode())
            h.update(raw(node))
        elif isinstance(node, dict):
            h.update(f"dict {len(node)}".encode())
            for key, value in node.items():
                h.update(repr(str(key)).encode())
                walk(value)
        elif isinstance(node, (list, tuple)):
            h.update(f"list {len(node)}".encode())
            for value in node:
                walk(value)
        else:
            h.update(repr(node).encode())

    walk(tree)
    return h.hexdigest()
