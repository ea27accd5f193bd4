"""Addresses of machines (``host:port``) and their validation."""

from __future__ import annotations

import errno
import re
import socket
from ipaddress import ip_address
from time import monotonic, sleep

EVERYWHERE = "0.0.0.0:9092"
LOCALLY = "127.0.0.1:9092"
NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_.])?")
PORTS = 65535
LOOK = 0.5  # seconds between two attempts to bind


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


def find_reachable(address: str) -> str:
    """Return the address at which this machine reaches a listening address.

    >>> find_reachable("0.0.0.0:9092"), find_reachable("[::]:9092")
    ('127.0.0.1:9092', '[::1]:9092')
    >>> find_reachable("10.0.0.7:9092")
    '10.0.0.7:9092'
    """
    host, _, port = address.rpartition(":")
    try:
        listening = ip_address(host.strip("[]"))
    except ValueError:
        return address
    if not listening.is_unspecified:
        return address
    if listening.version == 6:
        return f"[::1]:{port}"
    return f"127.0.0.1:{port}"


def check_address(address: str, what: str) -> str:
    """Return a valid ``host:port`` unchanged. Raises ValueError, naming ``what``, otherwise.

    >>> check_address("[::1]:9092", "address")
    '[::1]:9092'
    """
    host, _, port = address.rpartition(":")
    if not host or not (port.isascii() and port.isdecimal()):
        raise ValueError(
            f"{what} is {address!r}; give host:port, such as fallow.example.org:9092"
        )
    if not 1 <= int(port) <= PORTS:
        raise ValueError(f"{what} is {address!r}; a port is a number from 1 to {PORTS}")
    if ":" in host and not (host.startswith("[") and host.endswith("]")):
        raise ValueError(
            f"{what} is {address!r}; give host:port without a scheme such as https://, and an IPv6 "
            f"address in brackets, such as [::1]:{port}"
        )
    check_host(host.removeprefix("[").removesuffix("]"), what)
    return address


def check_host(host: str, what: str) -> str:
    """Return a valid host name or IP address unchanged. Raises ValueError otherwise.

    >>> check_host("fallow.example.org", "host"), check_host("::1", "host")
    ('fallow.example.org', '::1')
    """
    if NAME.fullmatch(host):
        return host
    try:
        ip_address(host)
    except ValueError as error:
        raise ValueError(
            f"{what}: {host!r} is not a host; give its name or IP address without "
            "https:// and port, in ASCII letters (xn--... for others)"
        ) from error
    return host


def check_proxy(proxy: str) -> str:
    """Return a valid proxy address unchanged. Raises ValueError otherwise.

    >>> check_proxy("http://proxy.example:3128")
    'http://proxy.example:3128'
    """
    scheme, _, rest = proxy.partition("://")
    if scheme not in ("http", "https") or not rest:
        raise ValueError(
            f"proxy is {proxy.rpartition('@')[2]!r}; give its address with the scheme, such as "
            "http://proxy.example:3128"
        )
    # a user name and a password may precede the host, and must not be shown
    check_address(rest.rpartition("@")[2].rstrip("/"), "proxy")
    return proxy


def find_bind_problem(host: str, port: int, patience: float = 0.0) -> str | None:
    """Return why no socket can listen at an address of this machine, or None if one can.

    ``patience`` is the time in seconds that another program has to release the port.
    """
    end = monotonic() + patience
    while (error := _try_to_bind(host, port)) is not None:
        if error.errno != errno.EADDRINUSE:
            return error.strerror or str(error)
        if monotonic() >= end:
            return "another program uses this port"
        sleep(LOOK)
    return None


def _try_to_bind(host: str, port: int) -> OSError | None:
    try:
        details = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        family, kind, protocol, _, endpoint = details
        with socket.socket(family, kind, protocol) as values:
            values.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            values.bind(endpoint)
    except OSError as error:
        return error
    return None
