"""systemd drop-in that restricts a site's connections to the required addresses."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from threading import Thread

from fallow.deployment.site.settings import Settings
from fallow.storage.files import write_whole
from fallow.transport.address import is_loopback

DROP_IN = "systemd.conf"
"""File in a site's folder, to be copied to ``fallow-site@NAME.service.d/``."""
RESOLVER = Path("/etc/resolv.conf")
PATIENCE = 3.0  # seconds for a lookup; a dead name server would take half a minute
HEAD = """\
# Addresses that systemd lets this site reach; the unit fallow-site@ denies all others.
# As root, where NAME is the name of this folder, and again after each change:
#   install -D -m 644 systemd.conf /etc/systemd/system/fallow-site@NAME.service.d/network.conf
#   systemctl daemon-reload
[Service]
"""


@dataclass(frozen=True)
class AllowedAddresses:
    """IP addresses of the machine that a site connects to, and of its name servers.

    Attributes
    ----------
    host : str or None
        The coordinator's machine, or the proxy in front of it. None if the site only connects to
        its own machine or has no address.
    addresses : tuple of str
        IP addresses of `host`; empty if the lookup failed.
    name_servers : tuple of str
        IP addresses of name servers; empty if `host` is an IP address.
    """

    host: str | None
    addresses: tuple[str, ...] = ()
    name_servers: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Describe the permitted connections in one line."""
        if self.host is None:
            return "this machine only"
        if not self.addresses:
            return (
                f"this machine only: {self.host} could not be looked up, so add "
                "its IP addresses to the file"
            )
        line = ", ".join(self.addresses)
        if self.name_servers:
            line = f"{self.host} ({line}) and name servers {', '.join(self.name_servers)}"
        return line

    def to_drop_in(self) -> str:
        """Return the text of the drop-in."""
        lines = []
        if self.host is not None and not self.addresses:
            lines.append(f"# {self.host} could not be looked up; add its IP addresses:")
            lines.append("# IPAddressAllow=")
        if self.addresses:
            lines.append(f"# {self.host}, as looked up by 'fallow site init'")
        lines += [f"IPAddressAllow={address}" for address in self.addresses]
        if self.name_servers:
            lines.append(f"# name servers of {RESOLVER}")
        lines += [f"IPAddressAllow={address}" for address in self.name_servers]
        return HEAD + "".join(f"{line}\n" for line in lines)


def write_drop_in(folder: Path, allowed: AllowedAddresses) -> Path:
    """Write the drop-in into a site's folder and return its path."""
    file = folder / DROP_IN
    write_whole(file, allowed.to_drop_in().encode())
    return file


def find_allowed_addresses(
    settings: Settings, resolver: Path = RESOLVER
) -> AllowedAddresses:
    """Look up the machine that a site with these settings connects to.

    Parameters
    ----------
    settings : Settings
        Address of the coordinator, and of a proxy in front of it.
    resolver : Path
        The file that lists the name servers of this machine.
    """
    host = find_host(settings)
    if host is None or is_loopback(host):
        return AllowedAddresses(None)
    if _is_ip_address(host):
        return AllowedAddresses(host, (host,))
    return AllowedAddresses(host, look_up(host), read_name_servers(resolver))


def find_host(settings: Settings) -> str | None:
    """Return the machine that a site connects to, without its port.

    >>> find_host(Settings("basel", "rows.csv", address="fallow.example.org:443"))
    'fallow.example.org'
    >>> find_host(
    ...     Settings(
    ...         "basel", "rows.csv", address="a.example:1", proxy="http://u:p@[::2]:3128/"
    ...     )
    ... )
    '::2'
    """
    address = settings.address
    if settings.proxy is not None:
        rest = settings.proxy.partition("://")[2]
        address = rest.rpartition("@")[2].rstrip("/")
    if address is None:
        return None
    return address.rpartition(":")[0].strip("[]")


def look_up(host: str, patience: float = PATIENCE) -> tuple[str, ...]:
    """Return the IP addresses of a machine; empty if the lookup takes more than `patience` seconds."""
    addresses: list[str] = []

    def ask() -> None:
        try:
            answers = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except OSError:
            return
        addresses.extend(str(answer[4][0]) for answer in answers)

    # a thread, because a lookup has no timeout
    lookup = Thread(target=ask, daemon=True)
    lookup.start()
    lookup.join(patience)
    return tuple(sorted(filter(_is_ip_address, set(addresses))))


def read_name_servers(file: Path) -> tuple[str, ...]:
    """Return the name servers in a ``resolv.conf``, except those of this machine."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return ()
    servers = []
    for line in lines:
        words = line.split()
        if len(words) < 2 or words[0] != "nameserver" or not _is_ip_address(words[1]):
            continue
        if not is_loopback(words[1]):
            servers.append(words[1])
    return tuple(servers)


def _is_ip_address(text: str) -> bool:
    """Return whether systemd accepts a text as an IP address, which has no zone (``%eth0``)."""
    try:
        ip_address(text)
    except ValueError:
        return False
    return "%" not in text
