"""Available transports by name."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from ipaddress import ip_address

from fallow.transport.nvflare.app.fallow_tunnel.tunnel import PORT

FLOWER = "flower"
HTTPS = "https"
NVFLARE = "nvflare"
USUAL = HTTPS
"""Default transport."""


EVERYWHERE = "0.0.0.0:9092"
LOCALLY = "127.0.0.1:9092"


@dataclass(frozen=True)
class LinkKind:
    """Properties of a transport.

    Parameters
    ----------
    title
        Name for display.
    setting
        Setting of ``site.toml`` with the coordinator's address.
    packages
        Required packages.
    extra
        Extra of Fallow that installs them.
    is_plain_https
        Both machines may use their own certificates, and a proxy may be in between.
    listen
        Default address of the coordinator.
    nearby
        Default address for a site, or None if a site must set it.
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
    # both machines connect to local NVFlare processes, which forward the HTTPS traffic
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
    """Raise ValueError if a package of a transport is not installed.

    No package is imported, because reading an agreement needs none of them.
    """
    kind = LINKS[link]
    for package in kind.packages:
        if find_spec(package) is None:
            raise ValueError(
                f"connections to sites need the package {package}, which is not "
                f"installed; install it with: pip install 'fallow[{kind.extra}]'"
            )


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach an address.

    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
