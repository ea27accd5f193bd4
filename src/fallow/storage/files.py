"""Files: atomic writes, private permissions, checksums, and locks of folders."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from typing_extensions import Buffer

from fallow.core.refusal import explain_errors
from fallow.storage.errors import StorageError, UnwritableFileError

if TYPE_CHECKING:
    from torch import Tensor

OTHERS = 0o077
"""Permissions of all users except the owner; also the umask of a process of a federation."""
FOLDER = 0o700
FILE = 0o600


def find_existing(path: str | Path) -> Path:
    """Return the path of a user's file or folder. Raises ValueError if it does not exist."""
    if not Path(path).exists():
        raise ValueError(f"there is no file or folder {str(path)!r}; give the path of one")
    return Path(path)


def private_folder(folder: Path) -> None:
    """Create a private folder if it is missing. Raises OSError."""
    folder.mkdir(mode=FOLDER, parents=True, exist_ok=True)
    folder.chmod(FOLDER)


def make_folder(folder: Path) -> None:
    """Create a folder with its parents, private if it is inside a private one. Raises OSError."""
    way = [folder, *folder.absolute().parents]
    missing = [path for path in way if not path.exists()]
    for path in reversed(missing):
        path.mkdir(mode=rights_in(path.parent, 0o777), exist_ok=True)
    if not missing:
        folder.mkdir(exist_ok=True)  # FileExistsError for a file


def rights_in(folder: Path, wished: int) -> int:
    """Return the permissions of a new file in ``folder``, before the umask.

    These are ``wished``, without those of other users if the folder is private.
    """
    is_private = not stat.S_IMODE(folder.stat().st_mode) & OTHERS
    if is_private:
        return wished & ~OTHERS
    return wished


def for_owner_alone(mode: int = FILE) -> Callable[[str, int], int]:
    """Return an opener for `open` that creates files with these permissions."""

    def open_with_rights(name: str, flags: int) -> int:
        return os.open(name, flags, mode)

    return open_with_rights


def write_private(path: Path, text: str, mode: int = FILE) -> None:
    """Write a private text file, and make an existing one private."""
    with open(path, "w", encoding="utf-8", opener=for_owner_alone(mode)) as file:
        os.fchmod(file.fileno(), mode)
        file.write(text)


DRAFT = ".part"


def write_whole(path: Path, content: bytes, mode: int = 0o666) -> str:
    """Write a file by `replacing`, and return its sha256."""
    with replacing(path, mode) as file:
        file.write(content)
    return hashlib.sha256(content).hexdigest()


@contextmanager
def replacing(path: Path, mode: int = 0o666) -> Iterator[IO[bytes]]:
    """Write a file atomically (temporary name, fsync, rename, fsync of the folder).

    ``mode``: permissions of the file before the umask; in a private folder, those of other users
    are removed. Use 0o600 for a secret. Raises StorageError if the disk is full or read-only; an
    earlier file of that name is kept.
    """
    draft = path.with_name(f"{path.name}.{os.getpid()}{DRAFT}")
    with writing(path):
        make_folder(path.parent)
        mode = rights_in(path.parent, mode)
        draft.unlink(missing_ok=True)
        try:
            # "x": does not follow a link that another user creates meanwhile
            with open(draft, "xb", opener=for_owner_alone(mode)) as file:
                yield file
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


def writing(path: Path) -> AbstractContextManager[None]:
    """Raise UnwritableFileError if a block fails because of a full or read-only disk."""
    return explain_errors(
        f"{path} cannot be written (",
        after="): free some space, make the folder writable, or choose another folder; earlier "
        "results are unchanged",
        of=OSError,
        to=UnwritableFileError,
    )


def sweep(folder: Path, name: str = "*") -> None:
    """Remove the temporary files of a killed process; the caller has the lock of the folder."""
    for draft in folder.rglob(f"{name}{DRAFT}"):
        draft.unlink(missing_ok=True)


@contextmanager
def only_one(path: Path, wait: bool = True) -> Iterator[None]:
    """Lock a folder for one process; the lock ends with its process, also after a crash.

    Raises StorageError if another process has the lock and ``wait`` is off.
    """
    with writing(path):
        make_folder(path.parent)
        # does not create a file through a link of another user
        how = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
        file = os.open(path, how, rights_in(path.parent, 0o666))
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
        raise StorageError(
            f"another process uses {path.parent}: wait until it ends, or choose "
            "another folder"
        ) from error


def write_json(path: Path, tree: Any) -> None:
    """Write a JSON value, indented; raise StorageError if the disk is full or read-only."""
    write_whole(path, (json.dumps(tree, indent=1) + "\n").encode())


def write_json_lines(path: Path, rows: Sequence[Mapping[str, object]]) -> None:
    """Write one JSON object per line."""
    lines = [json.dumps(row) + "\n" for row in rows]
    write_whole(path, "".join(lines).encode())


def save_tree(path: Path, tree: Any, mode: int = 0o666) -> str:
    """Write tensors and plain values as a safetensors checkpoint; return the file's sha256."""
    from fallow.storage.packing import pack  # loads PyTorch, which help does not need

    return write_whole(path, pack({"tree": tree, "digest": digest_of(tree)}), mode)


def load_tree(path: Path, folder: Path, sha256: str | None = None) -> Any:
    """Read a checkpoint; raise StorageError if it differs from the written one.

    ``folder``: folder of the run, named in the message about a damaged file.
    """
    from fallow.storage.packing import unpack

    way_out = f"delete the folder {folder} and run again with --resume (coordinate start: without)"
    with explain_errors(
        f"checkpoint {path} cannot be read (",
        after=f"): {way_out}",
        of=OSError,
        to=StorageError,
    ):
        content = path.read_bytes()
    if sha256 is not None and hashlib.sha256(content).hexdigest() != sha256:
        raise StorageError(
            f"checkpoint {path} is damaged (it is not the file named in the event "
            f"log): {way_out}"
        )
    try:
        saved = unpack(content)
        tree = saved["tree"]
        digest = saved["digest"]
    except (ValueError, KeyError, TypeError) as error:
        raise StorageError(f"checkpoint {path} is damaged: {way_out}") from error
    if digest_of(tree) != digest:
        raise StorageError(f"checkpoint {path} is damaged (wrong checksum): {way_out}")
    return tree


def raw(tensor: Tensor) -> memoryview:
    """Return the bytes of a tensor, in the order of its elements."""
    return tensor.detach().reshape(-1).contiguous().numpy().data


def digest_of(tree: Any) -> str:
    """Return a hash of a nested structure's values, which writing and reading do not change.

    >>> digest_of({"a": (1, 2.5)}) == digest_of({"a": [1, 2.5]})
    True
    """
    from torch import Tensor

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


MARK = 16  # bytes of a checksum


def checksum(*parts: Buffer) -> bytes:
    """Return a checksum of some parts in order against damage.

    It has no key and does not detect manipulation. Processors compute SHA-256 with
    instructions of their own, in a third of the time of BLAKE2.
    """
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.digest()[:MARK]


@contextmanager
def alone(lock: Path, otherwise: str) -> Iterator[None]:
    """Acquire a lock; raise StorageError with the message ``otherwise`` if another process has it."""
    with ExitStack() as stack:
        try:
            stack.enter_context(only_one(lock, wait=False))
        except StorageError as error:
            if not isinstance(error.__cause__, BlockingIOError):
                raise
            raise StorageError(otherwise) from error.__cause__
        yield


def is_held(lock: Path) -> bool:
    """Return whether a process has a lock now."""
    if not lock.exists():
        return False
    try:
        with only_one(lock, wait=False):
            return False
    except StorageError as error:
        return isinstance(error.__cause__, BlockingIOError)
