"""What the folders of sites and of coordinators have in common: where one can be made, and how."""

from __future__ import annotations

import ssl
from contextlib import suppress
from pathlib import Path

from fallow.storage.files import unwritable

KINDS = {"site.toml": "a site", "coordinator.json": "a coordinator"}


def check_free(folder: Path) -> None:
    """Raise ValueError where no folder of a site or a coordinator can be made."""
    for name, kind in KINDS.items():
        if (folder / name).exists():
            raise ValueError(
                f"{folder} is the folder of {kind} already; choose another one"
            )
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if there.is_file():
        raise ValueError(f"{there} is a file; give the name of a new folder")


def private_folder(folder: Path) -> None:
    """A folder for its owner alone, made where it is missing.  Raises Failed where it cannot be."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)
    except OSError as error:
        raise unwritable(folder, error) from error


def read_authority(file: Path) -> bytes:
    """The certificates in a file; ValueError where no authority is among them."""
    way_out = "give the file with the authority's certificate (PEM)"
    try:
        content = file.read_bytes()
    except OSError as error:
        raise ValueError(f"{file} cannot be read ({error.strerror}): {way_out}") from error
    check_authority(content, str(file), way_out)
    return content


def check_authority(content: bytes, what: str, way_out: str) -> None:
    """Raise ValueError where no authority is among the certificates of ``what``."""
    trusted = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    with suppress(ssl.SSLError, ValueError):  # the count says it
        trusted.load_verify_locations(cadata=content.decode("ascii"))
    if not trusted.cert_store_stats()["x509_ca"]:
        raise ValueError(f"{what} holds no certificate of an authority: {way_out}")
