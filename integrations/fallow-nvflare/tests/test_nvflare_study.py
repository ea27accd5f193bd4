"""Test a study over the installed transport ``nvflare``, from its parties' folders."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("httpx")

from nvflare_federation import SERVER, Flare, flare, needs_nvflare
from tunnelled import Tunnel

from fallow.core.names import distribution_digest
from fallow.deployment.coordinator.folder import CoordinatorFolder
from fallow.deployment.site.agreement_text import describe_study
from fallow.deployment.site.folder import SiteFolder
from fallow.deployment.site.serve import connect
from fallow_nvflare import FOLDER
from tests.deployment.real import LEADER, LONGER, assert_as_undisturbed, real
from tests.deployment.test_https_folders import init, join, refuse, run
from tests.deployment.test_killed import LONG, PHASES, SITE, restart
from tests.deployment.test_set_up_pages import set_up
from tests.deployment.test_transports_agree import run as run_study
from tests.packages import install_integration

NAME = "fallow-nvflare"
NVFLARE = "nvflare"


@pytest.fixture(autouse=True)
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install the distribution as from a wheel, because an editable one has no digest."""
    install_integration(NAME, tmp_path / "installed", monkeypatch)


@contextmanager
def through_a_tunnel(
    folder: Path, coordinator_folder: CoordinatorFolder
) -> Iterator[Mapping[str, str]]:
    """Connect both ends of a tunnel directly."""
    sites = coordinator_folder.agreement.sites
    tunnel = Tunnel(coordinator_folder.address, sites)
    try:
        yield {site: f"127.0.0.1:{tunnel.entrances[site].port}" for site in sites}
    finally:
        tunnel.close()


class ThroughNVFlare:
    """Run the job of a coordinator in processes of NVFlare."""

    parties: Flare

    @contextmanager
    def __call__(
        self, folder: Path, coordinator_folder: CoordinatorFolder
    ) -> Iterator[Mapping[str, str]]:
        with flare(folder / "flare", coordinator_folder.agreement.sites) as parties:
            self.parties = parties
            parties.keep(coordinator_folder.path / FOLDER)
            yield {name: f"127.0.0.1:{port}" for name, port in parties.ports.items()}


def allowed() -> tuple[str, str]:
    return "--allow", f"{NAME}={distribution_digest(NAME)}"


# -- folders -------------------------------------------------------------------------------


def test_a_job_is_written_and_no_address_need_be_known(tmp_path: Path) -> None:
    output = run(*init(tmp_path, transport=NVFLARE))
    coordinator_folder = CoordinatorFolder.open(tmp_path / "office")
    assert coordinator_folder.address == "127.0.0.1:9092"
    assert "keep.py" in output
    assert "--address" not in output
    assert "Without --host" not in output
    meta = json.loads((coordinator_folder.path / FOLDER / "job" / "meta.json").read_bytes())
    assert meta["name"] == f"fallow-{coordinator_folder.agreement.digest[:12]}"
    assert meta["deploy_map"] == {"app": ["server", "north", "south"]}

    proxy = ("--proxy", "http://proxy.example:3128")
    assert "neither a proxy nor a certificate" in refuse(
        *join(tmp_path, *allowed(), *proxy)
    )
    run(*join(tmp_path, *allowed()))
    site = SiteFolder.open(tmp_path / "north")
    assert site.settings.address == "127.0.0.1:9093"
    assert "proxy" not in (site.path / "site.toml").read_text()
    assert "transport: nvflare; all connections start at this site" in describe_study(site)


def test_it_is_set_up_by_the_commands_of_the_documents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert set_up(NVFLARE).agreement.transport == NVFLARE
    assert Path("heart/nvflare/keep.py").exists()


def test_a_site_without_an_address_is_told_which_one_is_usual(tmp_path: Path) -> None:
    run(*init(tmp_path, transport=NVFLARE))
    run(*join(tmp_path, *allowed()))
    file = tmp_path / "north" / "site.toml"
    lines = file.read_text().splitlines()
    file.write_text("\n".join(line for line in lines if not line.startswith("address")))
    with pytest.raises(ValueError, match=r'write address = "127\.0\.0\.1:9093"'):
        connect(SiteFolder.open(file.parent), bytes)


def test_a_site_that_does_not_allow_the_distribution_is_told_its_digest(
    tmp_path: Path,
) -> None:
    run(*init(tmp_path, transport=NVFLARE))
    _, digest = allowed()
    assert f"--allow {digest}" in refuse(*join(tmp_path))
    assert not (tmp_path / "north").exists()


# -- studies -------------------------------------------------------------------------------


@pytest.mark.processes
@pytest.mark.soak
def test_a_study_through_the_tunnel_leaves_the_bits_of_one_in_one_process(
    tmp_path: Path,
) -> None:
    assert run_study(tmp_path / "study", NVFLARE, through_a_tunnel)["tensors"]


@needs_nvflare
@pytest.mark.processes
@pytest.mark.soak
def test_over_nvflare_and_in_one_process_a_study_leaves_the_same_bits(
    tmp_path: Path,
) -> None:
    assert run_study(tmp_path / "study", NVFLARE, ThroughNVFlare())["tensors"]


@needs_nvflare
@pytest.mark.processes
@pytest.mark.soak
def test_over_nvflare_whoever_is_killed_it_ends_as_if_nothing_had_happened(
    tmp_path: Path,
) -> None:
    """The coordinator, a site and each process of NVFlare are killed."""
    carry = ThroughNVFlare()
    with real(tmp_path / "study", LONGER, transport=NVFLARE, carry=carry) as study:
        parties = carry.parties
        study.start(LEADER, *study.sites)

        study.until_replied(PHASES["hello"], SITE, LONG)
        restart(SITE)(study)
        study.until_replied(PHASES["first query"], SITE, LONG)
        parties.kill_job_of(SITE)
        study.until_replied(PHASES["training"], SITE, LONG)
        restart(LEADER, SITE)(study)
        parties.kill_job_of(SERVER)
        study.until_replied(PHASES["choosing"], SITE, LONG)
        parties.kill(SERVER, SITE)
        parties.start(SERVER, SITE)
        study.until_replied(PHASES["labeling"], SITE, LONG)
        restart(LEADER)(study)

        study.finish(LONG)
        assert_as_undisturbed(study)
