"""Letters that only their receiver can read: ephemeral X25519, HKDF-SHA256, ChaCha20-Poly1305.

Who carries a letter learns how long it is, and cannot change it or pass it off as another one.  As
with masks, whoever hands out the public keys is trusted to hand out the right ones, and a seal does
not say who closed it: the envelope around it does.
"""

from __future__ import annotations

from fallow.privacy.extra import need
from fallow.privacy.masks import new_secret, pair_key, public_half

AEAD = "cryptography.hazmat.primitives.ciphers.aead"
PURPOSE = "a sealed letter"
HALF = 32  # bytes of a public half
TAG = 16  # bytes that show that nothing was changed
NONCE = bytes(12)  # every letter has a key of its own, which is used once


def encrypt_for(public: bytes, content: bytes, about: str) -> bytes:
    """``content`` for the owner of the key alone; ``about`` says which letter it is.

    The public half of a fresh key, then the content in cipher: 48 bytes more than ``content``.

    >>> secret = new_secret()
    >>> letter = encrypt_for(public_half(secret), b"weights", "a to b")
    >>> decrypt(secret, letter, "a to b")
    b'weights'
    """
    fresh = new_secret()
    shown = public_half(fresh)
    key = pair_key(fresh, public, _name_pair(shown, public))
    cipher = need(AEAD, PURPOSE).ChaCha20Poly1305(key)
    closed: bytes = cipher.encrypt(NONCE, content, about.encode())
    return shown + closed


def decrypt(secret: bytes, letter: bytes, about: str) -> bytes:
    """What `encrypt_for` closed; ValueError unless it was for this key and is this letter."""
    shown = letter[:HALF]
    closed = letter[HALF:]
    try:
        key = pair_key(secret, shown, _name_pair(shown, public_half(secret)))
        cipher = need(AEAD, PURPOSE).ChaCha20Poly1305(key)
        content: bytes = cipher.decrypt(NONCE, closed, about.encode())
    except need("cryptography.exceptions", PURPOSE).InvalidTag as error:
        raise ValueError(
            "its seal does not open: it was changed on its way, or is for another site or another "
            "exchange"
        ) from error
    except ValueError as error:  # of a key that is none
        raise ValueError(f"its seal does not open: {error}") from error
    return content


def _name_pair(shown: bytes, public: bytes) -> str:
    """What the key is for: both halves, so that no other pair arrives at the same key."""
    return f"fallow sealed letter|{shown.hex()}|{public.hex()}"
