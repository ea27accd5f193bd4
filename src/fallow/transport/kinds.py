"""Transports by name: those of Fallow, and those of installed distributions."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from ipaddress import ip_address

from fallow.core.extensions import (
    explain_missing,
    find_extension,
    list_extensions,
    load_extension,
)
from fallow.core.names import ClassKind, NamePolicy, check_name
from fallow.core.terms import nearest
from fallow.transport.nvflare.app.fallow_tunnel.tunnel import PORT

FLOWER = "flower"
HTTPS = "https"
NVFLARE = "nvflare"
USUAL = HTTPS
"""Default transport."""


EVERYWHERE = "0.0.0.0:9092"
LOCALLY = "127.0.0.1:9092"


@dataclass(frozen=True)
class TransportKind:
    """Properties of a transport.

    Parameters
    ----------
    title
        Name for display.
    setting
        Setting of ``site.toml`` with the coordinator's address.
    packages
        Required packages that the distribution of the transport does not require itself.
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
    setting: str = "address"
    packages: tuple[str, ...] = ()
    extra: str = ""
    is_plain_https: bool = False
    listen: str = EVERYWHERE
    nearby: str | None = None


TRANSPORTS: dict[str, TransportKind] = {
    FLOWER: TransportKind(
        title="Flower, over TLS", setting="superlink", packages=("flwr",), extra="flower"
    ),
    HTTPS: TransportKind(
        title="HTTPS",
        setting="address",
        packages=("httpx", "uvicorn"),
        extra="deploy",
        is_plain_https=True,
    ),
    # both machines connect to local NVFlare processes, which forward the HTTPS traffic
    NVFLARE: TransportKind(
        title="NVFlare",
        setting="address",
        packages=("httpx", "uvicorn"),
        extra="deploy",
        listen=LOCALLY,
        nearby=f"127.0.0.1:{PORT}",
    ),
}


TRANSPORT = ClassKind("transport", members=("open", "connect"), group="fallow.transports")
"""Required kind of an extension: `fallow.deployment.transports.base.TransportFactory`."""


def check_transport(name: str, policy: NamePolicy, setting: str) -> None:
    """Raise ValueError, naming the setting, for a transport that is not available or not allowed.

    Nothing is imported.
    """
    if name in TRANSPORTS:
        return
    target = find_extension(TRANSPORT, name)
    if target is None:
        known = sorted({*TRANSPORTS, *list_extensions("fallow.transports")})
        hint = nearest(name, known, f"it is one of {', '.join(known)}")
        missing = explain_missing(TRANSPORT, name)
        if missing is not None:
            raise ValueError(f"{setting}: {missing}")
        raise ValueError(f"{setting} is {name!r:.80}{hint}")
    try:
        check_name(target, policy)
    except ValueError as error:
        raise ValueError(f"{setting}: {error}") from error


def find_kind(name: str, policy: NamePolicy) -> TransportKind:
    """Return the properties of a transport, whose code is loaded if ``policy`` allows it."""
    if name in TRANSPORTS:
        return TRANSPORTS[name]
    kind = load_extension(TRANSPORT, name, policy).kind
    if not isinstance(kind, TransportKind):
        raise ValueError(f"the transport {name!r} has no attribute kind, a TransportKind")
    return kind


def find_title(name: str) -> str:
    """Return the name of a transport for display; nothing is imported."""
    if name in TRANSPORTS:
        return TRANSPORTS[name].title
    return name


def check_packages(kind: TransportKind) -> None:
    """Raise ValueError if a package of a transport is not installed.

    No package is imported, because reading an agreement needs none of them.
    """
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
