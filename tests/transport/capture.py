"""Record all traffic between a site and its coordinator over loopback.

`tapped` is placed between a site and its coordinator. It records the traffic, terminates
TLS with the coordinator's own certificate, and records the decrypted content too. The other
functions parse the records: HTTP requests and responses, compressed parts and signed
messages.
"""

from __future__ import annotations

import asyncio
import re
import ssl
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from threading import Event, Thread

from fallow.transport.tls import Tls

CHUNK = 1 << 16
LOCAL = "127.0.0.1"
SIGNATURE, SIZE = 64, 8  # bytes before the head of a packed message
BROKEN = (OSError, ssl.SSLError, asyncio.IncompleteReadError)
Kept = list[tuple[bytearray, bytearray]]
"""For each connection: what the site sent and what it received."""


@dataclass
class Tap:
    """A recorder; ``address`` is what the site uses as its coordinator's address."""

    address: str = ""
    raw: Kept = field(default_factory=list)
    plain: Kept = field(default_factory=list)

    def up(self) -> list[bytes]:
        return [bytes(sent) for sent, _ in self.plain]

    def down(self) -> list[bytes]:
        return [bytes(value) for _, value in self.plain]

    def outside(self) -> bytes:
        """Return what a machine on the path sees, in both directions."""
        return b"\n".join(bytes(part) for pair in self.raw for part in pair)


@contextmanager
def tapped(tls: Tls, coordinator: int) -> Iterator[Tap]:
    """Run a tap in front of the port of a local SuperLink."""
    tap = Tap()
    ready = Event()
    loop = asyncio.new_event_loop()
    ended = asyncio.Event()

    async def serve() -> None:
        own = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        own.load_cert_chain(tls.certificate, tls.key)
        trusted = ssl.create_default_context(cafile=str(tls.authority))
        inner = await asyncio.start_server(
            partial(_relay, tap.plain, coordinator, trusted), LOCAL, 0, ssl=own
        )
        outer = await asyncio.start_server(
            partial(_relay, tap.raw, _port(inner), None), LOCAL, 0
        )
        tap.address = f"{LOCAL}:{_port(outer)}"
        ready.set()
        async with inner, outer:
            await ended.wait()

    def run() -> None:
        asyncio.set_event_loop(loop)
        with closing(loop):
            loop.run_until_complete(serve())
            left = asyncio.all_tasks(loop)
            for task in left:
                task.cancel()
            loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
            # now all closed connections are gone
            loop.run_until_complete(asyncio.sleep(0.1))

    thread = Thread(target=run, daemon=True)
    thread.start()
    ready.wait()
    try:
        yield tap
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join()


def _port(server: asyncio.Server) -> int:
    port: int = server.sockets[0].getsockname()[1]
    return port


async def _relay(
    kept: Kept,
    port: int,
    trusted: ssl.SSLContext | None,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
) -> None:
    """Relay a connection to a port in both directions and record it."""
    up = bytearray()
    down = bytearray()
    kept.append((up, down))
    with suppress(*BROKEN):
        try:
            there, to = await asyncio.open_connection(LOCAL, port, ssl=trusted)
            await asyncio.gather(_copy(reader, to, up), _copy(there, writer, down))
        finally:
            writer.close()


async def _copy(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, kept: bytearray
) -> None:
    try:
        while part := await reader.read(CHUNK):
            kept += part
            writer.write(part)
            await writer.drain()
    finally:
        writer.close()


# -- parsing -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Part:
    """A request or a response: first line, header fields by name, and complete content."""

    line: str
    fields: dict[str, str]
    content: bytes


def parts(stream: bytes) -> Iterator[Part]:
    """Return one connection's requests or responses; the last may be incomplete."""
    while stream:
        head, _, stream = stream.partition(b"\r\n\r\n")
        line, *rest = head.decode("latin-1").split("\r\n")
        fields = {
            name.lower(): value.strip()
            for name, _, value in (x.partition(":") for x in rest)
        }
        if fields.get("transfer-encoding") == "chunked":
            content, stream = _joined(stream)
        else:
            many = int(fields.get("content-length", 0))
            content = stream[:many]
            stream = stream[many:]
        yield Part(line, fields, content)


def _joined(stream: bytes) -> tuple[bytes, bytes]:
    """Return the content of a chunked message and the bytes after it."""
    content = b""
    many = 1
    while many:
        size, _, stream = stream.partition(b"\r\n")
        many = int(size.partition(b";")[0] or b"0", 16)
        content = content + stream[:many]
        stream = stream[many + 2 :]
    return content, stream


STARTS: dict[bytes, Callable[[bytes], int]] = {
    rb"\x1f\x8b\x08": lambda data: 0,  # gzip
    rb"\x78[\x01\x5e\x9c\xda]": lambda data: 0,  # zlib
    rb"PK\x03\x04": lambda data: 30 + sum(data[26:30:2]) + 256 * sum(data[27:30:2]),  # zip
}  # patterns of starts of compressed parts; additional bytes to skip


def everything(streams: list[bytes]) -> bytes:
    """Return the streams, the contents within them, and the decompressed parts."""
    contents = [part.content for stream in streams for part in parts(stream)]
    whole = b"\n".join([*streams, *contents])
    return b"\n".join([whole, *_unpressed(whole)])


def _unpressed(blob: bytes) -> Iterator[bytes]:
    for start, head in STARTS.items():
        for values in re.finditer(start, blob, re.DOTALL):
            at = values.start() + head(blob[values.start() : values.start() + 30])
            with suppress(zlib.error):
                yield zlib.decompressobj(-15 if start.startswith(b"PK") else 47).decompress(
                    blob[at:]
                )


def messages(blob: bytes) -> Iterator[bytes]:
    """Return the signed, packed messages at any position, without duplicates."""
    seen = set[bytes]()
    for values in re.finditer(rb'\{"__metadata__":', blob):
        begin = values.start() - SIZE
        head = int.from_bytes(blob[begin : values.start()], "little")
        ends = [
            int(end)
            for end in re.findall(
                rb'"data_offsets":\[\d+,(\d+)\]',
                blob[values.start() : values.start() + head],
            )
        ]
        message = blob[begin - SIGNATURE : values.start() + head + max(ends, default=0)]
        if begin >= SIGNATURE and message not in seen:
            seen.add(message)
            yield message
