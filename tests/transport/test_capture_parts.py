"""Test that the search in captured traffic finds planted values."""

from __future__ import annotations

import gzip
import io
import socket
import ssl
import zipfile
import zlib
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from threading import Thread

import pytest
import torch
from torch import Tensor

from fallow.privacy.signing import new_signing_key, verify_key
from fallow.transport.envelope import Reply, open_reply, sign_message
from fallow.transport.tls import new_tls
from tests.deployment.children import free_port
from tests.deployment.planted import (
    NUMBERS,
    PLANTED,
    ROW,
    found_in,
    hidden_in,
)
from tests.keys import key_of
from tests.transport.capture import everything, messages, tapped

SECRET = new_signing_key()
ROW_OF = torch.tensor(NUMBERS, dtype=torch.float64)


def posted(content: bytes, chunk: int = 0) -> bytes:
    """Return an HTTP request, optionally chunked."""
    if not chunk:
        return b"POST /a HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(content) + content
    cut = [content[i : i + chunk] for i in range(0, len(content), chunk)]
    sent = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in cut)
    return b"POST /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n" + sent + b"0\r\n\r\n"


def zipped(content: bytes) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a/b", content)
    return packed.getvalue()


@pytest.mark.parametrize("press", [bytes, gzip.compress, zlib.compress, zipped])
@pytest.mark.parametrize(
    "content", [ROW.encode(), ROW.encode("utf-16-le"), ROW_OF.float().numpy().tobytes()]
)
@pytest.mark.parametrize("chunk", [0, 5])
def test_what_is_planted_is_found_in_chunks_and_in_compressed_parts(
    press: Callable[[bytes], bytes], content: bytes, chunk: int
) -> None:
    stream = posted(b"before") + posted(press(content * 3), chunk) + posted(b"after")
    assert hidden_in(everything([stream]))
    assert not hidden_in(everything([posted(press(b"nothing of it"), chunk)]))


@pytest.mark.parametrize("form", [ROW_OF, 3 - 0.2 * ROW_OF.float(), ROW_OF.half()])
def test_a_row_is_found_in_a_signed_answer_in_whatever_units(form: Tensor) -> None:
    hidden = torch.cat(
        [torch.zeros(5, dtype=form.dtype), form, torch.ones(4, dtype=form.dtype)]
    )
    sent = sign_message(
        SECRET, Reply("run", PLANTED, key_of("0/train/0/0"), {"w": hidden, "n": 3})
    )
    stream = posted(b"before" + sent + sent + b"after", 7)
    (message,) = messages(everything([stream]))
    reply = open_reply(verify_key(SECRET), message, PLANTED)
    assert reply.key is not None
    tree = {"key": reply.key.to_dict(), "body": reply.body}
    assert found_in(b"", [tree], [ROW_OF], []) == ["row in (15,) of 0/train/0/0"]


def test_a_tap_keeps_what_passes_plain_and_as_it_goes_over_the_wire(tmp_path: Path) -> None:
    tls = new_tls(tmp_path)
    port = free_port()
    own = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    own.load_cert_chain(tls.certificate, tls.key)

    def reply(server: socket.socket) -> None:
        with closing(own.wrap_socket(server.accept()[0], server_side=True)) as connection:
            connection.sendall(connection.recv(100) + b" heard")

    with socket.create_server(("127.0.0.1", port)) as server, tapped(tls, port) as tap:
        other = Thread(target=reply, args=(server,))
        other.start()
        host, _, at = tap.address.rpartition(":")
        trusted = ssl.create_default_context(cafile=str(tls.authority))
        with (
            socket.create_connection((host, int(at))) as plain,
            trusted.wrap_socket(plain, server_hostname=host) as connection,
        ):
            connection.sendall(b"davos")
            assert connection.recv(100) == b"davos heard"
        other.join()
    assert (tap.up(), tap.down()) == ([b"davos"], [b"davos heard"])
    assert len(tap.outside()) > 1000
    assert b"davos" not in tap.outside()
