"""Transports by name: those of Fallow, and those of installed distributions."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import ClassVar

from fallow.core.events import EventHandler
from fallow.core.extensions import (
    explain_missing,
    find_extension,
    list_extensions,
    load_extension,
)
from fallow.core.names import ClassKind, NamePolicy, check_name
from fallow.core.refusal import explain_errors
from fallow.core.suggestions import nearest
from fallow.transport.factory import (
    CoordinatorEnd,
    Handle,
    ServedTransport,
    SiteEnd,
    SiteNode,
    TransportFactory,
)

HTTPS = "https"
USUAL = HTTPS
"""Default transport."""


class Https(TransportFactory):
    """HTTPS between the coordinator's process and the process of each site."""

    title: ClassVar[str] = "HTTPS"
    packages: ClassVar[tuple[str, ...]] = ("httpx", "uvicorn")
    extra: ClassVar[str] = "deploy"
    is_plain_https: ClassVar[bool] = True

    @staticmethod
    def open(end: CoordinatorEnd, notify: EventHandler) -> ServedTransport:
        """Create the HTTPS server in this process."""
        from fallow.transport.https import HttpsTransport, Listening

        listening = Listening(end.address, end.tls, end.clients)
        return HttpsTransport(listening, end.study, end.keys, notify)

    @staticmethod
    def connect(end: SiteEnd, handle: Handle, tunnel: str | None = None) -> SiteNode:
        """Create the thread that sends requests to the coordinator.

        ``tunnel`` is the program at the site that forwards them, or None.
        """
        from fallow.transport.https import ConnectionSettings, HttpsNode

        calling = ConnectionSettings(
            end.address, end.authority, end.pair, end.proxy, tunnel
        )
        return HttpsNode(calling, end.name, end.study, end.secret, handle)


FACTORIES: Mapping[str, type[TransportFactory]] = {HTTPS: Https}
"""Transports of Fallow by name."""

TRANSPORT = ClassKind("transport", base=lambda: TransportFactory, group="fallow.transports")
"""Required kind of an extension."""


def check_transport(name: str, policy: NamePolicy, setting: str) -> None:
    """Raise ValueError, naming the setting, for a transport that is not available or not allowed.

    Nothing is imported.
    """
    if name in FACTORIES:
        return
    target = find_extension(TRANSPORT, name)
    if target is None:
        known = sorted({*FACTORIES, *list_extensions("fallow.transports")})
        hint = nearest(name, known, f"it is one of {', '.join(known)}")
        missing = explain_missing(TRANSPORT, name)
        if missing is not None:
            raise ValueError(f"{setting}: {missing}")
        raise ValueError(f"{setting} is {name!r:.80}{hint}")
    with explain_errors(f"{setting}: "):
        check_name(target, policy)


def find_factory(name: str, policy: NamePolicy) -> type[TransportFactory]:
    """Return a transport, whose code is loaded if ``policy`` allows it."""
    if name in FACTORIES:
        return FACTORIES[name]
    factory: type[TransportFactory] = load_extension(TRANSPORT, name, policy)
    return factory


def find_title(name: str) -> str:
    """Return the name of a transport for display; nothing is imported."""
    if name in FACTORIES:
        return FACTORIES[name].title
    return name


def check_packages(factory: type[TransportFactory]) -> None:
    """Raise ValueError if a package of a transport is not installed.

    No package is imported, because reading an agreement needs none of them.
    """
    for package in factory.packages:
        if find_spec(package) is None:
            raise ValueError(
                f"connections to sites need the package {package}, which is not "
                f"installed; install it with: pip install 'fallow-core[{factory.extra}]'"
            )
