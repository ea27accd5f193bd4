"""Digests of the weights of pretrained networks."""

from __future__ import annotations

import hashlib
from pathlib import Path

from torch import nn


def check_file(path: str, sha256: str | None, purpose: str) -> Path:
    """Return the path of a weights file with the agreed digest, if any.

    Raises ValueError if it is missing or different.
    """
    file = Path(path)
    if not file.is_file():
        raise ValueError(
            f"{purpose}: there is no weights file {path!r}; put it there, or give "
            "another one"
        )
    if sha256 is not None:
        check_digest(path, digest_of_file(file), sha256, purpose)
    return file


def check_digest(path: str, digest: str, sha256: str, purpose: str) -> None:
    """Raise ValueError if the SHA-256 differs from the agreed one."""
    if digest != sha256.lower():
        raise ValueError(
            f"{purpose}: {path} has the SHA-256 {digest} and the agreed one is {sha256}: "
            "these are other weights"
        )


def digest_of_file(file: Path) -> str:
    """Return the SHA-256 of a file, 64 hexadecimal digits."""
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def digest_of_module(network: nn.Module) -> str:
    """Return a SHA-256 of all weights by name, 64 hexadecimal digits."""
    h = hashlib.sha256()
    for name, value in sorted(network.state_dict().items()):
        h.update(repr((name, str(value.dtype), tuple(value.shape))).encode())
        h.update(value.detach().cpu().contiguous().numpy().tobytes())
    return h.hexdigest()
