"""The head of a request: who sends it, for which study, and what its body will be, signed.

A request is refused by its head, before anything of its body is read.  The signature covers the
size and the SHA-256 sum of the body, so a body that was changed on its way is noticed too.

Freshness needs no clock.  The coordinator's process draws a challenge when it starts and tells it
to anybody; a head is signed under it.  In one process the counts of a site only grow, apart for
each path, so the same head is taken once.  They grow by at most `WINDOW` at a time, so a thief of
the site's key cannot use them up.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fallow.core.types import SiteId
from fallow.privacy.signing import SIGNATURE, open_signed, sign

POLL = "/fallow/1/poll"
ANSWER = "/fallow/1/answer"
PATHS = (POLL, ANSWER)

NONE = "-"  # stands for no order
WINDOW = 1000  # requests of a site that may be lost one after the other
PURPOSE = "fallow https 1"
"""The first line of what is signed here, which no other message of a site begins with."""
SITE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
DIGEST = re.compile(r"[0-9a-f]{32}")
CHALLENGE = re.compile(r"[0-9a-f]{32}")
COUNT = re.compile(r"[0-9]{1,19}")
SUM = re.compile(r"[0-9a-f]{64}")
ORDER = re.compile(r"-|[0-9a-f]{64}")
SIGNED = re.compile(rf"[0-9a-f]{{{2 * SIGNATURE}}}")

# names of header fields
HEADERS = {
    "site": ("fallow-site", SITE),
    "study": ("fallow-study", DIGEST),
    "challenge": ("fallow-challenge", CHALLENGE),
    "count": ("fallow-count", COUNT),
    "order": ("fallow-order", ORDER),
    "body": ("fallow-body", SUM),
    "signature": ("fallow-signature", SIGNED),
}
CHALLENGE_HEADER = HEADERS["challenge"][0]
COUNT_HEADER = HEADERS["count"][0]


class Unreadable(ValueError):
    """The head of a request is none of this protocol."""


@dataclass(frozen=True)
class Head:
    """What a site says of a request.

    study: the digest of what was agreed on.  order: the SHA-256 sum of the order that is answered;
    of a poll, of the one that is at work (`NONE`: of none).  length, body: bytes of the body and
    their SHA-256 sum.
    """

    site: SiteId
    study: str
    path: str
    challenge: str
    count: int
    order: str
    length: int
    body: str

    @property
    def text(self) -> bytes:
        """What is signed: every field on a line of its own."""
        lines = (
            PURPOSE,
            self.study,
            self.site,
            self.path,
            self.challenge,
            str(self.count),
            self.order,
            str(self.length),
            self.body,
        )
        return "\n".join(lines).encode()

    def write(self, secret: bytes) -> dict[str, str]:
        """The header fields of a request, signed with a site's key."""
        signature = sign(secret, self.text)[:SIGNATURE]
        values = {
            "site": self.site,
            "study": self.study,
            "challenge": self.challenge,
            "count": str(self.count),
            "order": self.order,
            "body": self.body,
            "signature": signature.hex(),
        }
        return {HEADERS[name][0]: value for name, value in values.items()}


@dataclass(frozen=True)
class Claim:
    """The head of a request as it arrived: nobody knows yet who wrote it."""

    head: Head
    signature: bytes

    def is_by(self, public: bytes) -> bool:
        """Whether the owner of a key signed it."""
        try:
            open_signed(public, self.signature + self.head.text, "a site")
        except ValueError:
            return False
        return True


def read_claim(path: str, headers: Sequence[tuple[bytes, bytes]], length: int) -> Claim:
    """The head in the header fields of a request.

    Raises Unreadable where a field is missing, comes twice, or has another form.
    """
    values: dict[str, str] = {}
    for name, (header, form) in HEADERS.items():
        claim = [value for key, value in headers if key == header.encode()]
        if len(claim) != 1:
            raise Unreadable(f"one {header} is needed, and there are {len(claim)}")
        text = claim[0].decode("latin-1")
        if not form.fullmatch(text):
            raise Unreadable(f"{header} has not the form that it should have")
        values[name] = text
    head = Head(
        site=values["site"],
        study=values["study"],
        path=path,
        challenge=values["challenge"],
        count=int(values["count"]),
        order=values["order"],
        length=length,
        body=values["body"],
    )
    return Claim(head, bytes.fromhex(values["signature"]))


def sum_of(content: bytes) -> str:
    """The SHA-256 sum by which a message is named, in hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def find_header(headers: Mapping[str, str], name: str, form: re.Pattern[str]) -> str | None:
    """A field of an answer where it has the right form; None for any other."""
    text = headers.get(name, "")
    return text if form.fullmatch(text) else None
