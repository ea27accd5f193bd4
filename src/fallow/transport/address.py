"""Addresses of machines (``host:port``)."""

from __future__ import annotations

from ipaddress import ip_address

EVERYWHERE = "0.0.0.0:9092"
LOCALLY = "127.0.0.1:9092"


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
