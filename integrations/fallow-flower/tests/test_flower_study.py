"""Test a study over the installed transport ``flower``, with killed processes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

pytest.importorskip("cryptography")
pytest.importorskip("flwr")

from flower_federation import below, kill

from fallow.core.names import OWN, distribution_digest
from fallow.deployment.coordinator.folder import CoordinatorFolder
from fallow.deployment.site.folder import SiteFolder
from fallow.deployment.study_file import read_agreement
from fallow.storage.errors import StorageError
from fallow.transport.kinds import HTTPS
from tests.deployment.children import processes, wait_until
from tests.deployment.real import LEADER, Real, assert_as_undisturbed, real
from tests.deployment.test_browser import check_typed
from tests.deployment.test_https_folders import init, join, made, refuse, run
from tests.deployment.test_killed import LONG, PHASES, SITE, VICTIMS
from tests.deployment.test_set_up_pages import set_up
from tests.deployment.test_transports_agree import left_by, tensors_alike
from tests.deployment.test_transports_agree import run as run_study
from tests.packages import install_integration

FLOWER = "flower"
NAME = "fallow-flower"


@pytest.fixture(autouse=True)
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install the distribution as from a wheel, because an editable one has no digest."""
    install_integration(NAME, tmp_path / "installed", monkeypatch)


@pytest.fixture
def study_folder(tmp_path: Path) -> Path:
    return tmp_path / "study"


def allowed() -> tuple[str, str]:
    return "--allow", f"{NAME}={distribution_digest(NAME)}"


# -- folders -------------------------------------------------------------------------------


def test_the_folders_of_both_parties_have_what_flower_needs(tmp_path: Path) -> None:
    output = run(*init(tmp_path, "--host", "fallow.example.org", transport=FLOWER))
    assert "--address fallow.example.org:9092" in output
    assert f"--allow {allowed()[1]}" in output
    coordinator_folder = CoordinatorFolder.open(tmp_path / "office")
    assert coordinator_folder.agreement.transport == FLOWER
    assert coordinator_folder.agreement.distributions[NAME].digest == distribution_digest(
        NAME
    )
    run(*join(tmp_path, *allowed(), "--address", "fallow.example.org:9092"))
    site = SiteFolder.open(tmp_path / "north")
    keys = tmp_path / "north" / "keys"
    assert site.joined["transport_key"] == (keys / "node.pub").read_text().strip()
    assert (keys / "node").stat().st_mode & 0o777 == 0o600
    coordinator_folder.admit(tmp_path / "north" / "join.json")
    assert coordinator_folder.end.transport_keys == {"north": site.joined["transport_key"]}
    site.check_machine()
    (keys / "node").unlink()
    with pytest.raises(StorageError, match="node is missing"):
        site.check_machine()


def test_a_site_whose_key_flower_does_not_take_is_not_admitted(tmp_path: Path) -> None:
    run(*init(tmp_path, transport=FLOWER))
    run(*join(tmp_path, *allowed(), "--address", "fallow.example.org:9092"))
    file = tmp_path / "north" / "join.json"
    key = SiteFolder.open(tmp_path / "north").joined["transport_key"]
    file.write_text(file.read_text().replace(key, "abc"))
    output = refuse("coordinate", "admit", tmp_path / "office", file)
    assert "transport_key is not a public key of a Flower node" in output


def test_the_transport_is_part_of_the_digest(tmp_path: Path) -> None:
    run(*init(tmp_path, transport=FLOWER))
    file = tmp_path / "office" / "study.toml"
    over_flower = read_agreement(file, OWN).digest
    file.write_text(file.read_text().replace('transport = "flower"', 'transport = "https"'))
    assert read_agreement(file, OWN).digest != over_flower


def test_no_certificate_of_ones_own_is_taken(tmp_path: Path) -> None:
    own = made(tmp_path / "own")
    pair = ("--certificate", own.certificate, "--certificate-key", own.key)
    assert "choose --transport https" in refuse(*init(tmp_path, *pair, transport="flower"))


def test_it_is_set_up_by_the_commands_of_the_documents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert set_up(FLOWER).agreement.transport == FLOWER


# -- studies -------------------------------------------------------------------------------


@pytest.mark.processes
@pytest.mark.soak
def test_over_flower_and_over_https_a_study_leaves_the_same_bits(
    study_folder: Path,
) -> None:
    over_https = run_study(study_folder / HTTPS, HTTPS)
    over_flower = run_study(study_folder / FLOWER, FLOWER)
    assert over_https["tensors"]
    assert over_https == over_flower


@pytest.mark.soak
def test_what_is_typed_in_the_browser_is_learned(study_folder: Path) -> None:
    check_typed(study_folder, FLOWER)


# -- killed processes ----------------------------------------------------------------------


def kill_below(name: str, of: str) -> Callable[[Real], None]:
    """Kill a process of Flower below the coordinator or a site, if it is running."""

    def act(study: Real) -> None:
        try:
            kill(below(study.running[of].pid, name))
        except (AssertionError, ProcessLookupError):
            assert study.running[of].poll() in (None, 0), study.read_logs()

    return act


KILLED = {
    **VICTIMS,
    "the SuperLink": kill_below("flower-superlink", LEADER),
    "the ServerApp": kill_below("flwr-serverapp", LEADER),
    "a SuperNode": kill_below("flower-supernode", SITE),
    "a ClientApp": kill_below("flwr-clientapp", SITE),
}


@pytest.mark.processes
@pytest.mark.soak
def test_a_coordinator_and_a_site_killed_at_once_in_training_end_as_if_nothing_had_happened(
    study_folder: Path,
) -> None:
    with real(study_folder, transport=FLOWER) as study:
        study.start(LEADER, *study.sites)
        study.until_replied("0/train/0", SITE, LONG)
        VICTIMS["the coordinator and a site"](study)
        study.finish(LONG)
        assert_as_undisturbed(study)
        assert left_by(study)["tensors"] == tensors_alike(study)  # equal in every bit


@pytest.mark.processes
@pytest.mark.soak
@pytest.mark.parametrize("victim", KILLED)
def test_killed_in_every_phase_of_one_study_it_ends_as_if_nothing_had_happened(
    victim: str, study_folder: Path
) -> None:
    with real(study_folder, transport=FLOWER) as study:
        study.start(LEADER, *study.sites)
        for key in PHASES.values():
            study.until_replied(key, SITE, LONG)
            KILLED[victim](study)
        study.finish(LONG)
        assert_as_undisturbed(study)


@pytest.mark.processes
@pytest.mark.soak
def test_killed_again_while_they_recover_they_end_as_if_nothing_had_happened(
    study_folder: Path,
) -> None:
    with real(study_folder, transport=FLOWER) as study:
        study.start(LEADER, *study.sites)
        for key in (PHASES["training"], PHASES["labeling"]):
            study.until_replied(key, SITE, LONG)
            VICTIMS["the coordinator and a site"](study)
            pid = study.running[LEADER].pid
            wait_until(partial(has, pid, "flwr-serverapp"), LONG, "Flower's app starts")
            VICTIMS["the coordinator and a site"](study)
        study.finish(LONG)
        assert_as_undisturbed(study)


def has(pid: int, name: str) -> bool:
    """Return whether a process started one of this name, directly or indirectly."""
    try:
        return below(pid, name) in processes()
    except AssertionError:
        return False
