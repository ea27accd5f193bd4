"""Encrypted peer messages: ephemeral X25519, HKDF-SHA256, ChaCha20-Poly1305.

The transport learns the length of a message, and cannot change it or exchange it for another one.
As with masks, the distributor of public keys is trusted.  Encryption does not authenticate the
sender; the envelope of the message does.
"""

from __future__ import annotations

from fallow.core.optional import import_privacy
from fallow.core.refusal import Refusal, explain_errors
from fallow.privacy.masks import new_secret, pair_key, public_half

AEAD = "cryptography.hazmat.primitives.ciphers.aead"
PURPOSE = "an encrypted peer message"
HALF = 32  # bytes of a public key
TAG = 16  # bytes of the authentication tag
NONCE = bytes(12)  # every message has its own key, which is used once


def encrypt_for(public: bytes, content: bytes, context: str) -> bytes:
    """Encrypt ``content`` for the owner of a key; ``context`` identifies the message.

    The result contains a new public key and the encrypted content: 48 bytes more than ``content``.

    >>> secret = new_secret()
    >>> peer_message = encrypt_for(public_half(secret), b"weights", "a to b")
    >>> decrypt(secret, peer_message, "a to b")
    b'weights'
    """
    fresh = new_secret()
    shown = public_half(fresh)
    key = pair_key(fresh, public, _name_pair(shown, public))
    cipher = import_privacy(AEAD, PURPOSE).ChaCha20Poly1305(key)
    closed: bytes = cipher.encrypt(NONCE, content, context.encode())
    return shown + closed


def decrypt(secret: bytes, peer_message: bytes, context: str) -> bytes:
    """Decrypt a message of `encrypt_for`; Refusal for another key or another message."""
    shown = peer_message[:HALF]
    closed = peer_message[HALF:]
    with explain_errors("it cannot be decrypted: ", to=Refusal):
        key = pair_key(secret, shown, _name_pair(shown, public_half(secret)))
    try:
        cipher = import_privacy(AEAD, PURPOSE).ChaCha20Poly1305(key)
        content: bytes = cipher.decrypt(NONCE, closed, context.encode())
    except import_privacy("cryptography.exceptions", PURPOSE).InvalidTag as error:
        raise Refusal(
            "it cannot be decrypted: it was changed in transit, or is for another "
            "site or another exchange"
        ) from error
    return content


def _name_pair(shown: bytes, public: bytes) -> str:
    """Return the purpose of the key with both public keys, so it is unique to the pair."""
    return f"fallow sealed letter|{shown.hex()}|{public.hex()}"
