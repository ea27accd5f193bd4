"""Test certificates, which are valid only for the named hosts, and private files."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path
from threading import Thread

import pytest

from fallow.transport.tls import Tls, new_tls

serialization = pytest.importorskip("cryptography.hazmat.primitives.serialization")


def shaken(tls: Tls, authority: Path, host: str) -> str | None:
    """Return the TLS version that a client and a server negotiate."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(tls.certificate, tls.key)
    client = ssl.create_default_context(cafile=str(authority))
    client.verify_flags |= ssl.VERIFY_X509_STRICT  # the default of newer Python versions
    one, other = socket.socketpair()

    def serve() -> None:
        try:
            server.wrap_socket(one, server_side=True).close()
        except OSError:
            one.close()

    thread = Thread(target=serve)
    thread.start()
    try:
        with client.wrap_socket(other, server_hostname=host) as wrapped:
            return wrapped.version()
    finally:
        other.close()
        thread.join()


@pytest.mark.parametrize(
    "host", ["localhost", "127.0.0.1", "::1", "coordinator.example", "10.0.0.7"]
)
def test_a_client_that_trusts_the_authority_accepts_the_server_by_each_name(
    tmp_path: Path, host: str
) -> None:
    tls = new_tls(tmp_path, ["coordinator.example", "10.0.0.7", "localhost"])
    assert shaken(tls, tls.authority, host) == "TLSv1.3"


def test_another_name_and_another_authority_are_refused(tmp_path: Path) -> None:
    tls = new_tls(tmp_path / "a")
    other = new_tls(tmp_path / "b")
    with pytest.raises(ssl.SSLCertVerificationError, match="mismatch"):
        shaken(tls, tls.authority, "coordinator.example")
    with pytest.raises(ssl.SSLCertVerificationError):
        shaken(tls, other.authority, "localhost")


def test_files_are_readable_by_their_owner_alone_and_never_overwritten(
    tmp_path: Path,
) -> None:
    new_tls(tmp_path)
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o600}
    with pytest.raises(ValueError, match="already exists"):
        new_tls(tmp_path)
