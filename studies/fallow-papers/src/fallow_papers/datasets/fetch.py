"""Download of the file of a published table; no code is run."""

from __future__ import annotations

import hashlib
import json
import shutil
from http.client import HTTPException
from pathlib import Path
from urllib.request import urlopen

from fallow_papers.datasets.sources import TableSource

TIMEOUT = 60.0  # seconds without a response
WEB = ("https://", "http://")


def fetch_file(source: TableSource, folder: Path) -> Path:
    """Download the file of a published table to a folder, and return its path.

    An existing file is kept.  The SHA-256 of a download is written to a second file, in the
    format of ``sha256sum``, and checked by later calls.  Raises ValueError for a changed
    file, and OSError if the download fails.
    """
    path = folder / source.file
    if path.is_file():
        _check(path)
        return path
    part = path.with_name(f"{path.name}.part")
    try:
        with urlopen(_location(source), timeout=TIMEOUT) as reply, part.open("wb") as file:
            shutil.copyfileobj(reply, file)
            came = file.tell()
            promised = int(reply.headers.get("Content-Length") or came)
        if came != promised:  # an interrupted connection raises no error
            raise OSError(
                f"the connection was interrupted after {came} of {promised} bytes"
            )
    except (OSError, HTTPException) as error:
        part.unlink(missing_ok=True)
        raise OSError(
            f"{source.file} could not be downloaded ({error}); get it from {source.page} and put "
            f"it in {folder} under that name"
        ) from error
    _record(path).write_text(f"{_sha256(part)}  {path.name}\n", encoding="utf-8")
    return part.replace(path)


def _location(source: TableSource) -> str:
    """Return the URL of the file, which OpenML has in a description."""
    if "/api/v1/json/" not in source.url:
        return source.url
    with urlopen(source.url, timeout=TIMEOUT) as reply:
        try:
            result = str(json.load(reply)["data_set_description"]["url"])
        except (ValueError, KeyError, TypeError) as error:
            raise OSError(f"the response of {source.url} contains no file") from error
    if source.url.startswith(WEB) and not result.startswith("https://"):
        raise OSError(
            f"the response of {source.url} contains {result}, which is not an https:// address"
        )
    return result


def _record(path: Path) -> Path:
    return path.with_name(f"{path.name}.sha256")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _check(path: Path) -> None:
    """Raise ValueError if the checksum of the file has changed since its download."""
    record = _record(path)
    if not record.is_file():  # the user put it there
        return
    recorded = record.read_text(encoding="utf-8").split()[:1]
    if recorded != [_sha256(path)]:
        raise ValueError(
            f"{path} has changed since its download: its sha256 differs from the one in "
            f"{record.name}; remove both and download it again"
        )
