"""Download of published files: resumed, verified, and never executed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from http.client import HTTPException, HTTPMessage
from pathlib import Path
from typing import IO, Any
from urllib.error import HTTPError
from urllib.request import HTTPRedirectHandler, Request, build_opener

from fallow.catalog.entry import CatalogEntry, PublishedFile
from fallow.catalog.folder import data_folder
from fallow.catalog.named import find_entry, list_entries
from fallow.core.wording import size

TIMEOUT = 60.0
"""Maximum number of seconds without a response."""
MOST_BYTES = 8 * 2**30
"""Maximum size of a download whose size is not known."""
CHUNK = 1 << 20
WEB = ("https://", "http://")
ReportProgress = Callable[[str, int, int | None], None]
"""Receives the name of a file, the number of downloaded bytes, and the size if it is known."""


def ignore_progress(name: str, done: int, total: int | None) -> None:
    """Report nothing."""


def fetch(
    name: str,
    data_dir: str | Path | None = None,
    notify: ReportProgress = ignore_progress,
) -> list[Path]:
    """Download the files of a named dataset to the data folder, and return their paths.

    Parameters
    ----------
    name : str
        Name of the dataset.
    data_dir : str or Path, optional
        Data folder. Default: the environment variable ``FALLOW_DATA``.
    notify : callable
        Receives the name of a file, the number of its downloaded bytes, and its size or None.

    Raises
    ------
    ValueError
        If a file has no stable address, there is no data folder, or a checksum differs.
    OSError
        If a download fails. The next call continues it if the checksum of the file is known.
    """
    entry = find_entry(name)
    if not entry.can_fetch:
        reason = f"'fallow datasets {name}' shows where its files come from"
        if entry.source == "bundled":
            reason = "it comes with an installed package"
        known = ", ".join(other.name for other in list_entries() if other.can_fetch)
        raise ValueError(f"{name} cannot be downloaded: {reason}; available: {known}")
    folder = data_folder(data_dir)
    if folder is None:
        raise ValueError("no data folder is set; set --data-dir or FALLOW_DATA to one")
    return [_fetch_file(entry, file, folder, notify) for file in entry.files if file.url]


def _fetch_file(
    entry: CatalogEntry, file: PublishedFile, folder: Path, notify: ReportProgress
) -> Path:
    """Download a file unless it is there, and return its path."""
    path = folder / file.name
    if path.is_file():
        _check_present(path, file)
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.part")
    if not file.checksum:
        part.unlink(missing_ok=True)  # without a checksum, two halves may not fit
    try:
        _download(file, part, notify)
    except (OSError, HTTPException) as error:
        if not file.checksum:
            part.unlink(missing_ok=True)
        raise OSError(
            f"{file.name} could not be downloaded ({error}); run the command again, or get "
            f"the file from {entry.page or file.url} and put it in {folder} under that name"
        ) from error
    _check_download(part, file)
    if not file.checksum:
        digest = compute_checksum(part, "sha256")
        record = _record(path)
        record.write_text(f"{digest}  {path.name}\n", encoding="utf-8")
    return part.replace(path)


def _download(file: PublishedFile, part: Path, notify: ReportProgress) -> None:
    """Append the content of a file to the part of it that is there."""
    begin = part.stat().st_size if part.exists() else 0
    if file.size is not None and begin >= file.size:
        return
    headers = {"User-Agent": "fallow"}
    if begin:
        headers["Range"] = f"bytes={begin}-"
    opener = build_opener(SafeRedirects())
    address = _find_address(file, opener)
    with opener.open(Request(address, headers=headers), timeout=TIMEOUT) as reply:
        is_rest = getattr(reply, "status", None) == 206
        if begin and not is_rest:
            begin = 0
        length = reply.headers.get("Content-Length")
        total = file.size
        if total is None and length is not None:
            total = begin + int(length)
        with part.open("ab" if begin else "wb") as written:
            done = _copy(reply, written, file, begin, total, notify)
    if total is not None and done != total:  # an interrupted connection raises no error
        raise OSError(f"the connection was interrupted after {done} of {total} bytes")


def _copy(
    reply: IO[bytes],
    written: IO[bytes],
    file: PublishedFile,
    done: int,
    total: int | None,
    notify: ReportProgress,
) -> int:
    """Copy a response in chunks, and return the number of bytes of the file so far."""
    limit = MOST_BYTES if total is None else total
    while chunk := reply.read(CHUNK):
        done += len(chunk)
        if done > limit:
            raise OSError(f"the response has more than {size(limit)}, the size of the file")
        written.write(chunk)
        notify(file.name, done, total)
    return done


class SafeRedirects(HTTPRedirectHandler):
    """Follow redirects to https:// only, so that no other party can replace a file."""

    def redirect_request(
        self,
        req: Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: HTTPMessage,
        newurl: str,
    ) -> Request | None:
        if not newurl.startswith("https://"):
            raise HTTPError(
                req.full_url,
                code,
                f"redirected to {newurl}, which is not an https:// address",
                headers,
                fp,
            )
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _find_address(file: PublishedFile, opener: Any) -> str:
    """Return the address of a file, which OpenML has in a description."""
    if "/api/v1/json/" not in file.url:
        return file.url
    with opener.open(file.url, timeout=TIMEOUT) as reply:
        try:
            description = json.loads(reply.read(CHUNK))["data_set_description"]
            address = str(description["url"])
        except (ValueError, KeyError, TypeError) as error:
            raise OSError(f"the response of {file.url} contains no file") from error
    if file.url.startswith(WEB) and not address.startswith("https://"):
        raise OSError(
            f"the response of {file.url} contains {address}, which is not an https:// address"
        )
    return address


def _record(path: Path) -> Path:
    """Return the file with the SHA-256 of a download, in the format of ``sha256sum``."""
    return path.with_name(f"{path.name}.sha256")


def compute_checksum(path: Path, algorithm: str) -> str:
    """Return the checksum of a file in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, algorithm).hexdigest()


def _check_download(part: Path, file: PublishedFile) -> None:
    """Remove a download whose checksum differs from the published one, and raise ValueError."""
    algorithm, _, expected = file.checksum.partition(":")
    if not expected:
        return
    actual = compute_checksum(part, algorithm)
    if actual != expected:
        part.unlink()
        raise ValueError(
            f"{file.name} from {file.url} has the {algorithm} {actual}, not {expected}, so it "
            "is not the published file and was removed; run the command again"
        )


def _check_present(path: Path, file: PublishedFile) -> None:
    """Raise ValueError if a file is not the published one, or changed since its download."""
    algorithm, _, expected = file.checksum.partition(":")
    source = "the published one"
    if not expected:
        record = _record(path)
        if not record.is_file():  # the user put it there
            return
        algorithm = "sha256"
        expected = record.read_text(encoding="utf-8").partition(" ")[0]
        source = f"the one in {record.name}"
    if compute_checksum(path, algorithm) != expected:
        raise ValueError(
            f"{path} is not the downloaded file: its {algorithm} differs from {source}; remove "
            "it and download it again"
        )
