"""Features of rows, computed once and kept in a file from which some are read at a time."""

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

from fallow.core.events import Say, stay_silent
from fallow.storage.checksums import checksum
from fallow.storage.errors import Damaged, Failed
from fallow.storage.files import only_one, unwritable, write_whole
from fallow.storage.private import FILE, make_folder, rights_in

BLOCK = 8192  # rows that are encoded, written and checked together
FORMAT = 1  # of the journal of a file
DATA = "features.bin"
JOURNAL = "blocks.jsonl"
LOCK = "features.lock"
DIGITS = 32  # of a digest of rows, hexadecimal
SLOW = 2.0  # seconds after which it is said how far the work is
MEMORY = 2**28  # bytes of features that are kept in memory
MOST_KEPT = 4  # sets of rows whose features are kept in memory

Encode = Callable[[Tensor], Tensor]
"""Rows (b, *shape) -> features (b, D) float32."""
Array = npt.NDArray[Any]


class Block(NamedTuple):
    """A whole block of a file: rows ``start`` to ``stop``, and the checksum of their features."""

    start: int
    stop: int
    mark: str


@final
@dataclass(frozen=True)
class FeatureFile:
    """Features (rows, width) in a file, of which those that are asked for are read.

    It may be larger than memory.  Rows are read and not mapped: of a mapped file the system counts
    all that it has at hand around the rows that were touched, which soon is the whole file.
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
        """The features of rows by their positions, (k,) -> (k, width) float32."""
        values = torch.empty(len(at), self.width)
        with open(self.path, "rb", buffering=0, opener=_open_no_link) as file:
            for start in range(0, len(at), BLOCK):
                some = at[start : start + BLOCK].numpy()
                kept = self._read(file.fileno(), some)
                values[start : start + BLOCK] = torch.from_numpy(kept)
        return values

    def _read(self, file: int, at: Array) -> Array:
        """Features (k, width) float32, by one read for all rows that stand behind one another."""
        wanted, places = np.unique(at, return_inverse=True)
        breaks = (np.diff(wanted) != 1).nonzero()[0] + 1
        parts = []
        for run in np.split(wanted, breaks):
            size = len(run) * self.row_bytes
            content = os.pread(file, size, int(run[0]) * self.row_bytes)
            if len(content) != size:
                raise Damaged(
                    f"{self.path} ends before row {int(run[-1])}: it was changed while it was in "
                    "use; delete it, it is made again"
                )
            parts.append(np.frombuffer(content, self.dtype).reshape(len(run), self.width))
        rows: Array = np.concatenate(parts).astype(np.float32)
        return rows[places]

    def whole(self) -> Tensor:
        """All features, (rows, width) float32."""
        return self.take(torch.arange(self.rows))


@final
@dataclass
class FeatureStore:
    """Where features are kept: in memory where they are few, in files of ``folder`` else.

    folder: None keeps all in memory.  always: few features are kept in a file, too, so that they
    are there after a restart.  grows: rows may be added behind those of a file, whose features are
    then added to it.  memory: bytes above which features are not kept in memory.  say: is told of
    the progress of what takes over two seconds.
    """

    folder: Path | None = None
    always: bool = False
    grows: bool = False
    memory: int = MEMORY
    say: Say = stay_silent
    _kept: OrderedDict[str, Tensor] = field(default_factory=OrderedDict, repr=False)
    _files: dict[str, FeatureFile] = field(default_factory=dict, repr=False)

    def features(
        self, key: str, x: Tensor, width: int, encode: Encode, is_half: bool = False
    ) -> Tensor | FeatureFile:
        """The features of rows x (n, *shape): as a tensor (n, width) where they are few.

        key: the digest of the encoder, of which and of the rows the file has its name.
        """
        numbers = len(x) * width
        is_large = 4 * numbers > self.memory
        if self.folder is None or not (is_large or self.always):
            return self._in_memory(key, x, encode)
        name = f"{key}-{digest_of_rows(x)}"
        if name in self._kept:
            return self._kept[name]
        if name in self._files:  # it was looked at when this process opened it
            return self._files[name]
        kept = _Keeping(self.folder, key, x, width, encode, is_half, self.say, self.grows)
        with only_one(self.folder / LOCK):
            file = kept.file(name)
        if is_large:
            self._files[name] = file
            return file
        return self._remember(name, file.whole())

    def _in_memory(self, key: str, x: Tensor, encode: Encode) -> Tensor:
        name = f"{key}-{digest_of_rows(x)}"
        if name in self._kept:
            self._kept.move_to_end(name)
            return self._kept[name]
        if len(x) == 0:
            return self._remember(name, encode(x))
        telling = Telling(len(x), self.say)
        parts = []
        for start in range(0, len(x), BLOCK):
            parts.append(encode(x[start : start + BLOCK]))
            telling.done(min(start + BLOCK, len(x)))
        return self._remember(name, torch.cat(parts))

    def _remember(self, name: str, features: Tensor) -> Tensor:
        self._kept[name] = features
        while len(self._kept) > MOST_KEPT:
            self._kept.popitem(last=False)
        return features


@dataclass
class Telling:
    """Says how far the encoding of rows is, once it takes a while."""

    rows: int
    say: Say
    begun: float = field(default_factory=time.monotonic)
    reported: float = 0.0

    def done(self, rows: int) -> None:
        now = time.monotonic()
        is_due = now - self.begun > SLOW and now - self.reported > SLOW
        is_last = rows == self.rows and self.reported > 0
        if is_due or is_last:
            self.reported = now
            self.say({"event": "encoding", "done": rows, "rows": self.rows})


def digest_of_rows(x: Tensor) -> str:
    """32 hexadecimal digits of rows, their order and their shape."""
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
    """The making of one file: a folder of its own, with the features and a journal of its whole
    blocks.  A process that is killed leaves whole blocks, which the next one does not make anew.
    """

    folder: Path
    key: str
    x: Tensor
    width: int
    encode: Encode
    is_half: bool
    say: Say
    grows: bool

    @property
    def header(self) -> dict[str, object]:
        """The first line of the journal: what the features in the file are."""
        kind = "float32"
        if self.is_half:
            kind = "float16"
        return {"format": FORMAT, "encoder": self.key, "width": self.width, "type": kind}

    def file(self, name: str) -> FeatureFile:
        """The file, complete; what is missing or damaged is made."""
        entry = self.folder / name
        for path in (self.folder, entry, entry / DATA, entry / JOURNAL):
            check_own(path)
        try:
            if not entry.exists():
                self._begin(entry)
            file = FeatureFile(entry / DATA, len(self.x), self.width, self.is_half)
            blocks = list(self._whole_blocks(entry, file))
            self._write_journal(entry / JOURNAL, blocks)
            self._go_on(entry, file, begin=_end_of(blocks))
        except OSError as error:
            raise unwritable(entry, error) from error
        return file

    def _begin(self, path: Path) -> None:
        """A new folder; where rows were added behind others, the folder of these."""
        earlier = None
        if self.grows:
            earlier = self._find_earlier()
        if earlier is None:
            make_folder(path)
        else:
            os.replace(earlier, path)

    def _find_earlier(self) -> Path | None:
        """The folder with the features of the most of the first rows; None where there is none."""
        sizes = dict(self._sizes())
        digests: dict[
            int, str
        ] = {}  # of so many first rows; several folders may have as many
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
        """Folders of the same encoder, and of how many rows each has features."""
        for path in sorted(self.folder.glob(f"{self.key}-*")):
            blocks = self._read_journal(path / JOURNAL)
            if blocks:
                yield path, blocks[-1].stop

    # -- the journal ------------------------------------------------------------------------

    def _read_journal(self, path: Path) -> list[Block]:
        """The blocks that are noted, from the first row on; none where the journal is no such."""
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
        """The journal anew where it says anything else: its last line may be torn."""
        lines = [json.dumps(self.header)]
        lines += [json.dumps(list(block)) for block in blocks]
        content = ("\n".join(lines) + "\n").encode()
        if not path.exists() or path.read_bytes() != content:
            write_whole(path, content)

    def _whole_blocks(self, path: Path, file: FeatureFile) -> Iterator[Block]:
        """The noted blocks whose features are as they were written, up to the first that is not."""
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
        """Encode what is missing, block by block; a block counts once it is on the disk and
        noted."""
        if begin == len(self.x) and file.path.exists():
            return
        telling = Telling(len(self.x), self.say)
        journal_path = path / JOURNAL
        with (
            _open_for_writing(file.path) as data,
            _open_for_writing(journal_path) as journal,
        ):
            os.ftruncate(data, begin * file.row_bytes)
            os.lseek(journal, 0, os.SEEK_END)
            for start in range(begin, len(self.x), BLOCK):
                some = self.x[start : start + BLOCK]
                z = self.encode(some).numpy().astype(file.dtype)
                if z.shape != (len(some), self.width):
                    raise ValueError(
                        f"{len(some)} rows have features of shape {z.shape}, and {self.width} "
                        "for each were promised"
                    )
                content = z.tobytes()
                _write_at(data, content, start * file.row_bytes)
                os.fsync(data)
                block = Block(start, start + len(some), checksum(content).hex())
                os.write(journal, f"{json.dumps(list(block))}\n".encode())
                os.fsync(journal)
                telling.done(block.stop)


def check_own(path: Path) -> None:
    """Raise Failed for a link and for what belongs to another owner: whoever put it there decides
    what features are read, and where they are written.  What is not there is made."""
    try:
        details = path.lstat()
    except OSError:
        return  # missing, or nothing that can be looked at: said where it is opened
    why = ""
    if stat.S_ISLNK(details.st_mode):
        why = "is a link"
    elif hasattr(os, "geteuid") and details.st_uid != os.geteuid():
        why = "belongs to another owner"
    if why:
        raise Failed(
            f"{path}, of the features of rows, {why}: nothing is read from it or written to it; "
            "look who put it there, delete it, and start again: it is made anew"
        )


def _block_of(line: str) -> Block | None:
    """The block that a line notes; None where it is no whole line."""
    try:
        start, stop, mark = json.loads(line)
    except (ValueError, TypeError):
        return None
    is_block = type(start) is int and type(stop) is int and isinstance(mark, str)
    if not is_block or not 0 <= start < stop:
        return None
    return Block(start, stop, mark)


def _end_of(blocks: Sequence[Block]) -> int:
    """Up to which row the blocks go that stand behind one another from the first row on."""
    if not blocks:
        return 0
    return blocks[-1].stop


def _open_no_link(name: str, flags: int) -> int:
    """An opener for `open` that follows no link."""
    return os.open(name, flags | getattr(os, "O_NOFOLLOW", 0))


@contextmanager
def _open_for_writing(path: Path) -> Iterator[int]:
    """A file to write into, made where it is missing; a link is not followed."""
    how = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
    file = os.open(path, how, rights_in(path.parent, FILE))
    try:
        yield file
    finally:
        os.close(file)


def _write_at(file: int, content: bytes, at: int) -> None:
    """Write all of it; the system may take less at a time."""
    left = memoryview(content)
    while left:
        written = os.pwrite(file, left, at)
        left = left[written:]
        at += written
