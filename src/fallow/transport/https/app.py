"""Coordinator's web application: rejects requests by their headers, or passes messages on.

The order of the checks is a security property: path, method and fields first, then the signature,
then freshness and study, then the size of the body. The body is read last.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypedDict

from fallow.core.types import SiteId
from fallow.transport.https.connections import GATE, Gate
from fallow.transport.https.mailbox import Mailbox
from fallow.transport.https.signed import (
    CHALLENGE_HEADER,
    COUNT_HEADER,
    PATHS,
    POLL,
    WINDOW,
    Head,
    Unreadable,
    read_claim,
    sum_of,
)

WAIT = 20.0
"""Seconds that a poll waits for a message, less than the idle timeout of proxies."""
SECONDS = 30.0  # time limit for a body
SLOWEST = 16_384  # slowest permitted rate beyond it, in bytes per second
LONGEST_POLL = 0  # largest body of a poll in bytes
DIGITS = 12  # digits of a length


class Scope(TypedDict):
    """Request metadata of a web server (ASGI), as far as it is used here."""

    type: str
    method: str
    path: str
    raw_path: bytes
    query_string: bytes
    headers: list[tuple[bytes, bytes]]
    state: dict[str, Gate]


class Received(TypedDict, total=False):
    """Part of a request (ASGI)."""

    type: str
    body: bytes
    more_body: bool


Receive = Callable[[], Awaitable[Received]]
Send = Callable[[Mapping[str, object]], Awaitable[None]]


class Refused(Exception):
    """Rejected request: status and message of the response. The connection is closed."""

    def __init__(
        self, status: int, reason: str, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(reason)
        self.status = status
        self.headers = dict(headers or {})


class Largest(Protocol):
    """Function that returns the largest size of a site's reply in bytes."""

    def __call__(self, site: SiteId) -> int: ...


@dataclass
class Poll:
    """A site's waiting request for a message. ``at_work`` is the hash of its current message."""

    at_work: str
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    is_replaced: bool = False


@dataclass
class Application:
    """Web application (ASGI) of one study.

    ``study`` is the hash of the agreement. ``keys`` verify the signatures of sites. ``largest``
    returns the largest size of a site's reply in bytes.
    """

    mailbox: Mailbox
    study: str
    keys: dict[SiteId, bytes]
    largest: Largest
    challenge: str = field(default_factory=lambda: secrets.token_hex(16))
    _counts: dict[tuple[SiteId, str], int] = field(default_factory=dict)
    _polls: dict[SiteId, Poll] = field(default_factory=dict)
    _uploads: dict[SiteId, Gate] = field(default_factory=dict)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        gate = scope["state"][GATE]
        try:
            head = self._admit(scope)
            gate.recognize(head.site)
            if head.path == POLL:
                await self._respond_to_poll(head, receive, send)
            else:
                await self._take_reply(head, gate, receive, send)
        except Refused as refused:
            await _respond(send, refused.status, str(refused).encode(), refused.headers)

    def wake(self, site: SiteId) -> None:
        """Wake the poll of a site for a new message."""
        poll = self._polls.get(site)
        if poll is not None:
            poll.changed.set()

    def end_poll(self, site: SiteId) -> None:
        """End the poll of a site without a message."""
        poll = self._polls.get(site)
        if poll is not None:
            poll.is_replaced = True
            poll.changed.set()

    # -- authentication ----------------------------------------------------------------------

    def _admit(self, scope: Scope) -> Head:
        """Return the verified header of a site's request. Raises Refused for any other."""
        path = scope["path"]
        is_exact = scope["raw_path"] == path.encode() and not scope["query_string"]
        if path not in PATHS or not is_exact:
            raise Refused(404, "unknown path")
        if scope["method"] != "POST":
            raise Refused(405, "this path accepts POST only", {"allow": "POST"})
        length = _read_length(scope["headers"])
        try:
            claim = read_claim(path, scope["headers"], length)
        except Unreadable as error:
            raise Refused(400, str(error), self._fresh) from error
        head = claim.head
        if head.challenge != self.challenge:
            raise Refused(401, "sign with the challenge of this process", self._fresh)
        public = self.keys.get(head.site)
        if public is None or not claim.is_by(public):
            raise Refused(403, "this site is not admitted, or its keys differ")
        self._count(head)
        if head.study != self.study:
            raise Refused(403, "this is another study")
        return head

    def _count(self, head: Head) -> None:
        """Accept a header once.

        Raises Refused for a repeated header, and for a count far above all counts of the site.
        """
        newest = max(self._counts.get((head.site, path), 0) for path in PATHS)
        # counts are only disclosed to senders of a validly signed header
        headers = {**self._fresh, COUNT_HEADER: str(newest)}
        if head.count <= self._counts.get((head.site, head.path), 0):
            raise Refused(409, "this request was received before", headers)
        if head.count > newest + WINDOW:
            raise Refused(409, f"the next count is {newest + 1}", headers)
        self._counts[head.site, head.path] = head.count

    @property
    def _fresh(self) -> dict[str, str]:
        return {CHALLENGE_HEADER: self.challenge}

    # -- messages ---------------------------------------------------------------------------

    async def _respond_to_poll(self, head: Head, receive: Receive, send: Send) -> None:
        """Wait for a message to the site and send it."""
        if head.length > LONGEST_POLL:
            raise Refused(413, "a poll has no body")
        poll = Poll(head.instruction)
        self.end_poll(head.site)  # an earlier connection of the site was lost
        self._polls[head.site] = poll
        self.mailbox.arrive(head.site)
        removed = asyncio.ensure_future(_wait_for_end(receive))
        try:
            message = await self._wait(head.site, poll, removed)
        finally:
            removed.cancel()
            self.mailbox.leave(head.site)
            if self._polls.get(head.site) is poll:
                del self._polls[head.site]
        if message is None:
            await _respond(send, 204, b"", {}, closes=False)
        else:
            await _respond(send, 200, message, {}, closes=False)

    async def _wait(
        self, site: SiteId, poll: Poll, disconnected: asyncio.Future[None]
    ) -> bytes | None:
        """Return the next message to a site, or None after `WAIT` or if the client has disconnected."""
        loop = asyncio.get_running_loop()
        end = loop.time() + WAIT
        while not (poll.is_replaced or disconnected.done()):
            poll.changed.clear()
            message = self.mailbox.find(site, poll.at_work)
            left = end - loop.time()
            if message is not None or left <= 0:
                return message
            changed = asyncio.ensure_future(_wait_for(poll.changed))
            await asyncio.wait(
                {changed, disconnected}, timeout=left, return_when=asyncio.FIRST_COMPLETED
            )
            changed.cancel()
        return None

    async def _take_reply(
        self, head: Head, gate: Gate, receive: Receive, send: Send
    ) -> None:
        """Read a reply and pass it on."""
        limit = self.largest(head.site)
        if head.length > limit:
            raise Refused(413, f"a reply of this site has at most {limit} bytes")
        if not self.mailbox.is_open(head.site, head.instruction):
            raise Refused(410, "this reply is not pending")
        before = self._uploads.get(head.site)
        if before is not None and before is not gate:  # the connection of the site was lost
            before.close()
        self._uploads[head.site] = gate  # limits a site to the memory of one reply
        try:
            content = await _read_body(receive, head)
        finally:
            if self._uploads.get(head.site) is gate:
                del self._uploads[head.site]
        self.mailbox.reply(head.site, head.instruction, content)
        poll = self._polls.get(head.site)
        if poll is not None and poll.at_work == head.instruction:
            poll.at_work = ""  # the message may be sent again
        await _respond(send, 204, b"", {}, closes=False)


def _read_length(headers: list[tuple[bytes, bytes]]) -> int:
    """Return the length of the body. Raises Refused if it is missing or the body is encoded."""
    names = {name for name, _ in headers}
    if b"content-encoding" in names or b"transfer-encoding" in names:
        raise Refused(415, "send the body without an encoding")
    if b"expect" in names:
        raise Refused(417, "the header Expect is not supported")
    length = [value for name, value in headers if name == b"content-length"]
    is_number = len(length) == 1 and length[0].isdigit() and len(length[0]) <= DIGITS
    if not is_number:
        raise Refused(411, "the header Content-Length is missing")
    return int(length[0])


async def _read_body(receive: Receive, head: Head) -> bytes:
    """Return the announced body. Raises Refused if it differs or is too slow."""
    body = bytearray()  # a list of small parts would need far more memory
    try:
        async with asyncio.timeout(SECONDS + head.length / SLOWEST):
            while True:
                part = await receive()
                if part["type"] != "http.request":
                    raise Refused(400, "the body ended too early")
                body += part.get("body", b"")
                if not part.get("more_body", False):
                    break
    except TimeoutError as error:
        raise Refused(408, "the body was sent too slowly") from error
    content = bytes(body)
    if sum_of(content) != head.body:
        raise Refused(400, "the body differs from the signed one")
    return content


async def _wait_for(event: asyncio.Event) -> None:
    await event.wait()


async def _wait_for_end(receive: Receive) -> None:
    """Return when the client has closed the connection."""
    while (await receive())["type"] == "http.request":
        pass


async def _respond(
    send: Send,
    status: int,
    body: bytes,
    headers: Mapping[str, str],
    closes: bool = True,
) -> None:
    """Send a complete response."""
    fields = [(name.encode(), value.encode()) for name, value in headers.items()]
    if status != 204:
        fields.append((b"content-length", str(len(body)).encode()))
        fields.append((b"content-type", b"application/octet-stream"))
    fields.append((b"cache-control", b"no-store"))
    if closes:
        fields.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": status, "headers": fields})
    await send({"type": "http.response.body", "body": body})
