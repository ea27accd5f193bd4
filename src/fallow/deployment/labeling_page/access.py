"""Access control of the labeling page: token, cookie and request headers.

The page listens on the loopback interface only. Other programs on the machine, and every website
that is open in the same browser, can reach that interface too. Each request must therefore use one
of the page's host names (protection against DNS rebinding) and carry the cookie that only the token
sets. A request that changes something must also originate from the page itself.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import final
from urllib.parse import unquote

from starlette.datastructures import Headers

from fallow.deployment.labeling_page.forms import name_of
from fallow.deployment.labeling_page.languages import translate

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "Cache-Control": "no-store",  # reload on the back button, and store nothing on disk
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "same-origin",  # with no-referrer, browsers would hide the origin of forms
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
ENTRANCE = "/enter"
NAME = "fallow-who"
"""Cookie with the annotator's name, which distinguishes annotators and is not a password."""


def refuse_foreign_form(method: str, headers: Headers, page: str) -> tuple[int, str] | None:
    """Reject a request that changes something and does not originate from the page.

    ``page`` is the origin of the page, as browsers send it.
    """
    changes = method not in ("GET", "HEAD")
    if changes and headers.getlist("origin") != [page]:
        return 403, translate(
            "This form was not sent by the labeling page; nothing was changed."
        )
    return None


@final
@dataclass(frozen=True)
class TokenAccess:
    """Access by token. A new ``token`` is drawn at each start. ``port`` is the port of the page."""

    port: int
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24))

    @property
    def address(self) -> str:
        """Return the address to open in a browser."""
        return f"http://127.0.0.1:{self.port}{ENTRANCE}?token={self.token}"

    @property
    def asks_for_names(self) -> bool:
        """Return True: annotators enter a name, which is stored in a cookie."""
        return True

    def find_name(self, headers: Headers, cookies: Mapping[str, str]) -> str | None:
        """Return the annotator's name from the cookie."""
        try:
            return name_of(unquote(cookies.get(NAME, "")))
        except ValueError:
            return None

    @property
    def hosts(self) -> tuple[str, ...]:
        """Return the host names under which a browser may open the page."""
        return (f"127.0.0.1:{self.port}", f"localhost:{self.port}")

    @property
    def cookie(self) -> str:
        """Return the name of the cookie, which includes the port.

        Cookies are shared between ports, and two sites may be labeled on one machine.
        """
        return f"fallow-{self.port}"

    @property
    def key(self) -> str:
        """Return the value of the cookie, from which the token cannot be derived."""
        return hashlib.sha256(f"fallow page {self.token}".encode()).hexdigest()

    def opens(self, token: str) -> bool:
        """Return whether a token is the valid one."""
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
        """Return the status and message of a rejection, or None if the request may pass."""
        host = ", ".join(headers.getlist("host"))
        if host not in self.hosts:
            return 421, translate(
                "This page is at %(host)s only, not at '%(other)s'.",
                host=self.hosts[0],
                other=host,
            )
        foreign = refuse_foreign_form(method, headers, f"http://{host}")
        if foreign is not None:
            return foreign
        if path == ENTRANCE:
            return None
        if not hmac.compare_digest(
            cookies.get(self.cookie, "").encode(), self.key.encode()
        ):
            return 403, translate(
                "This page needs the latest address that 'fallow label' printed; "
                "open that one. Nothing was changed, and saved labels are safe."
            )
        return None
