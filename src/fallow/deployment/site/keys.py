"""Keys of a site, and identity keys of the other sites (``peers.json``).

A site has a signing key, an encryption key for peer messages, and perhaps a key of the transport.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast, final

from fallow.core.refusal import Refusal, explain_errors
from fallow.core.types import SiteId
from fallow.deployment.folders import private_folder
from fallow.privacy.masks import new_secret, public_half
from fallow.privacy.signing import decode_text, is_forgeable, new_signing_key, verify_key
from fallow.storage.errors import StorageError
from fallow.storage.files import write_json, write_whole, writing
from fallow.storage.received import parse_json, read_regular
from fallow.storage.validation import find_error
from fallow.transport.factory import TransportFactory
from fallow.transport.sum_keys import sign_seal_key

SECRETS = "site.key"
PEERS = "peers.json"
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


@final
@dataclass(frozen=True)
class Peers:
    """File with the entry ``verify`` of each other site's ``join.json``.

    A missing key is stored when it is first received. Users may enter or compare keys in advance.
    """

    folder: Path
    site: SiteId

    def hold(self, shown: Mapping[SiteId, bytes]) -> None:
        """Check and store the identity keys of other sites.

        Raises Refusal for a key that differs from the stored one, and StorageError if the file is
        damaged or cannot be written.
        """
        known = self._read()
        fresh: dict[SiteId, str] = {}
        for site, key in shown.items():
            if is_forgeable(key):
                raise Refusal(
                    f"site {site} sent an insecure key, with which anyone can sign"
                )
            if site in known and decode_text(known[site].strip()) != key:
                raise Refusal(
                    f"site {site} sent another identity key than the one stored at "
                    f"site {self.site}: if {site} has joined again, compare its "
                    f"join.json with {PEERS} of {self.site} through another channel "
                    f"than the coordinator, and correct {PEERS}"
                )
            if site not in known:
                fresh[site] = _text(key)
        if fresh:
            write_json(self.folder / PEERS, dict(sorted({**known, **fresh}.items())))

    def _read(self) -> dict[SiteId, str]:
        file = self.folder / PEERS
        try:
            with explain_errors(f"{file} cannot be read: ", to=StorageError):
                known = parse_json(read_regular(file))
        except FileNotFoundError:
            return {}
        damage = find_error(dict[str, str], known, "it")
        if damage is not None:
            raise StorageError(f"{file} is damaged: {damage}")
        return cast(dict[SiteId, str], known)
