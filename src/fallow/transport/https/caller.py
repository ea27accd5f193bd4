"""Signed requests of a site over TLS, optionally through a proxy."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import httpx

from fallow.core.types import SiteId
from fallow.transport.address import is_loopback
from fallow.transport.https.signed import (
    CHALLENGE,
    CHALLENGE_HEADER,
    COUNT,
    COUNT_HEADER,
    POLL,
    REPLY,
    Head,
    find_header,
    sum_of,
)
from fallow.transport.tls import Pair, make_site_context

LARGEST = 2**31  # largest message in bytes
CONNECT = 15.0  # timeout for a connection in seconds
SILENT = 60.0  # seconds without data; a poll waits for 20
SENTENCE = 200  # characters of a rejection that are shown
FIRST = "0" * 32  # initial challenge, before the coordinator has sent its own
TRIES = 3  # attempts of a request, if each brings a new challenge or count


class RequestFailed(Exception):
    """The coordinator cannot be reached or sends an unexpected response."""


@dataclass(frozen=True)
class ConnectionSettings:
    """Connection settings of a site.

    ``address`` is ``host:port``. ``authority`` is that of the coordinator's certificate (None:
    those of the operating system). ``own`` is the site's certificate for mutual TLS. ``proxy`` is
    the proxy's address (None: from ``HTTPS_PROXY`` and ``NO_PROXY``). ``tunnel`` is the program
    that forwards a local port to the coordinator, or None.
    """

    address: str
    authority: Path | None = None
    own: Pair | None = None
    proxy: str | None = None
    tunnel: str | None = None

    def check(self) -> None:
        """Raise ValueError if a certificate cannot be used."""
        make_site_context(self.authority, self.own)

    @property
    def url(self) -> str:
        """Return the base URL of requests, always over TLS."""
        return f"https://{self.address}"

    @property
    def uses_environment(self) -> bool:
        """Return whether the environment sets a proxy. Local addresses never use one."""
        host = self.address.rpartition(":")[0].strip("[]")
        return not is_loopback(host)


@final
class Caller:
    """Client that requests messages from the coordinator and sends replies.

    ``secret`` is the site's signing key. ``study`` is the hash of the agreement.
    """

    def __init__(
        self, calling: ConnectionSettings, site: SiteId, study: str, secret: bytes
    ) -> None:
        self._calling = calling
        self._site = site
        self._study = study
        self._secret = secret
        self._challenge = FIRST
        self._count = 0  # count of the newest request under this challenge
        context: ssl.SSLContext = make_site_context(calling.authority, calling.own)
        self._client = httpx.AsyncClient(
            verify=context,
            proxy=calling.proxy,
            trust_env=calling.uses_environment,
            follow_redirects=False,
            timeout=httpx.Timeout(SILENT, connect=CONNECT, pool=None),
            headers={"user-agent": "fallow", "accept-encoding": "identity"},
        )

    async def close(self) -> None:
        """Close every connection."""
        await self._client.aclose()

    async def poll(self, at_work: str) -> bytes:
        """Return the next message that differs from the current one, or b"" if there is none.

        Raises RequestFailed.
        """
        return await self._request(POLL, at_work, b"")

    async def bring(self, instruction: str, reply: bytes) -> None:
        """Send the reply to a message. Raises RequestFailed."""
        await self._request(REPLY, instruction, reply)

    async def _request(self, path: str, instruction: str, body: bytes) -> bytes:
        """Return the coordinator's response.

        The first request to a new coordinator process receives its challenge and is repeated.
        """
        for _ in range(TRIES):
            try:
                status, reply, is_renewed = await self._request_once(
                    path, instruction, body
                )
            except httpx.HTTPError as error:
                raise RequestFailed(self._explain(error)) from error
            if status in (200, 204):
                return reply
            if path == REPLY and status == 410:
                return b""  # the reply is no longer pending
            if not is_renewed:
                break
        raise RequestFailed(self._describe_refusal(status, reply))

    async def _request_once(
        self, path: str, instruction: str, body: bytes
    ) -> tuple[int, bytes, bool]:
        """Return status and body of a response, and whether it has a new challenge or count."""
        self._count += 1
        head = Head(
            site=self._site,
            study=self._study,
            path=path,
            challenge=self._challenge,
            count=self._count,
            instruction=instruction,
            length=len(body),
            body=sum_of(body),
        )
        url = f"{self._calling.url}{path}"
        fields = head.write(self._secret)
        opened = CancelledConnections()
        request = self._client.stream(
            "POST",
            url,
            headers=fields,
            content=body,
            extensions={"trace": opened.note},
        )
        try:
            async with request as response:
                reply = await _read(response)
        except asyncio.CancelledError:
            await opened.aclose()
            raise
        self._client.cookies.clear()
        is_renewed = False
        if response.status_code in (401, 409):
            is_renewed = self._learn(response)
        return response.status_code, reply, is_renewed

    def _learn(self, response: httpx.Response) -> bool:
        """Store the challenge and count of a response. Returns False without a challenge.

        Counts restart with each challenge.
        """
        challenge = find_header(dict(response.headers), CHALLENGE_HEADER, CHALLENGE)
        count = find_header(dict(response.headers), COUNT_HEADER, COUNT)
        if challenge is None:
            return False
        if challenge != self._challenge:
            self._challenge = challenge
            self._count = 0
        if count is not None:
            self._count = int(count)
        return True

    # -- messages for users ------------------------------------------------------------------

    def _explain(self, error: httpx.HTTPError) -> str:
        """Return a message for the site that explains the failure of a request."""
        at = f"the coordinator at {self._calling.address}"
        text = str(error).lower()
        why = str(error) or type(error).__name__
        if "certificate verify failed" in text:
            whose = self._calling.authority or "this system"
            return (
                f"{at} did not present a certificate for that address from the "
                f"authority in {whose}: it may be another machine, or its "
                "certificate does not contain this address; ask the coordinator "
                "over another channel"
            )
        # asyncio closes a connection without the TLS error, sometimes before it is read
        is_silent = "without sending a response" in text
        is_silent = is_silent or isinstance(error, httpx.ReadError)
        tunnel = self._calling.tunnel
        if tunnel is not None:
            return (
                f"{at} cannot be reached ({why}): {tunnel} may not run on this "
                "machine, or the coordinator may not run yet"
            )
        if "certificate required" in text or is_silent:
            return (
                f"{at} closed the connection without a response: it may require a "
                "certificate of this site, or another one (own_certificate and "
                "own_key in site.toml), or it is shutting down"
            )
        if isinstance(error, httpx.ProxyError):
            return (
                f"the proxy between this site and {at} rejects the connection "
                f"({error}): check proxy in site.toml or HTTPS_PROXY, and the "
                "permitted addresses of the proxy"
            )
        return (
            f"{at} cannot be reached ({why}): it may not run yet, or a firewall or "
            "proxy blocks the connection"
        )

    def _describe_refusal(self, status: int, reply: bytes) -> str:
        """Return a message for the site that describes an unexpected status."""
        at = f"the coordinator at {self._calling.address}"
        if status == 403:
            return (
                f"site {self._site} is not admitted by {at} yet: send join.json to "
                "the coordinator; if it was admitted, the coordinator must be "
                "restarted"
            )
        output = reply[:SENTENCE].decode("ascii", errors="replace")
        shown = "".join(letter for letter in output if letter.isprintable())
        return (
            f"{at} responds with {status} ({shown}): check that it is a Fallow coordinator"
        )


class CancelledConnections(AsyncExitStack):
    """Connections of a cancelled request, which httpx does not close during the TLS handshake."""

    async def note(self, event: str, details: Mapping[str, Any]) -> None:
        """Record progress events of a request from httpx."""
        if event == "connection.connect_tcp.complete":
            self.push_async_callback(details["return_value"].aclose)


async def _read(response: httpx.Response) -> bytes:
    """Return the raw body of a response. Raises RequestFailed if it is too large or encoded."""
    if response.headers.get("content-encoding", "identity") != "identity":
        raise RequestFailed("the coordinator's response is encoded, which is not supported")
    length = response.headers.get("content-length", "0")
    if not length.isdecimal() or int(length) > LARGEST:
        raise RequestFailed(f"the coordinator's response is too large ({length:.40} bytes)")
    body = bytearray()  # a list of small parts would need far more memory
    async for part in response.aiter_raw():
        if len(body) + len(part) > LARGEST:
            raise RequestFailed(
                f"the coordinator's response is larger than {LARGEST} bytes"
            )
        body += part
    return bytes(body)
