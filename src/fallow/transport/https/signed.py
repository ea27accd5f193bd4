"""Signed request header: sender, study, and size and hash of the body.

A request is rejected by its header before its body is read. The signature covers the size and the
SHA-256 hash of the body, so that a modified body is detected.

Freshness needs no clock. The coordinator's process draws a challenge at its start, sends it to any
client, and accepts only headers signed under it. The counts of a site increase separately for each
path, so that a header is accepted once. They increase by at most `WINDOW` at a time, so that a
stolen key cannot exhaust them.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fallow.core.types import SiteId
from fallow.privacy.signing import SIGNATURE, open_signed, sign

POLL = "/fallow/1/poll"
REPLY = "/fallow/1/reply"
PATHS = (POLL, REPLY)

NONE = "-"  # placeholder for no instruction
WINDOW = 1000  # number of consecutive requests of a site that may be lost
PURPOSE = "fallow https 1"
"""First line of the signed text, which distinguishes it from other messages."""
SITE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
DIGEST = re.compile(r"[0-9a-f]{32}")
CHALLENGE = re.compile(r"[0-9a-f]{32}")
COUNT = re.compile(r"[0-9]{1,19}")
SUM = re.compile(r"[0-9a-f]{64}")
INSTRUCTION = re.compile(r"-|[0-9a-f]{64}")
SIGNED = re.compile(rf"[0-9a-f]{{{2 * SIGNATURE}}}")

# header field names
HEADERS = {
    "site": ("fallow-site", SITE),
    "study": ("fallow-study", DIGEST),
    "challenge": ("fallow-challenge", CHALLENGE),
    "count": ("fallow-count", COUNT),
    "instruction": ("fallow-instruction", INSTRUCTION),
    "body": ("fallow-body", SUM),
    "signature": ("fallow-signature", SIGNED),
}
CHALLENGE_HEADER = HEADERS["challenge"][0]
COUNT_HEADER = HEADERS["count"][0]


class Unreadable(ValueError):
    """Error for a request header that does not follow this protocol."""


@dataclass(frozen=True)
class Head:
    """Header of a site's request.

    ``study`` is the hash of the agreement. ``instruction`` is the SHA-256 hash of the instruction that
    is replied to, or in a poll of the current one (`NONE` without one). ``length`` and ``body`` are
    the size and the SHA-256 hash of the body.
    """

    site: SiteId
    study: str
    path: str
    challenge: str
    count: int
    instruction: str
    length: int
    body: str

    @property
    def text(self) -> bytes:
        """Return the signed text, with every field on its own line."""
        lines = (
            PURPOSE,
            self.study,
            self.site,
            self.path,
            self.challenge,
            str(self.count),
            self.instruction,
            str(self.length),
            self.body,
        )
        return "\n".join(lines).encode()

    def write(self, secret: bytes) -> dict[str, str]:
        """Return the header fields of a request, signed with a site's key."""
        signature = sign(secret, self.text)[:SIGNATURE]
        values = {
            "site": self.site,
            "study": self.study,
            "challenge": self.challenge,
            "count": str(self.count),
            "instruction": self.instruction,
            "body": self.body,
            "signature": signature.hex(),
        }
        return {HEADERS[name][0]: value for name, value in values.items()}


@dataclass(frozen=True)
class Claim:
    """Received header of a request whose signature is not verified yet."""

    head: Head
    signature: bytes

    def is_by(self, public: bytes) -> bool:
        """Return whether the owner of a key signed it."""
        try:
            open_signed(public, self.signature + self.head.text, "a site")
        except ValueError:
            return False
        return True


def read_claim(path: str, headers: Sequence[tuple[bytes, bytes]], length: int) -> Claim:
    """Parse the header fields of a request.

    Raises Unreadable for a missing, repeated or malformed field.
    """
    values: dict[str, str] = {}
    for name, (header, form) in HEADERS.items():
        claim = [value for key, value in headers if key == header.encode()]
        if len(claim) != 1:
            raise Unreadable(f"the header {header} must occur once, not {len(claim)} times")
        text = claim[0].decode("latin-1")
        if not form.fullmatch(text):
            raise Unreadable(f"{header} has an invalid format")
        values[name] = text
    head = Head(
        site=values["site"],
        study=values["study"],
        path=path,
        challenge=values["challenge"],
        count=int(values["count"]),
        instruction=values["instruction"],
        length=length,
        body=values["body"],
    )
    return Claim(head, bytes.fromhex(values["signature"]))


def sum_of(content: bytes) -> str:
    """Return the SHA-256 hash of a message in hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def find_header(headers: Mapping[str, str], name: str, form: re.Pattern[str]) -> str | None:
    """Return a field of a response if it has the expected form, or None."""
    text = headers.get(name, "")
    return text if form.fullmatch(text) else None
