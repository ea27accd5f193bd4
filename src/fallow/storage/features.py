"""Features of examples, computed once and stored in a file that can be read in parts."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fallow.core.events import EventHandler, ignore_event
from fallow.storage.errors import DamagedFileError, StorageError
from fallow.storage.files import (
    FILE,
    checksum,
    make_folder,
    only_one,
    rights_in,
    write_whole,
    writing,
)

BLOCK = 8192  # examples that are encoded, written and verified together
SLOW_BLOCK = 512  # the same, for a network
FORMAT = 1  # of the journal of a file
DATA = "features.bin"
JOURNAL = "blocks.jsonl"
LOCK = "features.lock"
DIGITS = 32  # hexadecimal digits in a hash of examples
SLOW = 2.0  # seconds between progress reports
MEMORY = 2**28  # bytes of features that are kept in memory
MOST_KEPT = 4  # sets of examples whose features are kept in memory

Encode = Callable[[Tensor], Tensor]
"""Function from examples (b, *shape) to features (b, D) float32."""
Array = npt.NDArray[Any]


class Block(NamedTuple):
    """Complete block of a file: positions ``start`` to ``stop``, and the checksum of the features."""

    start: int
    stop: int
    mark: str


@final
@dataclass(frozen=True)
class FeatureFile:
    """Features (rows, width) in a file, read on demand.

    The file may be larger than memory. It is not memory-mapped, because the system would count all
    cached pages around the accessed rows, soon the whole file, as memory of the process.
    """

    path: Path
    rows: int
    width: int
    is_half: bool = False

    def __len__(self) -> int:
        return self.rows

    @property
    def dtype(self) -> np.dtype[Any]:
        if self.is_half:
            return np.dtype(np.float16)
        return np.dtype(np.float32)

    @property
    def row_bytes(self) -> int:
        return self.width * self.dtype.itemsize

    def take(self, at: Tensor) -> Tensor:
        """Return the features at these positions, (k,) -> (k, width) float32."""
        values = torch.empty(len(at), self.width)
        with open(self.path, "rb", buffering=0, opener=_open_no_link) as file:
            for start in range(0, len(at), BLOCK):
                some = at[start : start + BLOCK].numpy()
                kept = self._read(file.fileno(), some)
                values[start : start + BLOCK] = torch.from_numpy(kept)
        return values

    def _read(self, file: int, at: Array) -> Array:
        """Return features (k, width) float32, with one read for each consecutive range."""
        wanted, places = np.unique(at, return_inverse=True)
        breaks = (np.diff(wanted) != 1).nonzero()[0] + 1
        parts = []
        for run in np.split(wanted, breaks):
            size = len(run) * self.row_bytes
            content = os.pread(file, size, int(run[0]) * self.row_bytes)
            if len(content) != size:
                raise DamagedFileError(
                    f"{self.path} ends before example {int(run[-1])}: it was changed "
                    "while it was in use; delete it, and it is computed again"
                )
            parts.append(np.frombuffer(content, self.dtype).reshape(len(run), self.width))
        rows: Array = np.concatenate(parts).astype(np.float32)
        return rows[places]

    def whole(self) -> Tensor:
        """Return all features, (rows, width) float32."""
        return self.take(torch.arange(self.rows))


@final
@dataclass
class FeatureStore:
    """Storage of features: in memory if small, otherwise in files of ``folder``.

    ``folder``: None keeps all features in memory. ``always``: small features are also kept in a
    file, to be available after a restart. ``grows``: features of appended examples are appended to
    the existing file. ``memory``: largest number of bytes of features in memory. ``notify``: receives
    the progress of computations that take more than two seconds.
    """

    folder: Path | None = None
    always: bool = False
    grows: bool = False
    memory: int = MEMORY
    notify: EventHandler = ignore_event
    _kept: OrderedDict[str, Tensor] = field(default_factory=OrderedDict, repr=False)
    _files: dict[str, FeatureFile] = field(default_factory=dict, repr=False)

    def features(
        self,
        key: str,
        x: Tensor,
        width: int,
        encode: Encode,
        is_half: bool = False,
        is_slow: bool = False,
    ) -> Tensor | FeatureFile:
        """Return the features of examples x (n, *shape), as a tensor (n, width) if small.

        ``key``: hash of the encoder. The name of the file consists of it and the hash of the
        examples. ``is_slow``: small features are also kept in a file, so that processes and a
        resumed study share them, and progress is reported more often.
        """
        numbers = len(x) * width
        is_large = 4 * numbers > self.memory
        block = SLOW_BLOCK if is_slow else BLOCK
        if self.folder is None or not (is_large or self.always or is_slow):
            return self._in_memory(key, x, encode, block)
        name = f"{key}-{digest_of_rows(x)}"
        if name in self._kept:
            return self._kept[name]
        if name in self._files:  # verified when this process opened it
            return self._files[name]
        kept = _Keeping(
            self.folder, key, x, width, encode, is_half, self.notify, self.grows, block
        )
        with only_one(self.folder / LOCK):
            file = kept.file(name)
        if is_large:
            self._files[name] = file
            return file
        return self._remember(name, file.whole())

    def _in_memory(self, key: str, x: Tensor, encode: Encode, block: int) -> Tensor:
        name = f"{key}-{digest_of_rows(x)}"
        if name in self._kept:
            self._kept.move_to_end(name)
            return self._kept[name]
        telling = ByteProgress(len(x), self.notify)
        parts = []
        for start in range(0, len(x), block):
            parts.append(encode(x[start : start + block]))
            telling.done(min(start + block, len(x)))
        return self._remember(name, torch.cat(parts))

    def _remember(self, name: str, features: Tensor) -> Tensor:
        self._kept[name] = features
        while len(self._kept) > MOST_KEPT:
            self._kept.popitem(last=False)
        return features


@dataclass
class ByteProgress:
    """Progress reports of an encoding that takes more than `SLOW` seconds."""

    rows: int
    notify: EventHandler
    begun: float = field(default_factory=time.monotonic)
    reported: float = 0.0

    def done(self, rows: int) -> None:
        now = time.monotonic()
        is_due = now - self.begun > SLOW and now - self.reported > SLOW
        is_last = rows == self.rows and self.reported > 0
        if is_due or is_last:
            self.reported = now
            self.notify({"event": "encoding", "done": rows, "rows": self.rows})


def digest_of_rows(x: Tensor) -> str:
    """Return a hash of the examples, their order and their shape, in 32 hexadecimal digits."""
    h = _begin_digest(x)
    for start in range(0, len(x), BLOCK):
        h.update(_bytes_of(x[start : start + BLOCK]))
    return h.hexdigest()


def _begin_digest(x: Tensor) -> hashlib.blake2b:
    h = hashlib.blake2b(digest_size=DIGITS // 2)
    h.update(repr((str(x.dtype), tuple(x.shape[1:]))).encode())
    return h


def _bytes_of(x: Tensor) -> bytes:
    return x.contiguous().numpy().tobytes()


@final
@dataclass(frozen=True)
class _Keeping:
    """Creation of one file: a folder with the features and a journal of complete blocks.

    After a killed process, the next one keeps the complete blocks.
    """

    folder: Path
    key: str
    x: Tensor
    width: int
    encode: Encode
    is_half: bool
    notify: EventHandler
    grows: bool
    block: int

    @property
    def header(self) -> dict[str, object]:
        """Return the first line of the journal, which describes the features in the file."""
        kind = "float32"
        if self.is_half:
            kind = "float16"
        return {"format": FORMAT, "encoder": self.key, "width": self.width, "type": kind}

    def file(self, name: str) -> FeatureFile:
        """Return the complete file; missing or damaged blocks are computed."""
        entry = self.folder / name
        for path in (self.folder, entry, entry / DATA, entry / JOURNAL):
            check_own(path)
        with writing(entry):
            if not entry.exists():
                self._begin(entry)
            file = FeatureFile(entry / DATA, len(self.x), self.width, self.is_half)
            blocks = list(self._whole_blocks(entry, file))
            self._write_journal(entry / JOURNAL, blocks)
            self._go_on(entry, file, begin=_end_of(blocks))
        return file

    def _begin(self, path: Path) -> None:
        """Create the folder, or rename that of the first examples if others were appended."""
        earlier = None
        if self.grows:
            earlier = self._find_earlier()
        if earlier is None:
            make_folder(path)
        else:
            os.replace(earlier, path)

    def _find_earlier(self) -> Path | None:
        """Return the folder with features of the largest number of first examples, or None."""
        sizes = dict(self._sizes())
        # hash of the first n examples; several folders may have the same n
        digests: dict[int, str] = {}
        earlier = []
        for path, n in sizes.items():
            if n >= len(self.x):
                continue
            if n not in digests:
                digests[n] = digest_of_rows(self.x[:n])
            if path.name.rpartition("-")[2] == digests[n]:
                earlier.append((n, path))
        if not earlier:
            return None
        _, path = max(earlier)
        return path

    def _sizes(self) -> Iterator[tuple[Path, int]]:
        """Yield the folders of the same encoder and their number of examples."""
        for path in sorted(self.folder.glob(f"{self.key}-*")):
            blocks = self._read_journal(path / JOURNAL)
            if blocks:
                yield path, blocks[-1].stop

    # -- the journal ------------------------------------------------------------------------

    def _read_journal(self, path: Path) -> list[Block]:
        """Return the recorded blocks from the first example on; none for an invalid journal."""
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
            if not lines or json.loads(lines[0]) != self.header:
                return []
        except (OSError, ValueError):
            return []
        blocks: list[Block] = []
        for line in lines[1:]:
            block = _block_of(line)
            if block is None or block.start != _end_of(blocks):
                break
            blocks.append(block)
        return blocks

    def _write_journal(self, path: Path, blocks: Sequence[Block]) -> None:
        """Rewrite the journal if its content differs: its last line may be incomplete."""
        lines = [json.dumps(self.header)]
        lines += [json.dumps(list(block)) for block in blocks]
        content = ("\n".join(lines) + "\n").encode()
        if not path.exists() or path.read_bytes() != content:
            write_whole(path, content)

    def _whole_blocks(self, path: Path, file: FeatureFile) -> Iterator[Block]:
        """Yield the recorded blocks whose features are undamaged, up to the first damaged one."""
        for block in self._read_journal(path / JOURNAL):
            if block.stop > len(self.x):
                return
            try:
                with open(path / DATA, "rb") as data:
                    data.seek(block.start * file.row_bytes)
                    content = data.read((block.stop - block.start) * file.row_bytes)
            except FileNotFoundError:
                return
            if checksum(content).hex() != block.mark:
                return
            yield block

    # -- the features -----------------------------------------------------------------------

    def _go_on(self, path: Path, file: FeatureFile, begin: int) -> None:
        """Encode the missing examples block by block; a block is recorded once it is on the disk."""
        if begin == len(self.x) and file.path.exists():
            return
        telling = ByteProgress(len(self.x), self.notify)
        journal_path = path / JOURNAL
        with (
            _open_for_writing(file.path) as data,
            _open_for_writing(journal_path) as journal,
        ):
            os.ftruncate(data, begin * file.row_bytes)
            os.lseek(journal, 0, os.SEEK_END)
            for start in range(begin, len(self.x), self.block):
                some = self.x[start : start + self.block]
                content = self.encode(some).numpy().astype(file.dtype).tobytes()
                _write_at(data, content, start * file.row_bytes)
                os.fsync(data)
                block = Block(start, start + len(some), checksum(content).hex())
                os.write(journal, f"{json.dumps(list(block))}\n".encode())
                os.fsync(journal)
                telling.done(block.stop)


def check_own(path: Path) -> None:
    """Raise StorageError for a link or a file of another owner, who could determine the features.

    Missing files are created later.
    """
    try:
        details = path.lstat()
    except OSError:
        return  # missing or inaccessible: reported on opening
    why = ""
    if stat.S_ISLNK(details.st_mode):
        why = "is a link"
    elif hasattr(os, "geteuid") and details.st_uid != os.geteuid():
        why = "belongs to another owner"
    if why:
        raise StorageError(
            f"{path} (features of examples) {why}, so it is not used: find out who "
            "created it, delete it, and start again to compute it"
        )


def _block_of(line: str) -> Block | None:
    """Return the block of a line, or None for an incomplete line."""
    try:
        start, stop, mark = json.loads(line)
    except (ValueError, TypeError):
        return None
    is_block = type(start) is int and type(stop) is int and isinstance(mark, str)
    if not is_block or not 0 <= start < stop:
        return None
    return Block(start, stop, mark)


def _end_of(blocks: Sequence[Block]) -> int:
    """Return the end of consecutive blocks from the first example on."""
    if not blocks:
        return 0
    return blocks[-1].stop


def _open_no_link(name: str, flags: int) -> int:
    """Opener for `open` that does not follow links."""
    return os.open(name, flags | getattr(os, "O_NOFOLLOW", 0))


@contextmanager
def _open_for_writing(path: Path) -> Iterator[int]:
    """Open a file for writing, create it if missing, and do not follow links."""
    how = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
    file = os.open(path, how, rights_in(path.parent, FILE))
    try:
        yield file
    finally:
        os.close(file)


def _write_at(file: int, content: bytes, at: int) -> None:
    """Write all bytes; one system call may write fewer."""
    left = memoryview(content)
    while left:
        written = os.pwrite(file, left, at)
        left = left[written:]
        at += written
