"""Test the folders and commands of a study over HTTPS: files, output and errors."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fallow.cli.app import build_app
from fallow.core.names import OWN
from fallow.deployment.coordinator.folder import CoordinatorFolder
from fallow.deployment.site.agreement_text import describe_study
from fallow.deployment.site.folder import SiteFolder
from fallow.deployment.study_file import read_agreement
from fallow.transport.tls import Tls, new_tls

pytest.importorskip("httpx")


def run(*words: object) -> str:
    """Run a command that must succeed and return its output."""
    done = CliRunner().invoke(build_app(), [str(word) for word in words])
    assert done.exit_code == 0, done.output + str(done.exception)
    return done.output


def refuse(*words: object) -> str:
    """Run a command that must fail and return its error message."""
    done = CliRunner().invoke(build_app(), [str(word) for word in words])
    assert done.exit_code != 0
    return re.sub(r"\s+", " ", done.output + str(done.exception))


def init(folder: Path, *more: object, transport: str = "https") -> tuple[object, ...]:
    example = folder / "example.csv"
    if not example.exists():
        folder.mkdir(parents=True, exist_ok=True)
        example.write_text("age,ill\n1,no\n2,yes\n3,no\n4,yes\n")
    details = ("--config", "demo", "--sites", "north,south", "--example", example)
    return (
        "coordinate",
        "init",
        folder / "office",
        *details,
        "--label",
        "ill",
        "--sums",
        "exact",
        "--transport",
        transport,
        *more,
    )


def join(folder: Path, *more: object) -> tuple[object, ...]:
    study = folder / "office" / "study.toml"
    data = folder / "rows.csv"
    data.write_text("age,ill\n" + "".join(f"{n},\n" for n in range(20)))
    digest = read_agreement(study, OWN).digest
    details = ("--study", study, "--name", "north", "--data", data, "--digest", digest)
    return ("site", "init", folder / "north", *details, *more)


def made(folder: Path) -> Tls:
    return new_tls(folder, ["127.0.0.1"])


def test_the_link_is_part_of_what_is_agreed_on_and_is_shown(tmp_path: Path) -> None:
    over_https = run(*init(tmp_path / "a", "--host", "fallow.example.org"))
    assert "--address fallow.example.org:9092" in over_https
    coordinator_folder = CoordinatorFolder.open(tmp_path / "a" / "office")
    assert 'transport = "https"' in (coordinator_folder.path / "study.toml").read_text()
    run(*join(tmp_path / "a", "--address", "fallow.example.org:443"))
    site = SiteFolder.open(tmp_path / "a" / "north")
    assert "transport: HTTPS; all connections start at this site" in describe_study(site)
    assert site.settings.address == "fallow.example.org:443"
    assert site.authority is not None


def test_a_study_goes_over_https_unless_somebody_chooses(tmp_path: Path) -> None:
    words = init(tmp_path)
    at = words.index("--transport")
    run(*words[:at], *words[at + 2 :])
    assert read_agreement(tmp_path / "office" / "study.toml").transport == "https"


def test_the_link_is_part_of_the_digest_and_a_file_without_one_is_refused(
    tmp_path: Path,
) -> None:
    run(*init(tmp_path))
    file = tmp_path / "office" / "study.toml"
    text = file.read_text()
    file.write_text(text.replace('transport = "https"', 'transport = "htps"'))
    with pytest.raises(ValueError, match="did you mean 'https'"):
        read_agreement(file)
    file.write_text(text.replace('transport = "https"\n', ""))
    with pytest.raises(
        ValueError, match=r"federation\.transport is missing; ask the coordinator"
    ):
        read_agreement(file)


def test_a_link_that_is_unknown_is_refused_with_those_that_are_known(
    tmp_path: Path,
) -> None:
    output = refuse(*init(tmp_path, transport="htps"))
    assert "federation.transport is 'htps'; did you mean 'https'?" in output
    output = refuse(*init(tmp_path, transport="carrier pigeon"))
    assert "federation.transport is 'carrier pigeon'; it is one of flower, https" in output


def test_a_site_notes_its_proxy_and_its_own_certificate(tmp_path: Path) -> None:
    own = made(tmp_path / "own")
    run(*init(tmp_path))
    more = ("--proxy", "http://proxy.example:3128", "--address", "a.example:443")
    pair = ("--own-certificate", own.certificate, "--own-key", own.key)
    assert "belong together" in refuse(*join(tmp_path, *more, *pair[:2]))
    assert "proxy is 'proxy:1'" in refuse(*join(tmp_path, "--proxy", "proxy:1"))
    run(*join(tmp_path, *more, *pair))
    settings = SiteFolder.open(tmp_path / "north").settings
    assert settings.proxy == "http://proxy.example:3128"
    assert settings.own_key == str(own.key)


def test_the_password_of_a_proxy_is_not_shown(tmp_path: Path) -> None:
    run(*init(tmp_path))
    for proxy in (
        "ann:secret@proxy:1",
        "socks5://ann:secret@proxy:1",
        "http://ann:secret@proxy",
    ):
        assert "secret" not in refuse(*join(tmp_path, "--proxy", proxy))


def test_a_coordinator_with_a_certificate_of_its_own_pins_its_authority(
    tmp_path: Path,
) -> None:
    own = made(tmp_path / "own")
    pair = ("--certificate", own.certificate, "--certificate-key", own.key)
    run(
        *init(tmp_path / "pinned", *pair, "--ca", own.authority, "--clients", own.authority)
    )
    coordinator_folder = CoordinatorFolder.open(tmp_path / "pinned" / "office")
    assert coordinator_folder.agreement.authority == own.authority.read_text().strip()
    assert (coordinator_folder.tls.certificate, coordinator_folder.tls.key) == (
        own.certificate,
        own.key,
    )
    assert coordinator_folder.server.clients == own.authority
    assert not (coordinator_folder.path / "keys" / "server.key").exists()
    coordinator_folder.check_machine()

    run(*init(tmp_path / "trusted", *pair))
    coordinator_folder = CoordinatorFolder.open(tmp_path / "trusted" / "office")
    assert coordinator_folder.agreement.authority is None
    coordinator_folder.check_machine()
    shutil.rmtree(tmp_path / "own")
    with pytest.raises(Exception, match="is missing: restore it from a backup"):
        coordinator_folder.check_machine()


def test_behind_a_proxy_the_coordinator_listens_on_this_machine_alone(
    tmp_path: Path,
) -> None:
    output = refuse(*init(tmp_path, "--behind-proxy"))
    assert "0.0.0.0:9092 is open to other machines" in output
    run(*init(tmp_path, "--behind-proxy", "--address", "127.0.0.1:9092"))
    details = json.loads((tmp_path / "office" / "coordinator.json").read_text())
    assert details["behind_proxy"] is True
    coordinator_folder = CoordinatorFolder.open(tmp_path / "office")
    assert coordinator_folder.agreement.authority is None
    details["address"] = "0.0.0.0:9092"  # edited by hand later
    (tmp_path / "office" / "coordinator.json").write_text(json.dumps(details))

    with pytest.raises(ValueError, match="requires a certificate"):
        coordinator_folder.open_transport(lambda event: None)


@pytest.mark.parametrize(
    ("more", "why"),
    [
        (("--certificate", "server.pem"), "a certificate needs its key"),
        (("--ca", "authority.pem"), "is the authority of your own certificate"),
        (("--behind-proxy", "--clients", "a.pem"), "the coordinator uses no certificate"),
        (("--clients", "nothing.pem"), "cannot be read"),
    ],
)
def test_options_that_do_not_go_together_are_refused_before_anything_is_written(
    more: tuple[str, ...], why: str, tmp_path: Path
) -> None:
    assert why in refuse(*init(tmp_path, *more))
    assert not (tmp_path / "office").exists()


def test_a_certificate_with_another_key_is_refused(tmp_path: Path) -> None:
    own = made(tmp_path / "own")
    other = made(tmp_path / "other")
    pair = ("--certificate", own.certificate, "--certificate-key", other.key)
    assert "two matching PEM files" in refuse(*init(tmp_path, *pair))
