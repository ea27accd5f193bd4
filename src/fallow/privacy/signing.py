"""Authentication of messages: Ed25519 signatures by keys that never leave their machine."""

from __future__ import annotations

from base64 import b64decode, b64encode

from fallow.core.optional import import_privacy
from fallow.core.refusal import Refusal

CURVE = "cryptography.hazmat.primitives.asymmetric.ed25519"
PURPOSE = "a signed message"
SIGNATURE = 64  # bytes
KEY = 32  # bytes of a public key
PRIME = 2**255 - 19
ROOT = 2707385501144840649318225287225658788936804267575313519463743609750303402022
SMALL_ORDER = (0, 1, PRIME - 1, ROOT, PRIME - ROOT)
"""The y of the eight points of Ed25519 whose order divides 8, which are not valid public keys."""


def new_signing_key() -> bytes:
    """Return a new private key: 32 bytes from the operating system."""
    secret: bytes = (
        import_privacy(CURVE, PURPOSE).Ed25519PrivateKey.generate().private_bytes_raw()
    )
    return secret


def verify_key(secret: bytes) -> bytes:
    """Return the public key, 32 bytes, with which others verify signatures."""
    key = import_privacy(CURVE, PURPOSE).Ed25519PrivateKey.from_private_bytes(secret)
    shown: bytes = key.public_key().public_bytes_raw()
    return shown


def is_forgeable(public: bytes) -> bool:
    """Return whether a public key is a point of small order, for which anyone can sign.

    public: (32,) bytes.  The last bit is the sign of x; y may be encoded with or without addition
    of the prime.
    """
    y = int.from_bytes(public, "little") % 2**255
    return y % PRIME in SMALL_ORDER


def decode_text(text: str) -> bytes:
    """Return the bytes of a base64 text, and no bytes for a text of another form.

    Each value has one text: other spellings of the same bytes, with spaces or with unused bits
    in the last character, are of another form.

    >>> decode_text("AQ=="), decode_text("AR=="), decode_text(" AQ==")
    (b'\\x01', b'', b'')
    """
    try:
        value = b64decode(text, validate=True)
    except ValueError:
        return b""
    return value if b64encode(value).decode() == text else b""


def decode_key(text: str, what: str, fix: str) -> bytes:
    """Return a public key that is written in base64.

    Raises ValueError, naming ``what`` and the ``fix``, for another text and for a key for which
    anyone can sign.
    """
    key = decode_text(text)
    if len(key) != KEY:
        raise ValueError(f"{what} is not {KEY} bytes in base64; {fix}")
    if is_forgeable(key):
        raise ValueError(
            f"{what} is a weak key, for which anyone can forge signatures; {fix}"
        )
    return key


def sign(secret: bytes, content: bytes) -> bytes:
    """Return a 64-byte signature, followed by the content."""
    key = import_privacy(CURVE, PURPOSE).Ed25519PrivateKey.from_private_bytes(secret)
    signature: bytes = key.sign(content)
    return signature + content


def open_signed(public: bytes, signed: bytes, whose: str) -> bytes:
    """Return the content of a message of `sign`; ValueError for an invalid signature."""
    key = import_privacy(CURVE, PURPOSE).Ed25519PublicKey.from_public_bytes(public)
    content = signed[SIGNATURE:]
    try:
        key.verify(signed[:SIGNATURE], content)
    except Exception as error:  # from `cryptography`, which may not be installed
        raise Refusal(
            f"a message in the name of {whose} was not signed with its key: it was changed in "
            f"transit or sent by another party"
        ) from error
    return content
