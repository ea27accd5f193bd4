"""A site's requests: signed, over TLS, through a proxy where there is one."""

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
from fallow.network.https.signed import (
    ANSWER,
    CHALLENGE,
    CHALLENGE_HEADER,
    COUNT,
    COUNT_HEADER,
    POLL,
    Head,
    find_header,
    sum_of,
)
from fallow.network.links import is_loopback
from fallow.network.tls import Pair, make_site_context

LARGEST = 2**31  # bytes of a message
CONNECT = 15.0  # seconds until a connection stands
SILENT = 60.0  # seconds without a byte: a poll waits for 20
SENTENCE = 200  # characters of a refusal that are shown
FIRST = "0" * 32  # a challenge, before the coordinator has told its own
TRIES = 3  # of one request, where each time something new was learned


class NotTaken(Exception):
    """The coordinator's machine is not reached, or answers as it should not; in words for people."""


@dataclass(frozen=True)
class Calling:
    """How a site calls its coordinator.

    address: ``host:port``; authority: of the certificate that is shown there, None: those that the
    system trusts; own: the certificate that this site shows, where one is wanted.  proxy: its
    address, None: as the environment says (``HTTPS_PROXY``, ``NO_PROXY``).  tunnel: what leads to
    the coordinator from a port of this machine, None: nothing does.
    """

    address: str
    authority: Path | None = None
    own: Pair | None = None
    proxy: str | None = None
    tunnel: str | None = None

    def check(self) -> None:
        """Raise ValueError where a certificate cannot be used."""
        make_site_context(self.authority, self.own)

    @property
    def url(self) -> str:
        """Where requests go: always over TLS."""
        return f"https://{self.address}"

    @property
    def uses_environment(self) -> bool:
        """Whether the environment names a proxy; never for this machine itself."""
        host = self.address.rpartition(":")[0].strip("[]")
        return not is_loopback(host)


@final
class Caller:
    """Asks the coordinator for messages and brings answers.

    secret: the site's signing key; study: the digest of what was agreed on.
    """

    def __init__(self, calling: Calling, site: SiteId, study: str, secret: bytes) -> None:
        self._calling = calling
        self._site = site
        self._study = study
        self._secret = secret
        self._challenge = FIRST
        self._count = 0  # of the newest request under this challenge
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
        """End every connection."""
        await self._client.aclose()

    async def poll(self, at_work: str) -> bytes:
        """The next message, another than the one at work; nothing where there is none for now.

        Raises NotTaken.
        """
        return await self._request(POLL, at_work, b"")

    async def bring(self, order: str, answer: bytes) -> None:
        """Hand the answer to a message over.  Raises NotTaken."""
        await self._request(ANSWER, order, answer)

    async def _request(self, path: str, order: str, body: bytes) -> bytes:
        """What the coordinator answers.

        The first request to a process of the coordinator learns its challenge, and is sent again.
        """
        for _ in range(TRIES):
            try:
                status, answer, is_news = await self._request_once(path, order, body)
            except httpx.HTTPError as error:
                raise NotTaken(self._explain(error)) from error
            if status in (200, 204):
                return answer
            if path == ANSWER and status == 410:
                return b""  # nobody waits for it any more
            if not is_news:
                break
        raise NotTaken(self._describe_refusal(status, answer))

    async def _request_once(
        self, path: str, order: str, body: bytes
    ) -> tuple[int, bytes, bool]:
        """Status and body of an answer, and whether it told a challenge or a count that was new."""
        self._count += 1
        head = Head(
            site=self._site,
            study=self._study,
            path=path,
            challenge=self._challenge,
            count=self._count,
            order=order,
            length=len(body),
            body=sum_of(body),
        )
        url = f"{self._calling.url}{path}"
        fields = head.write(self._secret)
        opened = Opened()
        request = self._client.stream(
            "POST",
            url,
            headers=fields,
            content=body,
            extensions={"trace": opened.note},
        )
        try:
            async with request as response:
                answer = await _read(response)
        except asyncio.CancelledError:
            await opened.aclose()
            raise
        self._client.cookies.clear()
        is_news = False
        if response.status_code in (401, 409):
            is_news = self._learn(response)
        return response.status_code, answer, is_news

    def _learn(self, response: httpx.Response) -> bool:
        """Take the challenge and the count of an answer; False where it tells no challenge.

        Counts begin again under another challenge.
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

    # -- words ------------------------------------------------------------------------------

    def _explain(self, error: httpx.HTTPError) -> str:
        """Why a request failed, in words for the people of the site."""
        at = f"the coordinator at {self._calling.address}"
        text = str(error).lower()
        why = str(error) or type(error).__name__
        if "certificate verify failed" in text:
            whose = self._calling.authority or "this system"
            return (
                f"{at} did not show a certificate for that address of the authority in {whose}: "
                "another machine may speak in its place, or its certificate does not name this "
                "address; ask the coordinator by another way"
            )
        # asyncio closes a connection without the reason that TLS has for it
        is_silent = "without sending a response" in text
        tunnel = self._calling.tunnel
        if tunnel is not None:
            return (
                f"{at} is not reached ({why}): {tunnel} may not run on this machine, or the "
                "coordinator may not run yet"
            )
        if "certificate required" in text or is_silent:
            return (
                f"{at} closes the connection without a word: it may want a certificate of this "
                "site, or another one (own_certificate and own_key in site.toml), or it just ends"
            )
        if isinstance(error, httpx.ProxyError):
            return (
                f"the proxy between this site and {at} does not let it through ({error}): check "
                "proxy in site.toml or HTTPS_PROXY, and what it allows"
            )
        return (
            f"{at} is not reached ({why}): it may not run yet, or a firewall or proxy is in "
            "between"
        )

    def _describe_refusal(self, status: int, answer: bytes) -> str:
        """What another status than expected means, in words for the people of the site."""
        at = f"the coordinator at {self._calling.address}"
        if status == 403:
            return (
                f"site {self._site} is not admitted by {at} yet: send join.json; or it was, and "
                "the coordinator was not started again since"
            )
        output = answer[:SENTENCE].decode("ascii", errors="replace")
        shown = "".join(letter for letter in output if letter.isprintable())
        return f"{at} answers {status} ({shown}): is it a coordinator of Fallow?"


class Opened(AsyncExitStack):
    """Ends, where its request is cancelled, what was opened for it.

    httpx does not close a connection on which TLS does not stand yet.
    """

    async def note(self, event: str, about: Mapping[str, Any]) -> None:
        """What httpx tells of a request's progress."""
        if event == "connection.connect_tcp.complete":
            self.push_async_callback(about["return_value"].aclose)


async def _read(response: httpx.Response) -> bytes:
    """The body of an answer as it is.  Raises NotTaken for one that is too large or encoded."""
    if response.headers.get("content-encoding", "identity") != "identity":
        raise NotTaken("the coordinator's answer is encoded, which it never is")
    length = response.headers.get("content-length", "0")
    if not length.isdecimal() or int(length) > LARGEST:
        raise NotTaken(f"the coordinator's answer is too large ({length:.40} bytes)")
    body = bytearray()  # a list of small parts would take many times their bytes
    async for part in response.aiter_raw():
        if len(body) + len(part) > LARGEST:
            raise NotTaken(f"the coordinator's answer is above {LARGEST} bytes")
        body += part
    return bytes(body)
