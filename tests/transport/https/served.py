"""A local transport, sites in threads, and clients that send raw bytes."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from fallow.core.events import Event
from fallow.privacy.signing import new_signing_key, verify_key
from fallow.transport.https import ConnectionSettings, HttpsNode, HttpsTransport, Listening
from fallow.transport.https.signed import CHALLENGE_HEADER, Head, sum_of
from fallow.transport.tls import Tls, make_site_context, new_tls

STUDY = "5" * 32
SOON = 20.0  # seconds; a busy machine takes some
Handle = Callable[[bytes], bytes]


def echo(message: bytes) -> bytes:
    return b"echo:" + message


@dataclass
class Served:
    """Serve ``transport`` for the sites that call it. secrets: of all admitted sites."""

    tls: Tls
    transport: HttpsTransport
    secrets: Mapping[str, bytes]
    events: list[Event]
    nodes: dict[str, HttpsNode] = field(default_factory=dict)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.transport.port}"

    def address_of(self, site: str) -> str:
        """Return the address that the process of a site calls."""
        return self.address

    def start_site(self, name: str, handle: Handle = echo, study: str = STUDY) -> HttpsNode:
        calling = ConnectionSettings(self.address_of(name), self.tls.authority)
        node = HttpsNode(calling, name, study, self.secrets[name], handle)
        self.nodes[name] = node
        node.start()
        return node

    def stop_site(self, name: str) -> None:
        self.nodes.pop(name).stop()

    def ask(self, messages: Mapping[str, bytes], seconds: float = SOON) -> dict[str, bytes]:
        """Run one exchange; return the first reply of each site."""
        self.transport.send(messages)
        return self.replies(set(messages), seconds)

    def replies(self, sites: set[str], seconds: float = SOON) -> dict[str, bytes]:
        result: dict[str, bytes] = {}
        end = time.monotonic() + seconds
        while set(result) != sites:
            left = end - time.monotonic()
            problems = {name: node.problem for name, node in self.nodes.items()}
            assert left > 0, f"only {sorted(result)} answered; {problems}; {self.events}"
            result |= self.transport.receive(min(left, 1.0))
        return result

    # -- unauthenticated clients -----------------------------------------------------------

    def connect(self) -> ssl.SSLSocket:
        """Open a TLS connection without authentication."""
        context = make_site_context(self.tls.authority)
        bare = socket.create_connection(("127.0.0.1", self.transport.port), SOON)
        return context.wrap_socket(bare, server_hostname="127.0.0.1")

    def write(self, *parts: bytes) -> bytes:
        """Send raw bytes; return all bytes until the server closes the connection."""
        with self.connect() as connection:
            for part in parts:
                connection.sendall(part)
            return read_all(connection)

    def request(
        self,
        path: str,
        headers: Sequence[tuple[str, str]] = (),
        body: bytes = b"",
        method: str = "POST",
        length: int | None = None,
    ) -> bytes:
        """Send a request and return the response."""
        return self.write(raw(path, headers, body, method, length))

    def challenge(self) -> str:
        """Return the challenge in the response to an unsigned request."""
        output = self.request("/fallow/1/poll", sign(b"7" * 32, "anna", "0" * 32)).decode()
        lines = [line for line in output.split("\r\n") if line.startswith(CHALLENGE_HEADER)]
        return lines[0].partition(": ")[2]


def raw(
    path: str,
    headers: Sequence[tuple[str, str]] = (),
    body: bytes = b"",
    method: str = "POST",
    length: int | None = None,
) -> bytes:
    """Return the bytes of a request; ``length``: a wrong Content-Length."""
    length_header = len(body) if length is None else length
    lines = [
        f"{method} {path} HTTP/1.1",
        "host: 127.0.0.1",
        f"content-length: {length_header}",
    ]
    lines += [f"{name}: {value}" for name, value in headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def sign(
    secret: bytes,
    site: str,
    challenge: str,
    *,
    path: str = "/fallow/1/poll",
    count: int = 1,
    instruction: str = "-",
    body: bytes = b"",
    length: int | None = None,
    study: str = STUDY,
) -> list[tuple[str, str]]:
    """Return the header fields of a site's request."""
    head = Head(
        site=site,
        study=study,
        path=path,
        challenge=challenge,
        count=count,
        instruction=instruction,
        length=len(body) if length is None else length,
        body=sum_of(body),
    )
    return list(head.write(secret).items())


def read_all(connection: socket.socket, seconds: float = SOON) -> bytes:
    """Read until the other side closes the connection."""
    connection.settimeout(seconds)
    parts = []
    try:
        while part := connection.recv(1 << 16):
            parts.append(part)
    except (ConnectionError, ssl.SSLError):
        pass  # closed without a response
    return b"".join(parts)


def status(reply: bytes) -> int:
    """Return the status of a response, or 0 if there is none."""
    return int(reply.split()[1]) if reply else 0


@contextmanager
def served(
    folder: Path, sites: Sequence[str] = ("anna", "bert"), clients: Path | None = None
) -> Iterator[Served]:
    """Create a transport for these sites, none of which is running yet."""
    tls = new_tls(folder / "tls")
    secrets = {name: new_signing_key() for name in sites}
    events: list[Event] = []
    keys = {name: verify_key(secret) for name, secret in secrets.items()}
    listening = Listening("127.0.0.1:0", tls, clients)
    transport = HttpsTransport(listening, STUDY, keys, events.append).start()
    outcome = Served(tls, transport, secrets, events)
    with ExitStack() as stack:
        stack.callback(transport.close)
        assert transport.wait_until_there(SOON)
        try:
            yield outcome
        finally:
            for name in list(outcome.nodes):
                outcome.stop_site(name)


def until(is_true: Callable[[], object], seconds: float = SOON) -> None:
    end = time.monotonic() + seconds
    while not is_true():
        assert time.monotonic() < end, f"not within {seconds} seconds"
        time.sleep(0.02)
