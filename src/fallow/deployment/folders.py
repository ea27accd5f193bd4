"""Common functions for the folders of sites and coordinators."""

from __future__ import annotations

import ssl
import stat
from contextlib import suppress
from pathlib import Path

from fallow.core.refusal import explain_errors
from fallow.storage import files
from fallow.storage.files import OTHERS, writing
from fallow.storage.received import read_named

KINDS = {"site.toml": "a site", "coordinator.json": "a coordinator"}
COMMANDS = {"site.toml": "fallow site init", "coordinator.json": "fallow coordinate init"}
"""Command that creates a folder with such a file."""


def check_site(folder: Path) -> Path:
    """Return a site folder; raise ValueError for another."""
    return _check_kind(folder, "site.toml")


def check_coordinator(folder: Path) -> Path:
    """Return a coordinator folder; raise ValueError for another."""
    return _check_kind(folder, "coordinator.json")


def _check_kind(folder: Path, file: str) -> Path:
    for name, kind in KINDS.items():
        if name != file and (folder / name).exists():
            raise ValueError(
                f"{folder} is the folder of {kind}; give the folder of {KINDS[file]}"
            )
    if not (folder / file).exists():
        raise ValueError(
            f"{folder} is not the folder of {KINDS[file]}; make one with: {COMMANDS[file]} {folder}"
        )
    return folder


def find_kind(folder: Path) -> str:
    """Return the file of `KINDS` in a folder; ValueError for any other folder."""
    for name in KINDS:
        if (folder / name).exists():
            return name
    raise ValueError(
        f"{folder} is neither the folder of a site nor that of a coordinator: "
        "'fallow site init' and 'fallow coordinate init' create them"
    )


def check_free(folder: Path) -> None:
    """Raise ValueError if a site or coordinator folder cannot be created here."""
    for name, kind in KINDS.items():
        if (folder / name).exists():
            raise ValueError(
                f"{folder} is already the folder of {kind}; choose another one"
            )
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if there.is_file():
        raise ValueError(f"{there} is a file; give the name of a new folder")


def private_folder(folder: Path) -> None:
    """Create a folder that only its owner can access. Raises StorageError on errors."""
    with writing(folder):
        files.private_folder(folder)


def is_real(folder: Path) -> bool:
    """Return whether this is the folder of a site or a coordinator, which must be private."""
    return any((folder / name).exists() for name in KINDS)


def tighten(folder: Path) -> str | None:
    """Remove other users' permissions from a folder and its content.

    The owner's permissions are kept. Symbolic links are not followed, because their targets may be
    shared on purpose. Returns a sentence if something was accessible, or None.
    """
    changed = 0
    left = 0  # number of files whose permissions cannot be changed
    for path in (folder, *folder.rglob("*")):
        try:
            mode = stat.S_IMODE(path.lstat().st_mode)
            if path.is_symlink() or not mode & OTHERS:
                continue
            path.chmod(mode & ~OTHERS)
        except FileNotFoundError:
            continue  # a temporary file of a running process
        except OSError:
            left += 1
        else:
            changed += 1
    output: list[str] = []
    if changed:
        count = _count_files(changed)
        output.append(f"other users had permissions to {count} in it, which were removed")
    if left:
        count = _count_files(left)
        output.append(
            f"other users have permissions to {count} in it that this account cannot "
            f"change: ask the owner to run 'chmod -R go= {folder}'"
        )
    if not output:
        return None
    return f"{folder}: {'; '.join(output)}"


def _count_files(count: int) -> str:
    """Return the number of files and folders in words."""
    if count == 1:
        return "one file or folder"
    return f"{count} files and folders"


def read_authority(file: Path) -> bytes:
    """Return the certificates in a file. Raises ValueError if none is an authority."""
    way_out = "give the file with the authority's certificate (PEM)"
    with explain_errors(f"{file} cannot be read (", after=f"): {way_out}", of=OSError):
        content = read_named(file)
    check_authority(content, str(file), way_out)
    return content


def check_authority(content: bytes, what: str, way_out: str) -> None:
    """Raise ValueError if no certificate of ``what`` is an authority."""
    trusted = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    with suppress(ssl.SSLError, ValueError):  # the count below reports it
        trusted.load_verify_locations(cadata=content.decode("ascii"))
    if not trusted.cert_store_stats()["x509_ca"]:
        raise ValueError(f"{what} contains no certificate of an authority: {way_out}")
