"""Keys of a site: signing key, encryption key for peer messages, and key of the transport."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from dataclasses import dataclass
from pathlib import Path

from fallow.core.types import SiteId
from fallow.deployment.folders import private_folder
from fallow.privacy.masks import new_secret, public_half
from fallow.privacy.signing import new_signing_key, verify_key
from fallow.storage.errors import StorageError
from fallow.storage.files import write_whole, writing
from fallow.transport.factory import TransportFactory
from fallow.transport.sum_keys import sign_seal_key

SECRETS = "site.key"
AGAIN = (
    "restore it from a backup, or create the site's folder again and send the "
    "coordinator its join.json"
)


@dataclass(frozen=True)
class SiteKeys:
    """Private keys of a site, which never leave its machine."""

    sign: bytes  # Ed25519: signs replies
    seal: bytes  # X25519: decrypts peer messages

    @property
    def verify(self) -> bytes:
        """Return the public key of ``sign``, for the coordinator."""
        return verify_key(self.sign)

    @property
    def seal_public(self) -> bytes:
        """Return the public key of ``seal``, for other sites."""
        return public_half(self.seal)

    def sign_seal(self, study: str, site: SiteId) -> str:
        """Return the signature of ``seal_public`` in base64, for a site's ``join.json``."""
        return _text(sign_seal_key(self.sign, study, site, self.seal_public))


def make_keys(folder: Path, factory: type[TransportFactory]) -> dict[str, str]:
    """Create missing keys of a new site, and return the public keys for its ``join.json``.

    Keys of an earlier attempt are reused. Raises StorageError if they cannot be written.
    """
    private_folder(folder)
    with writing(folder):
        if not (folder / SECRETS).exists():
            fresh = {"sign": _text(new_signing_key()), "seal": _text(new_secret())}
            write_whole(folder / SECRETS, f"{json.dumps(fresh)}\n".encode(), mode=0o600)
        transport_key = factory.make_key(folder)
    made = read_keys(folder)
    return {
        "verify": _text(made.verify),
        "seal": _text(made.seal_public),
        "transport_key": transport_key,
    }


def read_keys(folder: Path) -> SiteKeys:
    """Return the keys of `make_keys`. Raises StorageError if they are missing or damaged."""
    file = find_key(folder / SECRETS)
    try:
        saved = json.loads(file.read_bytes())
        return SiteKeys(b64decode(saved["sign"]), b64decode(saved["seal"]))
    except (ValueError, KeyError, TypeError) as error:
        raise StorageError(f"{file} is damaged: {AGAIN}") from error


def find_key(file: Path) -> Path:
    """Return the path of a key file, which must exist."""
    if not file.is_file():
        raise StorageError(f"{file} is missing: {AGAIN}")
    return file


def _text(secret: bytes) -> str:
    return b64encode(secret).decode()
