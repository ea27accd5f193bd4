"""Downloading the published file of a named data set: bytes to a folder, nothing is run."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from http.client import HTTPException
from pathlib import Path
from urllib.request import urlopen

from fallow.core.terms import nearest
from fallow.data.catalog.named import CATALOG
from fallow.data.catalog.sources import TableSource

TIMEOUT = 60.0  # seconds without an answer
WEB = ("https://", "http://")


def fetch(name: str, data_dir: str | Path | None = None) -> Path:
    """Download the data set's file into ``data_dir`` (or what FALLOW_DATA names); its path.

    A file that is there is kept.  The sha256 of a download is written beside it, in the form of
    ``sha256sum``, and a later call checks it.  Raises ValueError for a data set without a published
    file, for no folder and for a file that has changed, OSError when the download fails.
    """
    source = _source(name)
    folder = data_dir or os.environ.get("FALLOW_DATA")
    if not folder:
        raise ValueError("no data folder is given; set --data-dir or FALLOW_DATA to one")
    path = Path(folder) / source.file
    if path.is_file():
        _check(path)
        return path
    part = path.with_name(f"{path.name}.part")
    try:
        with urlopen(_location(source), timeout=TIMEOUT) as answer, part.open("wb") as file:
            shutil.copyfileobj(answer, file)
            came = file.tell()
            promised = int(answer.headers.get("Content-Length") or came)
        if came != promised:  # a connection that breaks off raises nothing
            raise OSError(f"it broke off after {came} of {promised} bytes")
    except (OSError, HTTPException) as error:
        part.unlink(missing_ok=True)
        raise OSError(
            f"{source.file} could not be downloaded ({error}); get it from {source.page} and put "
            f"it in {folder} under that name"
        ) from error
    _record(path).write_text(f"{_sha256(part)}  {path.name}\n", encoding="utf-8")
    return part.replace(path)


def _source(name: str) -> TableSource:
    if name not in CATALOG:
        raise ValueError(f"{name!r} is not a known data set{nearest(name, list(CATALOG))}")
    entry = CATALOG[name]
    if entry.published is None:
        way = "put its files there by hand"
        if entry.source == "bundled":
            way = "it comes with Fallow"
        known = ", ".join(e.name for e in CATALOG.values() if e.published)
        raise ValueError(f"{name} cannot be fetched: {way}; what can be: {known}")
    return entry.published


def _location(source: TableSource) -> str:
    """Where the file is; OpenML says it in a description."""
    if "/api/v1/json/" not in source.url:
        return source.url
    with urlopen(source.url, timeout=TIMEOUT) as answer:
        try:
            result = str(json.load(answer)["data_set_description"]["url"])
        except (ValueError, KeyError, TypeError) as error:
            raise OSError(f"the answer of {source.url} names no file") from error
    if source.url.startswith(WEB) and not result.startswith(WEB):
        raise OSError(
            f"the answer of {source.url} names {result}, which is no address on the web"
        )
    return result


def _record(path: Path) -> Path:
    return path.with_name(f"{path.name}.sha256")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _check(path: Path) -> None:
    """Raise ValueError where the file has another checksum than it was downloaded with."""
    record = _record(path)
    if not record.is_file():  # it was put there by hand
        return
    recorded = record.read_text(encoding="utf-8").split()[:1]
    if recorded != [_sha256(path)]:
        raise ValueError(
            f"{path} is not what was downloaded: its sha256 is not the one in {record.name}; "
            "remove both and fetch it again"
        )
