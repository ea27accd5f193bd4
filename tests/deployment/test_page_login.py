"""Test login to the labeling page through a reverse proxy that names the annotator."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, field
from html import unescape
from ipaddress import ip_address
from pathlib import Path

import pytest
from httpx import ASGITransport, AsyncClient, Response
from starlette.datastructures import Headers

from fallow.deployment.labeling_page import create_app
from fallow.deployment.labeling_page.label_queue import LabelQueue
from fallow.deployment.labeling_page.login import (
    SECRET,
    SECRET_HEADER,
    ProxyAccess,
    open_proxy_access,
)
from fallow.deployment.site.settings import PageLogin, settings_from
from fallow.storage.errors import StorageError
from tests.deployment.label_queues import make_queue
from tests.deployment.test_program_cli import RunCommand, begun, fallow

__all__ = ["begun", "fallow"]  # fixtures

HOST = "label.hospital.example"
KEY = "k" * 43
DOOR = ProxyAccess(
    header="x-remote-user",
    annotators=frozenset({"ann", "Zoë Lee"}),
    proxies=frozenset({ip_address("10.0.0.5"), ip_address("fd00::5")}),
    host=HOST,
    secret=KEY,
)
PATHS = (
    "/",
    "/sample/3",
    "/mine",
    "/state",
    "/static/label.css",
    "/picture/3",
    "/enter",
    "/name",
)


@dataclass
class Proxy:
    """Simulate a reverse proxy that adds header fields to requests."""

    queue: LabelQueue
    peer: str = "10.0.0.5"
    fields: list[tuple[str, str | bytes]] = field(
        default_factory=lambda: [(SECRET_HEADER, KEY), ("x-remote-user", "ann")]
    )
    host: str = HOST
    origin: str = f"https://{HOST}"

    def send(self, method: str, path: str, form: dict[str, str] | None = None) -> Response:
        async def call() -> Response:
            app = create_app(self.queue, DOOR)
            transport = ASGITransport(app, client=(self.peer, 4321))
            fields = [(name.encode(), _to_bytes(value)) for name, value in self.fields]
            if method == "POST":
                fields.append((b"origin", self.origin.encode()))
            async with AsyncClient(
                transport=transport, base_url=f"http://{self.host}"
            ) as client:
                return await client.request(method, path, headers=fields, data=form)

        return asyncio.run(call())

    def label(self, row: int) -> Response:
        page = self.send("GET", f"/sample/{row}").text
        seen = re.search(r'name="seen" value="([^"]*)"', page)
        form = {"row": str(row), "seen": unescape(seen[1]) if seen else "", "value": "1"}
        return self.send("POST", "/answer", form)


def _to_bytes(value: str | bytes) -> bytes:
    if isinstance(value, bytes):
        return value
    return value.encode()


@pytest.fixture
def proxy(tmp_path: Path) -> Proxy:
    return Proxy(make_queue(tmp_path))


def messages(proxy: Proxy) -> list[str]:
    """Return the annotators of row 3 in the ledger."""
    return [value.annotator for value in proxy.queue.ledger.history(3)]


@pytest.mark.parametrize("name", ["ann", "Zoë Lee"])
def test_the_name_of_the_login_stands_in_the_ledger(proxy: Proxy, name: str) -> None:
    proxy.fields[1] = ("x-remote-user", name)
    page = proxy.send("GET", "/sample/3")
    assert page.status_code == 200
    assert name in unescape(page.text)
    assert "/name" not in page.text  # a name cannot be chosen on the page
    assert proxy.label(3).status_code == 303
    assert messages(proxy) == [name]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("peer", ["10.0.0.6", "127.0.0.1", "fd00::6", "", "10.0.0.5.evil"])
def test_headers_from_elsewhere_are_not_believed(
    proxy: Proxy, peer: str, path: str
) -> None:
    proxy.peer = peer
    answer = proxy.send("GET", path)
    assert answer.status_code == 403
    assert "patient" not in answer.text
    assert proxy.label(3).status_code == 403
    assert messages(proxy) == []


@pytest.mark.parametrize("peer", ["fd00::5", "::ffff:10.0.0.5", "fd00:0::0:5"])
def test_an_address_of_the_proxy_is_known_however_it_is_written(
    proxy: Proxy, peer: str
) -> None:
    proxy.peer = peer
    assert proxy.send("GET", "/").status_code == 200


@pytest.mark.parametrize(
    "fields",
    [
        [("x-remote-user", "ann")],
        [(SECRET_HEADER, ""), ("x-remote-user", "ann")],
        [(SECRET_HEADER, KEY[:-1]), ("x-remote-user", "ann")],
        [(SECRET_HEADER, KEY + "k"), ("x-remote-user", "ann")],
        [(SECRET_HEADER, "é" * 43), ("x-remote-user", "ann")],
        [(SECRET_HEADER, KEY), (SECRET_HEADER, KEY), ("x-remote-user", "ann")],
        [(SECRET_HEADER, "x"), (SECRET_HEADER, KEY), ("x-remote-user", "ann")],
    ],
)
def test_without_the_secret_of_the_proxy_no_header_is_believed(
    proxy: Proxy, fields: list[tuple[str, str | bytes]]
) -> None:
    """Another program on the proxy's machine has the same address."""
    proxy.fields = fields
    assert proxy.send("GET", "/").status_code == 403
    assert proxy.label(3).status_code == 403
    assert messages(proxy) == []


@pytest.mark.parametrize(
    "named",
    [
        [],
        [""],
        ["eve"],
        ["ANN"],
        ["ann, eve"],
        ["ann", "eve"],
        ["eve", "ann"],
        ["ann", "ann"],
        [b"Zo\xeb Lee"],
        ["ann\x00"],
    ],
)
def test_who_is_not_exactly_one_person_of_the_list_labels_nothing(
    proxy: Proxy, named: list[str | bytes]
) -> None:
    proxy.fields = [(SECRET_HEADER, KEY), *(("x-remote-user", name) for name in named)]
    answer = proxy.send("GET", "/")
    assert answer.status_code == 403
    assert "not on the list of annotators" in answer.text
    assert proxy.label(3).status_code == 403
    assert messages(proxy) == []


def test_a_cookie_names_nobody_here(proxy: Proxy) -> None:
    proxy.fields.append(("cookie", "fallow-who=eve"))
    assert proxy.label(3).status_code == 303
    assert messages(proxy) == ["ann"]
    assert proxy.send("POST", "/name", {"name": "eve"}).status_code == 404


@pytest.mark.parametrize("origin", ["", "null", f"http://{HOST}", "https://evil.example"])
def test_a_form_of_another_page_changes_nothing(proxy: Proxy, origin: str) -> None:
    """The browser sends the login with requests of other pages too."""
    proxy.origin = origin
    assert proxy.label(3).status_code == 403
    assert messages(proxy) == []


def test_another_name_that_leads_here_shows_nothing(proxy: Proxy) -> None:
    proxy.host = "evil.example"
    assert proxy.send("GET", "/").status_code == 421


def test_of_two_origins_and_of_two_hosts_none_counts(proxy: Proxy) -> None:
    proxy.fields.append(("origin", f"https://{HOST}"))  # the first of two
    proxy.origin = "https://evil.example"
    assert proxy.label(3).status_code == 403
    assert messages(proxy) == []
    hosts = [(b"host", HOST.encode()), (b"host", b"evil.example")]
    headers = Headers(raw=[*hosts, (SECRET_HEADER.encode(), KEY.encode())])
    refusal = DOOR.refuses("GET", "/", headers=headers, cookies={}, peer="10.0.0.5")
    assert refusal is not None
    assert refusal[0] == 421


def test_the_secret_is_made_once_and_is_its_owners_alone(tmp_path: Path) -> None:
    (tmp_path / "keys").mkdir()
    login = PageLogin(annotators=("ann",), proxies=("127.0.0.1",), host=HOST)
    first = open_proxy_access(tmp_path, login)
    assert open_proxy_access(tmp_path, login).secret == first.secret
    assert (tmp_path / SECRET).stat().st_mode & 0o777 == 0o600
    assert first.secret not in repr(login)
    (tmp_path / SECRET).write_text("short\n")
    with pytest.raises(StorageError, match="delete it, and a new one is created"):
        open_proxy_access(tmp_path, login)


@pytest.mark.parametrize("rights", [0o640, 0o604, 0o602])
def test_a_secret_that_others_may_read_or_write_is_not_believed(
    rights: int, tmp_path: Path
) -> None:
    (tmp_path / "keys").mkdir()
    login = PageLogin(annotators=("ann",), proxies=("127.0.0.1",), host=HOST)
    first = open_proxy_access(tmp_path, login)
    (tmp_path / SECRET).chmod(rights)
    with pytest.raises(StorageError, match="other accounts can read"):
        open_proxy_access(tmp_path, login)
    (tmp_path / SECRET).chmod(0o600)
    assert open_proxy_access(tmp_path, login).secret == first.secret
    (tmp_path / SECRET).rename(tmp_path / "elsewhere")
    (tmp_path / SECRET).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StorageError, match="is not a regular file"):
        open_proxy_access(tmp_path, login)


PAGE = {"annotators": ["ann"], "proxies": ["127.0.0.1"], "host": HOST}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"annotators": []}, "page.annotators is []; it must be a list"),
        ({"annotators": "ann"}, "page.annotators is 'ann'; it must be a list"),
        ({"proxies": []}, "page.proxies is []; it must be a list"),
        ({"proxies": ["::"]}, "is not the IP address of one machine"),
        ({"proxies": ["10.0.0.0/8"]}, "is not the IP address of one machine"),
        ({"proxies": ["proxy.example"]}, "is not the IP address of one machine"),
        ({"host": "https://x"}, "page.host"),
        ({"header": "X-User"}, "page.header is 'X-User'"),
        ({"header": "x-user\r\n"}, "page.header is"),
        ({"listen": "8123"}, "page.listen"),
        ({"poeple": ["ann"]}, "page.poeple is not a setting"),
    ],
)
def test_a_login_that_cannot_be_is_refused_in_a_sentence(
    change: dict[str, object], why: str
) -> None:
    tree = {"name": "north", "data": "rows.csv", "page": {**PAGE, **change}}
    with pytest.raises(ValueError, match=re.escape(why)):
        settings_from(tree)


def test_it_is_off_unless_it_is_asked_for_and_set(begun: RunCommand) -> None:
    code, _, err = begun("label", "north", "--behind-proxy", "--no-open")
    assert code == 2
    assert "has no login: add a section [page]" in err
    code, _, err = begun("label", "north", "--behind-proxy", "--annotator", "Ann")
    assert code == 2
    assert "omit --port and --annotator" in err
