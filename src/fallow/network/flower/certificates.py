"""Keys and certificates for Flower: who the coordinator's machine is, and which nodes may join.

What is made here suits a study among sites that hand each other files.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING

from fallow.privacy.extra import need
from fallow.storage.private import FILE, make_folder

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
LOCAL = (
    "localhost",
    "127.0.0.1",
)  # Flower's processes on the coordinator's machine talk by these


@dataclass(frozen=True)
class Tls:
    """Files (PEM) by which a server shows who it is; ``authority`` is what sites are given."""

    authority: Path
    certificate: Path
    key: Path

    @staticmethod
    def in_folder(folder: Path) -> Tls:
        """The files that `new_tls` writes into a folder."""
        return Tls(folder / "authority.pem", folder / "server.pem", folder / "server.key")


def new_tls(folder: Path, hosts: Sequence[str] = ()) -> Tls:
    """Write a new authority and a server certificate for names or addresses ``hosts``.

    The authority's own key is not kept, so that nothing else is ever signed by it.
    """
    made = Tls.in_folder(folder)
    elliptic = need("cryptography.hazmat.primitives.asymmetric.ec", PURPOSE)
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
    _write(made.authority, _encode_certificate(root))
    _write(made.certificate, _encode_certificate(leaf))
    _write(made.key, _encode_key(server, "PKCS8"))
    return made


def new_node_key(path: Path) -> str:
    """Write the secret key of a SuperNode to ``path``; its public line, which is also in .pub.

    Flower takes elliptic keys of a NIST curve in the format of OpenSSH.
    """
    elliptic = need("cryptography.hazmat.primitives.asymmetric.ec", PURPOSE)
    formats = need("cryptography.hazmat.primitives.serialization", PURPOSE)
    secret = elliptic.generate_private_key(elliptic.SECP384R1())
    public = secret.public_key().public_bytes(
        formats.Encoding.OpenSSH, formats.PublicFormat.OpenSSH
    )
    _write(path, _encode_key(secret, "OpenSSH"))
    _write(path.with_name(path.name + ".pub"), public + b"\n")
    return str(public.decode())


def _sign_certificate(
    name: str,
    key: EllipticCurvePrivateKey,
    issuer: str,
    signer: EllipticCurvePrivateKey,
    hosts: Sequence[str] | None,
) -> Certificate:
    """A certificate of ``name`` for ``hosts``, or of an authority where there are none."""
    x509 = need("cryptography.x509", PURPOSE)
    hashes = need("cryptography.hazmat.primitives.hashes", PURPOSE)
    now = datetime.now(UTC)
    is_authority = hosts is None
    if is_authority:
        allowed = {"key_cert_sign", "crl_sign"}
        depth = 0  # it signs no other authority
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
        .not_valid_before(now - timedelta(days=1))  # clocks differ
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
    x509 = need("cryptography.x509", PURPOSE)
    title: Name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])
    return title


def _make_host(host: str) -> GeneralName:
    x509 = need("cryptography.x509", PURPOSE)
    try:
        found: GeneralName = x509.IPAddress(ip_address(host))
    except ValueError:
        found = x509.DNSName(host)
    return found


def _encode_certificate(certificate: Certificate) -> bytes:
    formats = need("cryptography.hazmat.primitives.serialization", PURPOSE)
    return certificate.public_bytes(formats.Encoding.PEM)


def _encode_key(key: EllipticCurvePrivateKey, kind: str) -> bytes:
    formats = need("cryptography.hazmat.primitives.serialization", PURPOSE)
    form = getattr(formats.PrivateFormat, kind)
    return key.private_bytes(formats.Encoding.PEM, form, formats.NoEncryption())


def _write(path: Path, content: bytes) -> None:
    """A new file that its owner alone reads; ValueError where there is one, which may be in use."""
    make_folder(path.parent)
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE)
    except FileExistsError as error:
        raise ValueError(
            f"{path} exists already; remove it first if it is not needed"
        ) from error
    with os.fdopen(file, "wb") as handle:
        handle.write(content)
