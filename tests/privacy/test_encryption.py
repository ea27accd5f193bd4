"""Sealed messages: only the receiver can read them, and changes are detected."""

from __future__ import annotations

import pytest

from fallow.privacy.encryption import HALF, TAG, decrypt, encrypt_for
from fallow.privacy.masks import new_secret, public_half

SECRET = new_secret()
PUBLIC = public_half(SECRET)
PEER_MESSAGE = encrypt_for(PUBLIC, b"weights", "a to b")
CLOSED = "it cannot be decrypted"


def test_a_letter_is_48_bytes_longer_and_opens_as_what_was_closed() -> None:
    assert len(PEER_MESSAGE) == HALF + len(b"weights") + TAG
    assert decrypt(SECRET, PEER_MESSAGE, "a to b") == b"weights"
    assert decrypt(SECRET, encrypt_for(PUBLIC, b"", ""), "") == b""


def test_the_same_letter_twice_is_not_the_same_bytes() -> None:
    assert encrypt_for(PUBLIC, b"weights", "a to b") != PEER_MESSAGE


@pytest.mark.parametrize("at", range(len(PEER_MESSAGE)))
def test_a_letter_with_a_changed_bit_does_not_open(at: int) -> None:
    changed = bytearray(PEER_MESSAGE)
    changed[at] ^= 1
    with pytest.raises(ValueError, match=CLOSED):
        decrypt(SECRET, bytes(changed), "a to b")


@pytest.mark.parametrize("change", ["a to c", "", "a to b "])
def test_a_letter_opens_as_no_other_letter(change: str) -> None:
    with pytest.raises(ValueError, match=CLOSED):
        decrypt(SECRET, PEER_MESSAGE, change)


def test_another_site_cannot_open_it() -> None:
    with pytest.raises(ValueError, match=CLOSED):
        decrypt(new_secret(), PEER_MESSAGE, "a to b")


@pytest.mark.parametrize(
    "blob", [b"", b"x", PEER_MESSAGE[:HALF], PEER_MESSAGE[:-1], bytes(100)], ids=len
)
def test_what_is_no_letter_is_refused(blob: bytes) -> None:
    with pytest.raises(ValueError, match=CLOSED):
        decrypt(SECRET, blob, "a to b")
