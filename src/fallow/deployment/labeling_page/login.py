"""Annotator names from the login of a reverse proxy.

The proxy authenticates the annotators and terminates HTTPS. A request is accepted if it comes from
the proxy's address, carries the secret shared with the page, and names one annotator of the site's
list. All other requests to the port are rejected, whatever headers they have.
"""

from __future__ import annotations

import hmac
import secrets
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import final

from starlette.datastructures import Headers

from fallow.deployment.labeling_page.access import (
    ENTRANCE,
    TokenAccess,
    refuse_foreign_form,
)
from fallow.deployment.labeling_page.forms import name_of
from fallow.deployment.labeling_page.languages import translate
from fallow.deployment.site.settings import PageLogin
from fallow.storage.errors import StorageError
from fallow.storage.files import OTHERS, write_whole

SECRET_HEADER = "fallow-proxy"  # noqa: S105  (the name of the field, not the secret)
SECRET = Path("keys", "page-proxy.secret")
"""Path of the secret that the proxy and the page share, in a site's folder."""
SHORTEST = 32  # shortest secret in characters
RECREATED = "and a new one is created, which the proxy then needs"


@final
@dataclass(frozen=True)
class ProxyAccess:
    """Access through a reverse proxy only.

    ``header`` is the field with the annotator's name. ``annotators`` are the permitted annotators.
    ``proxies`` are the proxy's network addresses. ``host`` is the host name that browsers use.
    ``secret`` is shared by the proxy and the page.
    """

    header: str
    annotators: frozenset[str]
    proxies: frozenset[IPv4Address | IPv6Address]
    host: str
    secret: str

    @property
    def address(self) -> str:
        """Return the address to open in a browser."""
        return f"https://{self.host}/"

    @property
    def asks_for_names(self) -> bool:
        """Return False: the login provides the name."""
        return False

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
        if not self._is_proxy(peer, headers):
            return 403, translate(
                "This page accepts connections through the hospital's login only. "
                "Nothing was changed."
            )
        if headers.getlist("host") != [self.host]:
            return 421, translate(
                "This page is at %(host)s only.", host=f"https://{self.host}"
            )
        foreign = refuse_foreign_form(method, headers, f"https://{self.host}")
        if foreign is not None:
            return foreign
        if path in (ENTRANCE, "/name"):
            return 404, translate(
                "Your name comes from the login and cannot be changed here. Nothing was "
                "changed."
            )
        if self.find_name(headers, cookies) is None:
            return 403, translate(
                "Your login is not on the list of annotators of this site. Ask its "
                "administrator. Nothing was changed."
            )
        return None

    def find_name(self, headers: Headers, cookies: Mapping[str, str]) -> str | None:
        """Return the annotator that the proxy names, if the site's list has that name.

        A repeated header is ignored, because a browser may have sent one of the two.
        """
        named = headers.getlist(self.header)
        if len(named) != 1:
            return None
        try:
            # the proxy sends UTF-8, which Starlette decodes as Latin-1
            annotator = named[0].encode("latin-1").decode()
        except ValueError:
            return None
        if annotator not in self.annotators:
            return None
        return annotator

    def _is_proxy(self, peer: str, headers: Headers) -> bool:
        """Return whether a request comes from the proxy, by its address and the secret."""
        try:
            address = ip_address(peer)
        except ValueError:
            return False
        if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        shown = headers.getlist(SECRET_HEADER)
        if address not in self.proxies or len(shown) != 1:
            return False
        return hmac.compare_digest(shown[0].encode(), self.secret.encode())


AccessControl = TokenAccess | ProxyAccess
"""Access control: decides which requests pass, and who the annotator is."""


def open_proxy_access(folder: Path, login: PageLogin | None) -> ProxyAccess:
    """Return the access control of a page behind a reverse proxy.

    The shared secret is created if it is missing. Raises ValueError if site.toml does not name the
    annotators and the proxy's addresses.
    """
    if login is None:
        raise ValueError(
            f"{folder / 'site.toml'} has no login: add a section [page] with annotators, "
            "proxies and host (docs/operating.md has an example), or omit --behind-proxy"
        )
    annotators = []
    for name in login.annotators:
        if name_of(name) != name:
            raise ValueError(
                f"page.annotators: {name!r} has leading, trailing or repeated spaces"
            )
        annotators.append(name)
    proxies = frozenset(map(ip_address, login.proxies))
    return ProxyAccess(
        header=login.header,
        annotators=frozenset(annotators),
        proxies=proxies,
        host=login.host,
        secret=_find_secret(folder / SECRET),
    )


def _find_secret(file: Path) -> str:
    if not file.exists():
        write_whole(file, f"{secrets.token_urlsafe(32)}\n".encode(), mode=0o600)
    details = file.lstat()
    if not stat.S_ISREG(details.st_mode):
        raise StorageError(f"{file} is not a regular file: delete it, {RECREATED}")
    if details.st_mode & OTHERS:
        raise StorageError(
            f"other accounts can read {file}, and could label under any name: delete "
            f"it, {RECREATED}"
        )
    secret = file.read_text(encoding="utf-8").strip()
    if len(secret) < SHORTEST:
        raise StorageError(
            f"{file} is damaged: it has fewer than {SHORTEST} characters; delete it, {RECREATED}"
        )
    return secret
