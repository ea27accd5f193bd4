"""Test the drop-in of ``fallow site init`` that limits the addresses a site may reach."""

from __future__ import annotations

import json
import shlex
import shutil
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from fallow.deployment.site.settings import Settings
from fallow.deployment.site.systemd import (
    AllowedAddresses,
    find_allowed_addresses,
    find_host,
    look_up,
    read_name_servers,
    write_drop_in,
)
from tests.deployment.test_https_folders import init, join, run

UNIT = Path(__file__).resolve().parents[2] / "deploy" / "systemd" / "fallow-site@.service"
RESOLVER = (
    "# resolv.conf\nsearch example\nnameserver 10.0.0.53\nnameserver 127.0.0.53\n"
    "nameserver fe80::1%eth0\nnameserver 2001:db8::53\nnameserver\n"
)


def settings(**more: Any) -> Settings:
    return Settings("basel", "rows.csv", **more)


def allowed_of(drop_in: str) -> list[str]:
    lines = [line.partition("=") for line in drop_in.splitlines() if line[:1] != "#"]
    return [value for name, _, value in lines if name == "IPAddressAllow"]


def test_a_site_is_allowed_its_coordinator_by_ip_address(tmp_path: Path) -> None:
    allowed_addresses = find_allowed_addresses(settings(address="203.0.113.7:443"))
    assert allowed_of(allowed_addresses.to_drop_in()) == [
        "203.0.113.7"
    ]  # no name is looked up
    allowed_addresses = find_allowed_addresses(settings(address="[2001:db8::7]:9092"))
    assert allowed_of(allowed_addresses.to_drop_in()) == ["2001:db8::7"]


def test_a_name_is_looked_up_and_name_servers_are_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolver = tmp_path / "resolv.conf"
    resolver.write_text(RESOLVER)

    def answer(host: str, *_: object, **__: object) -> list[object]:
        assert host == "fallow.example.org"
        return [(0, 0, 0, "", (address, 0)) for address in ("203.0.113.7", "fe80::7%eth0")]

    monkeypatch.setattr(socket, "getaddrinfo", answer)
    allowed_addresses = find_allowed_addresses(
        settings(address="fallow.example.org:443"), resolver
    )
    allowed = ["203.0.113.7", "10.0.0.53", "2001:db8::53"]
    assert allowed_of(allowed_addresses.to_drop_in()) == allowed
    assert str(allowed_addresses) == (
        "fallow.example.org (203.0.113.7) and name servers 10.0.0.53, 2001:db8::53"
    )


def test_a_proxy_is_allowed_and_what_is_behind_it_is_not() -> None:
    values = settings(
        address="fallow.example.org:443", proxy="http://ann:secret@10.0.0.9:3128"
    )
    drop_in = find_allowed_addresses(values).to_drop_in()
    assert allowed_of(drop_in) == ["10.0.0.9"]
    assert "secret" not in drop_in


def test_a_name_that_nobody_knows_is_named_and_allows_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(*_: object, **__: object) -> list[object]:
        raise socket.gaierror(socket.EAI_NONAME, "unknown")

    monkeypatch.setattr(socket, "getaddrinfo", answer)
    allowed_addresses = find_allowed_addresses(
        settings(address="nowhere.invalid:443"), tmp_path / "no"
    )
    assert allowed_addresses.addresses == ()
    assert (
        "nowhere.invalid could not be looked up; add its IP"
        in allowed_addresses.to_drop_in()
    )
    assert allowed_of(allowed_addresses.to_drop_in()) == []
    assert "add its IP addresses to the file" in str(allowed_addresses)


def test_a_lookup_without_an_answer_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    def wait(*_: object, **__: object) -> list[object]:
        time.sleep(60)
        return []

    monkeypatch.setattr(socket, "getaddrinfo", wait)
    begin = time.monotonic()
    assert look_up("slow.example", patience=0.1) == ()
    assert time.monotonic() - begin < 30


@pytest.mark.parametrize("address", ["127.0.0.1:9093", "localhost:9093", "[::1]:9093"])
def test_where_only_this_machine_is_called_no_other_is_allowed(address: str) -> None:
    allowed_addresses = find_allowed_addresses(settings(address=address))
    assert allowed_addresses == AllowedAddresses(None)
    assert allowed_of(allowed_addresses.to_drop_in()) == []


def test_a_site_without_an_address_and_a_machine_without_name_servers(
    tmp_path: Path,
) -> None:
    assert find_host(settings()) is None
    assert read_name_servers(tmp_path / "no") == ()


def test_init_writes_the_drop_in_for_its_owner_and_tells_what_is_allowed(
    tmp_path: Path,
) -> None:
    run(*init(tmp_path, "--host", "203.0.113.7"))
    shown = run(*join(tmp_path, "--address", "203.0.113.7:443"))
    drop_in = tmp_path / "north" / "systemd.conf"
    assert f"{drop_in} allows connections to 203.0.113.7." in " ".join(shown.split())
    assert allowed_of(drop_in.read_text()) == ["203.0.113.7"]
    assert drop_in.stat().st_mode & 0o077 == 0
    shutil.rmtree(tmp_path / "north")
    told = json.loads(run(*join(tmp_path, "--address", "203.0.113.7:443", "--json")))
    assert told["systemd"] == str(drop_in)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here")
def test_systemd_understands_the_drop_in(tmp_path: Path) -> None:
    allowed_addresses = AllowedAddresses(
        "a.example", ("203.0.113.7", "2001:db8::7"), ("10.0.0.53",)
    )
    unit = tmp_path / UNIT.name
    program = shlex.quote(shutil.which("true") or "/bin/true")
    unit.write_text(UNIT.read_text().replace("/srv/fallow/venv/bin/fallow", program))
    beside = tmp_path / "fallow-site@.service.d"
    beside.mkdir()
    write_drop_in(beside, allowed_addresses).rename(beside / "network.conf")
    assert verify(unit) == ""
    wrong = AllowedAddresses("a.example", ("not-an-address",)).to_drop_in()
    (beside / "network.conf").write_text(wrong)
    assert "not-an-address" in verify(unit)  # so the drop-in was read


def verify(unit: Path) -> str:
    """Return the problems that systemd reports for a unit and its drop-ins."""
    done = subprocess.run(
        ["systemd-analyze", "verify", str(unit)],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stderr
