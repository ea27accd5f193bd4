"""A site's keys: what it is known by, what letters to it are sealed with, and its Flower node's."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from dataclasses import dataclass
from pathlib import Path

from fallow.federation.folders import private_folder
from fallow.network.flower import new_node_key
from fallow.privacy.masks import new_secret, public_half
from fallow.privacy.signing import new_signing_key, verify_key
from fallow.storage.errors import Failed
from fallow.storage.files import unwritable, write_whole

SECRETS = "site.key"
NODE = "node"
AGAIN = (
    "restore it from a backup, or make the site's folder anew and send the coordinator its "
    "join.json"
)


@dataclass(frozen=True)
class SiteKeys:
    """Secrets of a site; they never leave its machine."""

    sign: bytes  # Ed25519: by which its answers are known
    seal: bytes  # X25519: by which it opens what other sites sealed for it

    @property
    def verify(self) -> bytes:
        """The public half of ``sign``, which the coordinator is given."""
        return verify_key(self.sign)

    @property
    def seal_public(self) -> bytes:
        """The public half of ``seal``, which other sites are given."""
        return public_half(self.seal)


def make_keys(folder: Path) -> dict[str, str]:
    """Make what is missing of a new site's keys; the public halves, as its ``join.json`` has them.

    Keys that an earlier attempt left are used.  Raises Failed where they cannot be written.
    """
    private_folder(folder)
    node = folder / NODE
    public = folder / f"{NODE}.pub"
    try:
        if not (folder / SECRETS).exists():
            fresh = {"sign": _text(new_signing_key()), "seal": _text(new_secret())}
            write_whole(folder / SECRETS, f"{json.dumps(fresh)}\n".encode(), mode=0o600)
        if not (public.exists() and public.read_text().strip()):
            node.unlink(missing_ok=True)
            public.unlink(missing_ok=True)
            new_node_key(node)
        known = public.read_text().strip()
    except OSError as error:
        raise unwritable(folder, error) from error
    made = read_keys(folder)
    return {"verify": _text(made.verify), "seal": _text(made.seal_public), "node": known}


def read_keys(folder: Path) -> SiteKeys:
    """The secrets that `make_keys` wrote.  Raises Failed where they are missing or damaged."""
    file = find_key(folder / SECRETS)
    try:
        saved = json.loads(file.read_bytes())
        return SiteKeys(b64decode(saved["sign"]), b64decode(saved["seal"]))
    except (ValueError, KeyError, TypeError) as error:
        raise Failed(f"{file} is damaged: {AGAIN}") from error


def find_key(file: Path) -> Path:
    """The file of a key, which has to be there."""
    if not file.is_file():
        raise Failed(f"{file} is missing: {AGAIN}")
    return file


def _text(secret: bytes) -> str:
    return b64encode(secret).decode()
