"""Who may speak to the page: the token, the cookie, and the headers of a request.

The page listens on this machine alone, but other programs of the machine and every website that is
open in the same browser can reach it too.  So each request must name the page by an address it has
(another name that leads here is how DNS rebinding looks), carry the cookie that only the token
gives, and, where it changes something, come from the page itself.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, final
from urllib.parse import unquote

from starlette.datastructures import Headers

from fallow.federation.page.forms import name_of

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "Cache-Control": "no-store",  # the back button asks again; nothing stays on the disk
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "same-origin",  # with no-referrer, browsers would hide the origin of forms
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
ENTRANCE = "/enter"
NAME = "fallow-who"
"""The cookie with the name that a person has given; it tells people apart and is no password."""


class Entrance(Protocol):
    """What decides who may speak to the page, and who that is."""

    @property
    def address(self) -> str:
        """What a person opens in the browser."""

    @property
    def asks_for_names(self) -> bool:
        """Whether people say themselves who they are."""

    def refuses(
        self,
        method: str,
        path: str,
        *,
        headers: Headers,
        cookies: Mapping[str, str],
        peer: str,
    ) -> tuple[int, str] | None:
        """The status and the sentence of a refusal, or None for a request that may pass.

        peer: the address from which the connection comes.
        """

    def find_name(self, headers: Headers, cookies: Mapping[str, str]) -> str | None:
        """Who is labeling, None where nobody is named."""


def refuse_foreign_form(method: str, headers: Headers, page: str) -> tuple[int, str] | None:
    """The refusal of a request that would change something and was not sent by the page itself.

    page: where the page is, as browsers name the origin of what it sends.
    """
    changes = method not in ("GET", "HEAD")
    if changes and headers.getlist("origin") != [page]:
        return 403, "This form was not sent by the labeling page; nothing was changed."
    return None


@final
@dataclass(frozen=True)
class Door:
    """What opens the page.  ``port``: where it listens; a new ``token`` is drawn at each start."""

    port: int
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24))

    @property
    def address(self) -> str:
        """What a person opens in the browser."""
        return f"http://127.0.0.1:{self.port}{ENTRANCE}?token={self.token}"

    @property
    def asks_for_names(self) -> bool:
        """People say who they are, by a name in a cookie."""
        return True

    def find_name(self, headers: Headers, cookies: Mapping[str, str]) -> str | None:
        """Who is labeling, as the cookie says."""
        try:
            return name_of(unquote(cookies.get(NAME, "")))
        except ValueError:
            return None

    @property
    def hosts(self) -> tuple[str, ...]:
        """The names under which a browser may reach the page."""
        return (f"127.0.0.1:{self.port}", f"localhost:{self.port}")

    @property
    def cookie(self) -> str:
        """Its name; cookies know no ports, and two sites may be labeled on one machine."""
        return f"fallow-{self.port}"

    @property
    def key(self) -> str:
        """The cookie's value, from which the token cannot be found."""
        return hashlib.sha256(f"fallow page {self.token}".encode()).hexdigest()

    def opens(self, token: str) -> bool:
        """Whether a token is the one that was printed."""
        return hmac.compare_digest(token.encode(), self.token.encode())

    def refuses(
        self,
        method: str,
        path: str,
        *,
        headers: Headers,
        cookies: Mapping[str, str],
        peer: str,
    ) -> tuple[int, str] | None:
        """The status and the sentence of a refusal, or None for a request that may pass."""
        host = ", ".join(headers.getlist("host"))
        if host not in self.hosts:
            return 421, f"This page is at {self.hosts[0]} only, not at {host!r}."
        foreign = refuse_foreign_form(method, headers, f"http://{host}")
        if foreign is not None:
            return foreign
        if path == ENTRANCE:
            return None
        if not hmac.compare_digest(
            cookies.get(self.cookie, "").encode(), self.key.encode()
        ):
            return 403, (
                "This page needs the address that 'fallow label' printed when it was started "
                "last; open that one. Nothing was changed, and saved labels are safe."
            )
        return None
