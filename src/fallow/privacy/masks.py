"""Pairwise masks (Bonawitz et al., 2017, section 4.0.1): X25519, HKDF-SHA256 and ChaCha20.

Each pair of sites agrees on a key, of which the server side sees public keys only.  The first site
adds the key stream to its contribution, and the second subtracts it, so masks cancel in the
aggregate.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from fallow.core.optional import import_privacy
from fallow.core.refusal import explain_errors
from fallow.core.types import SiteId

CURVE = "cryptography.hazmat.primitives.asymmetric.x25519"
PURPOSE = "a secure sum"


def new_secret() -> bytes:
    """Return a new private key: 32 bytes from the operating system."""
    secret: bytes = (
        import_privacy(CURVE, PURPOSE).X25519PrivateKey.generate().private_bytes_raw()
    )
    return secret


def public_half(secret: bytes) -> bytes:
    """Return the public key, 32 bytes."""
    key = import_privacy(CURVE, PURPOSE).X25519PrivateKey.from_private_bytes(secret)
    shown: bytes = key.public_key().public_bytes_raw()
    return shown


def pair_key(secret: bytes, other: bytes, purpose: str) -> bytes:
    """Return the 32-byte shared key of two sites, for one purpose."""
    curve = import_privacy(CURVE, PURPOSE)
    hashes = import_privacy("cryptography.hazmat.primitives.hashes", PURPOSE)
    hkdf = import_privacy("cryptography.hazmat.primitives.kdf.hkdf", PURPOSE)
    own = curve.X25519PrivateKey.from_private_bytes(secret)
    theirs = curve.X25519PublicKey.from_public_bytes(other)
    shared = own.exchange(theirs)
    derive = hkdf.HKDF(
        algorithm=hashes.SHA256(), length=32, salt=None, info=purpose.encode()
    )
    key: bytes = derive.derive(shared)
    return key


def is_usable(public: bytes) -> bool:
    """Return whether a public key gives shared keys.

    A few do not; then the other sites would fail, and not the sender.

    >>> is_usable(public_half(new_secret())), is_usable(bytes(32))
    (True, False)
    """
    try:
        pair_key(new_secret(), public, "checking a public key")
    except ValueError:
        return False
    return True


def key_stream(key: bytes, length: int) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    """Return (length,) uniform 64-bit words.  A key is used once, so the nonce is zero."""
    ciphers = import_privacy("cryptography.hazmat.primitives.ciphers", PURPOSE)
    cipher = ciphers.Cipher(ciphers.algorithms.ChaCha20(key, bytes(16)), mode=None)
    stream = cipher.encryptor()
    return np.frombuffer(stream.update(bytes(8 * length)), dtype="<u8")


def mask(
    site: SiteId, secret: bytes, publics: Mapping[SiteId, bytes], purpose: str, length: int
) -> Tensor:
    """Return the mask of the contribution of ``site``, (length,) int64; masks sum to zero.

    ``purpose`` identifies the exchange, so that the same keys give different masks for each.
    """
    total = np.zeros(length, dtype=np.uint64)
    for other in sorted(publics):
        if other == site:
            continue
        pair = "|".join(sorted((site, other)))
        with explain_errors(
            f"site {site} cannot use the public key of site {other} (",
            after="): it was damaged or changed in transit; start the run in a new folder",
        ):
            key = pair_key(secret, publics[other], f"{purpose}|{pair}")
        words = key_stream(key, length)
        if site < other:  # one of the two adds and the other subtracts
            np.add(total, words, out=total)
        else:
            np.subtract(total, words, out=total)
    return torch.from_numpy(total.view(np.int64))
