"""Certificates and TLS contexts of the coordinator and of sites.

Generated certificates suit a study whose sites exchange files. Certificates are always verified.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING

from fallow.core.optional import import_privacy
from fallow.core.refusal import explain_errors
from fallow.storage.files import FILE, make_folder
from fallow.storage.received import read_named

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.x509 import Certificate, GeneralName, Name

PURPOSE = "a certificate"
AUTHORITY = "Fallow authority"
YEARS = 10
USES = (
    "digital_signature",
    "content_commitment",
    "key_encipherment",
    "data_encipherment",
    "key_agreement",
    "key_cert_sign",
    "crl_sign",
    "encipher_only",
    "decipher_only",
)
LOCAL = ("localhost", "127.0.0.1", "::1")  # for processes on the coordinator's machine


@dataclass(frozen=True)
class Tls:
    """Certificate files (PEM) of a server. Sites receive ``authority``."""

    authority: Path
    certificate: Path
    key: Path

    @staticmethod
    def in_folder(folder: Path) -> Tls:
        """Return the files that `new_tls` writes into a folder."""
        return Tls(folder / "authority.pem", folder / "server.pem", folder / "server.key")


@dataclass(frozen=True)
class Pair:
    """Files (PEM) of a certificate and its private key."""

    certificate: Path
    key: Path


def new_tls(folder: Path, hosts: Sequence[str] = ()) -> Tls:
    """Create an authority and a server certificate for the host names or addresses ``hosts``.

    The private key of the authority is discarded, so that it cannot sign another certificate.
    """
    made = Tls.in_folder(folder)
    elliptic = import_privacy("cryptography.hazmat.primitives.asymmetric.ec", PURPOSE)
    authority = elliptic.generate_private_key(elliptic.SECP256R1())
    server = elliptic.generate_private_key(elliptic.SECP256R1())
    root = _sign_certificate(
        name=AUTHORITY, key=authority, issuer=AUTHORITY, signer=authority, hosts=None
    )
    leaf = _sign_certificate(
        name="Fallow coordinator",
        key=server,
        issuer=AUTHORITY,
        signer=authority,
        hosts=(*LOCAL, *hosts),
    )
    write_new_file(made.authority, _encode_certificate(root))
    write_new_file(made.certificate, _encode_certificate(leaf))
    write_new_file(made.key, encode_key(server, "PKCS8"))
    return made


def make_server_context(tls: Tls, clients: Path | None = None) -> ssl.SSLContext:
    """Return the TLS context of the coordinator.

    ``clients`` is the authority of site certificates (mutual TLS). With None, sites show no
    certificate and authenticate by their signatures only. Raises ValueError for an unusable file.
    """
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    _restrict(context)
    _load_pair(context, Pair(tls.certificate, tls.key))
    if clients is not None:
        _load_authority(context, clients)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def make_site_context(authority: Path | None, own: Pair | None = None) -> ssl.SSLContext:
    """Return the TLS context of a site.

    ``authority`` is the only accepted authority of the coordinator's certificate, or None for those
    of the operating system. ``own`` is the site's certificate. Raises ValueError for an unusable
    file.
    """
    # a configured authority is pinned: system authorities are not loaded
    if authority is None:
        context = ssl.create_default_context()
    else:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        _load_authority(context, authority)
    _restrict(context)
    if own is not None:
        _load_pair(context, own)
    return context


# -- contexts -------------------------------------------------------------------------


def _restrict(context: ssl.SSLContext) -> None:
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])


def _load_authority(context: ssl.SSLContext, authority: Path) -> None:
    _check_readable(authority)
    with explain_errors(
        f"{authority} contains no certificate of an authority (",
        after="): give a PEM file",
        of=(OSError, ssl.SSLError),
    ):
        context.load_verify_locations(authority)


def _load_pair(context: ssl.SSLContext, pair: Pair) -> None:
    for file in (pair.certificate, pair.key):
        _check_readable(file)
    with explain_errors(
        f"{pair.certificate} and {pair.key} are not a certificate with its key (",
        after="): give two matching PEM files, the key without a password",
        of=(OSError, ssl.SSLError, ValueError),
    ):
        context.load_cert_chain(pair.certificate, pair.key, _ask_nobody)


def _check_readable(file: Path) -> None:
    """Raise ValueError for a file that OpenSSL should not read, because it has no size limit."""
    with suppress(OSError):  # OpenSSL reports it
        read_named(file)


def _ask_nobody() -> str:
    """Return no password, because a service has no terminal for a prompt."""
    raise ValueError("the key has a password")


# -- certificates ---------------------------------------------------------------------


def _sign_certificate(
    name: str,
    key: EllipticCurvePrivateKey,
    issuer: str,
    signer: EllipticCurvePrivateKey,
    hosts: Sequence[str] | None,
) -> Certificate:
    """Return a certificate of ``name`` for ``hosts``, or of an authority without hosts."""
    x509 = import_privacy("cryptography.x509", PURPOSE)
    hashes = import_privacy("cryptography.hazmat.primitives.hashes", PURPOSE)
    now = datetime.now(UTC)
    is_authority = hosts is None
    if is_authority:
        allowed = {"key_cert_sign", "crl_sign"}
        depth = 0  # it cannot sign another authority
    else:
        allowed = {"digital_signature"}
        depth = None
    uses = {use: use in allowed for use in USES}
    identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
    builder = (
        x509.CertificateBuilder()
        .subject_name(_make_title(name))
        .issuer_name(_make_title(issuer))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))  # tolerate clock differences
        .not_valid_after(now + timedelta(days=365 * YEARS))
        .add_extension(x509.BasicConstraints(is_authority, depth), True)
        .add_extension(x509.KeyUsage(**uses), True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
        .add_extension(identifier, False)
    )
    if hosts is not None:
        names = x509.SubjectAlternativeName(
            [_make_host(host) for host in dict.fromkeys(hosts)]
        )
        builder = builder.add_extension(names, False)
    certificate: Certificate = builder.sign(signer, hashes.SHA256())
    return certificate


def _make_title(text: str) -> Name:
    x509 = import_privacy("cryptography.x509", PURPOSE)
    title: Name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])
    return title


def _make_host(host: str) -> GeneralName:
    x509 = import_privacy("cryptography.x509", PURPOSE)
    try:
        ipaddress: GeneralName = x509.IPAddress(ip_address(host))
    except ValueError:
        ipaddress = x509.DNSName(host)
    return ipaddress


def _encode_certificate(certificate: Certificate) -> bytes:
    formats = import_privacy("cryptography.hazmat.primitives.serialization", PURPOSE)
    return certificate.public_bytes(formats.Encoding.PEM)


def encode_key(key: EllipticCurvePrivateKey, kind: str) -> bytes:
    """Return a private key as unencrypted PEM. ``kind`` is a format of ``PrivateFormat``."""
    formats = import_privacy("cryptography.hazmat.primitives.serialization", PURPOSE)
    form = getattr(formats.PrivateFormat, kind)
    return key.private_bytes(formats.Encoding.PEM, form, formats.NoEncryption())


def write_new_file(path: Path, content: bytes) -> None:
    """Write a file that only its owner can read.

    Raises ValueError if it exists, because it may be in use.
    """
    make_folder(path.parent)
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE)
    except FileExistsError as error:
        raise ValueError(f"{path} already exists; remove it if it is not needed") from error
    with os.fdopen(file, "wb") as handle:
        handle.write(content)
