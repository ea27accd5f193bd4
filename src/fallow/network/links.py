"""The links there are, by the name that an agreement gives them."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from ipaddress import ip_address

from fallow.network.nvflare.app.fallow_tunnel.tunnel import PORT

FLOWER = "flower"
HTTPS = "https"
NVFLARE = "nvflare"
USUAL = HTTPS
"""What carries messages where nobody chooses."""


EVERYWHERE = "0.0.0.0:9092"
LOCALLY = "127.0.0.1:9092"


@dataclass(frozen=True)
class LinkKind:
    """What is said of a link before it is used.

    title: for people.  setting: of ``site.toml``, where a site writes its coordinator's address.
    packages: that it needs; extra: of Fallow that brings them.  is_plain_https: the certificates of
    both machines may be their own, and a proxy may be between them.  listen: where a coordinator
    listens, unless it says so itself; nearby: where a site calls, unless it says so itself, None: it
    has to.
    """

    title: str
    setting: str
    packages: tuple[str, ...]
    extra: str
    is_plain_https: bool = False
    listen: str = EVERYWHERE
    nearby: str | None = None


LINKS: dict[str, LinkKind] = {
    FLOWER: LinkKind(
        title="Flower, over TLS", setting="superlink", packages=("flwr",), extra="flower"
    ),
    HTTPS: LinkKind(
        title="HTTPS",
        setting="address",
        packages=("httpx", "uvicorn"),
        extra="deploy",
        is_plain_https=True,
    ),
    # both machines talk to NVFlare's processes on them, which carry what HTTPS sends
    NVFLARE: LinkKind(
        title="NVFlare",
        setting="address",
        packages=("httpx", "uvicorn"),
        extra="deploy",
        listen=LOCALLY,
        nearby=f"127.0.0.1:{PORT}",
    ),
}


def check_packages(link: str) -> None:
    """Raise ValueError where a package that a link needs is not installed.

    None is imported here: who only reads an agreement needs none of them.
    """
    kind = LINKS[link]
    for package in kind.packages:
        if find_spec(package) is None:
            raise ValueError(
                f"real sites are connected by the package {package}, which is not installed; "
                f"install it with: pip install 'fallow[{kind.extra}]'"
            )


def is_loopback(host: str) -> bool:
    """Whether only this machine itself reaches an address.

    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
