"""Bounded reading of files from users and others, and the memory available for them."""

from __future__ import annotations

import json
import os
import re
import stat
import tomllib
from collections.abc import Mapping
from pathlib import Path

from fallow.core.refusal import explain_errors
from fallow.core.wording import size

SURROGATE = b"\xed"
"""First byte of half a surrogate pair, which `json.loads` accepts, and of some letters."""
ESCAPED = b"\\ud"
"""Start of the escape of half a surrogate pair."""
TEXT_LIMIT = 4 << 20
"""Maximum size in bytes of settings, a guideline, a certificate or another text that a user names."""
DOTTED_KEY = re.compile(r"""(?<![\w"'-])(?:[\w"'-]++[ \t]*+\.[ \t]*+){64}""")
"""A key with too many parts. Parsing time grows with the square of their number."""

MOST_BYTES = 2**30
"""Maximum size of a file that is read as a whole; the records of a long run take tens of MB."""

DEEPEST = 50  # maximum nesting of lists and tables
NESTED = "it has too many nested lists"


def read_regular(path: Path, limit: int = MOST_BYTES) -> bytes:
    """Return the content of a regular file.

    A link can lead anywhere, a pipe is unbounded, and a sparse file is larger than what was sent;
    none of them is read.  Raises ValueError with a message, and FileNotFoundError if there is no
    file.
    """
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0)
    check_no_link(path)
    regular = os.open(path, flags)
    if not stat.S_ISREG(os.fstat(regular).st_mode):
        os.close(regular)
        raise ValueError(f"{path} is not a file: ask its sender for the file itself")
    with open(regular, "rb") as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise ValueError(f"{path} is not read, because it has more than {limit:,} bytes")
    return content


def decode_text(content: bytes) -> str:
    """Return a text in UTF-8, with or without a byte order mark; ValueError for other bytes."""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError("it is not in UTF-8; save it in that encoding") from error


def read_named(path: Path, limit: int = TEXT_LIMIT) -> bytes:
    """Return the content of a file that the user named, which may be a link.

    Raises ValueError for a pipe, a device and a file of more than ``limit`` bytes, and OSError for a
    file that is missing or unreadable.
    """
    check_no_pipe(path)
    with path.open("rb") as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise ValueError(
            f"{path} has more than {limit >> 20} MiB, the limit for such a file; give a smaller one"
        )
    return content


def read_toml(path: Path) -> dict[str, object]:
    """Return the settings in a TOML file. Raises ValueError, naming the file, if it is invalid."""
    with explain_errors(f"{path} cannot be read: ", of=OSError):
        content = read_named(path)
    try:
        # editors on Windows start a file with a byte-order mark
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path} is not UTF-8, as TOML requires; save it with that encoding (byte "
            f"{error.start + 1:,} is invalid)"
        ) from error
    return parse_toml(text, path)


def parse_toml(text: str, path: Path) -> dict[str, object]:
    """Return the settings in the text of a TOML file. Raises ValueError, naming the file, if it is
    invalid."""
    if DOTTED_KEY.search(text):
        raise ValueError(
            f"{path} has a key of more than 64 parts; nest its settings less deeply"
        )
    try:
        return tomllib.loads(text)
    except ValueError as error:  # also an integer with thousands of digits
        raise ValueError(f"{path} is not valid TOML: {error}") from error
    except RecursionError as error:
        raise ValueError(
            f"{path} is not valid TOML: {NESTED}; nest its settings less deeply"
        ) from error


def check_no_pipe(path: Path) -> None:
    """Raise ValueError for a pipe or a device, from which reading may never end."""
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise ValueError(f"{path} is not a file but a pipe or a device; give a file")


def check_no_link(path: Path) -> None:
    """Raise ValueError for a link, because its target was not received."""
    if path.is_symlink():
        raise ValueError(f"{path} is a link: replace it by its target if you trust it")


def check_no_links_below(folder: Path) -> None:
    """Raise ValueError for a link in a folder or to it, which would redirect writes."""
    check_no_link(folder)
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            check_no_link(Path(parent, name))


def parse_json(content: bytes) -> object:
    """Parse a JSON value; raise ValueError for invalid or deeply nested JSON.

    Half of a surrogate pair is invalid too: a text with it can be neither printed nor written.
    """
    try:
        result: object = json.loads(content)
    except RecursionError as error:
        raise ValueError(NESTED) from error
    check_depth(result)
    if SURROGATE in content or ESCAPED in content.lower():
        try:
            json.dumps(result, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            raise ValueError("it has a text that is not valid Unicode") from error
    return result


def check_depth(value: object) -> None:
    """Raise ValueError for deeply nested lists, which would exceed the recursion limit."""
    if not is_shallow(value):
        raise ValueError(NESTED)


def is_shallow(value: object) -> bool:
    """Return whether lists and tables are nested at most `DEEPEST` times."""
    level = [value]
    for _ in range(DEEPEST):
        below: list[object] = []
        for item in level:
            if isinstance(item, Mapping):
                below += item.values()
            elif isinstance(item, list):
                below += item
        level = below
        if not level:
            return True
    return False


AVAILABLE = Path("/proc/meminfo")  # Linux
CONTAINER = Path("/sys/fs/cgroup/memory.max")  # a container with a limit
UNKNOWN = 2**34
"""Assumed available bytes if the system does not report them."""


def count_available_bytes() -> int:
    """Return the number of bytes that can be allocated.

    On Linux this is the available memory, elsewhere all memory of the machine; the limit of a
    container applies.
    """
    available_bytes = _read_available() or _count_physical() or UNKNOWN
    try:
        limit = int(CONTAINER.read_text())
    except (OSError, ValueError):  # no container, or no limit
        return available_bytes
    return min(available_bytes, limit)


class UnfitError(ValueError):
    """A file of the expected kind must not be read, for the reason in the message."""


def check_fits(name: str | Path, n_bytes: int, limit: int | None = None) -> None:
    """Raise UnfitError for a file of this unpacked size if it does not fit into memory.

    limit: maximum number of bytes; None: the available memory.
    """
    room = limit
    if room is None:
        room = count_available_bytes()
    if n_bytes <= room:
        return
    raise UnfitError(
        f"{name} unpacks to {size(n_bytes)}, but {size(room)} of memory are available; "
        "provide fewer examples, or use a machine with more memory"
    )


def _read_available() -> int:
    """Return the available memory of Linux; 0 if unknown."""
    try:
        lines = AVAILABLE.read_text().splitlines()
    except OSError:
        return 0
    for line in lines:
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 0


def _count_physical() -> int:
    """Return the memory of the machine; 0 if unknown."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return 0
