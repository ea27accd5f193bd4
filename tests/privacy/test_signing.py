"""Signatures: keys of small order, under which anybody can sign, are refused."""

from __future__ import annotations

import itertools

import pytest

pytest.importorskip("cryptography")

from fallow.privacy.signing import (
    PRIME,
    SMALL_ORDER,
    is_forgeable,
    new_signing_key,
    open_signed,
    verify_key,
)

D = -121665 * pow(121666, -1, PRIME) % PRIME  # of the curve, RFC 8032 section 5.1
IDENTITY = (0, 1)
Point = tuple[int, int]


def encodings() -> list[bytes]:
    """Return all encodings of points of small order: canonical or not, with either sign."""
    texts = []
    for y, sign in itertools.product(SMALL_ORDER, (0, 1)):
        for written in range(y, 2**255, PRIME):
            texts.append((written | sign << 255).to_bytes(32, "little"))
    return texts


def add(p: Point, q: Point) -> Point:
    """Return the sum of two points of the curve."""
    common = D * p[0] * q[0] * p[1] * q[1]
    x = (p[0] * q[1] + q[0] * p[1]) * pow(1 + common, -1, PRIME)
    y = (p[1] * q[1] + p[0] * q[0]) * pow(1 - common, -1, PRIME)
    return x % PRIME, y % PRIME


def find_x(y: int) -> int:
    """Return a root of x² = (y² - 1) / (d y² + 1); the prime is 5 modulo 8."""
    square = (y * y - 1) * pow(D * y * y + 1, -1, PRIME) % PRIME
    root = pow(square, (PRIME + 3) // 8, PRIME)
    if root * root % PRIME != square:
        root = root * pow(2, (PRIME - 1) // 4, PRIME) % PRIME
    assert root * root % PRIME == square
    return root


def test_the_list_has_the_eight_points_whose_order_divides_8() -> None:
    points = set()
    for y in SMALL_ORDER:
        x = find_x(y)
        points |= {(x, y), (-x % PRIME, y)}
    assert len(points) == 8
    for point in points:
        multiple = IDENTITY
        for _ in range(8):
            multiple = add(multiple, point)
        assert multiple == IDENTITY


@pytest.mark.parametrize("public", encodings(), ids=bytes.hex)
def test_a_key_of_small_order_is_recognized(public: bytes) -> None:
    assert is_forgeable(public)


def test_keys_that_were_drawn_are_usable() -> None:
    assert not any(is_forgeable(verify_key(new_signing_key())) for _ in range(100))


def test_anybody_signs_for_the_owner_of_a_key_of_small_order() -> None:
    """Run the attack without any secret: R is the identity and S is 0."""
    signature = (1).to_bytes(32, "little") + bytes(32)
    forged = 0
    for public in encodings():
        for number in range(100):
            content = f"an answer {number}".encode()
            try:
                forged += open_signed(public, signature + content, "anybody") == content
                break
            except ValueError:
                continue
    assert forged >= 8
