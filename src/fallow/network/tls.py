"""Who is at the other end: TLS contexts of both sides.  A certificate is always verified."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

from fallow.network.flower.certificates import Tls


@dataclass(frozen=True)
class Pair:
    """Files (PEM) of a certificate and of its key."""

    certificate: Path
    key: Path


def make_server_context(tls: Tls, clients: Path | None = None) -> ssl.SSLContext:
    """Of the coordinator's machine.  clients: the authority whose certificates sites have to show
    (mutual TLS); None: they show none, and are known by their signatures alone.

    Raises ValueError where a file cannot be used.
    """
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    _restrict(context)
    _load_pair(context, Pair(tls.certificate, tls.key))
    if clients is not None:
        _load_authority(context, clients)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def make_site_context(authority: Path | None, own: Pair | None = None) -> ssl.SSLContext:
    """Of a site.  authority: by which the coordinator's machine is known and nothing else is; None:
    those that this system trusts.  own: the certificate that the site shows.

    Raises ValueError where a file cannot be used.
    """
    # with an authority given, those of the system are not loaded: it is pinned
    if authority is None:
        context = ssl.create_default_context()
    else:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        _load_authority(context, authority)
    _restrict(context)
    if own is not None:
        _load_pair(context, own)
    return context


def _restrict(context: ssl.SSLContext) -> None:
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])


def _load_authority(context: ssl.SSLContext, authority: Path) -> None:
    try:
        context.load_verify_locations(authority)
    except (OSError, ssl.SSLError) as error:
        raise ValueError(
            f"{authority} holds no certificate of an authority ({error}): give a PEM file"
        ) from error


def _load_pair(context: ssl.SSLContext, pair: Pair) -> None:
    try:
        context.load_cert_chain(pair.certificate, pair.key, _ask_nobody)
    except (OSError, ssl.SSLError, ValueError) as error:
        raise ValueError(
            f"{pair.certificate} and {pair.key} are no certificate with its key ({error}): give "
            "two PEM files that belong together, the key without a password"
        ) from error


def _ask_nobody() -> str:
    """A key with a password would else ask for it at a terminal that a service does not have."""
    raise ValueError("the key has a password")
