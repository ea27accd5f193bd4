"""Test a separate distribution that adds an extension of each kind through entry points."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import Result
from torch import nn
from typer.testing import CliRunner

import fallow as fl
from fallow.cli.site import site as site_commands
from fallow.core import extensions
from fallow.core.build import find
from fallow.core.client import declared
from fallow.core.messages import Request, Step
from fallow.core.names import BUILT_IN, OWN, NamePolicy, distribution_digest
from fallow.deployment.annotators import Annotators
from fallow.deployment.coordinator.folder import CoordinatorFolder, StudyPlan
from fallow.deployment.coordinator.program import Program
from fallow.deployment.ledger.label_requests import SelectedRow
from fallow.deployment.site.agreement_text import describe_study
from fallow.deployment.site.folder import SiteFolder
from fallow.deployment.site.host import Host
from fallow.deployment.site.serve import connect
from fallow.deployment.study_file import read_agreement
from fallow.settings.config import ExperimentConfig, named_classes
from fallow.settings.spec import Spec
from fallow.study.callbacks import load_tracker
from fallow.study.reading import read_study
from fallow.transport.checks import ResponseCheck
from tests.deployment.agreed import HEAD, TABLE, table
from tests.keys import key_of
from tests.packages import forget, install
from tests.toy_integration import MODULE, NAME, install_toy

pytest.importorskip("cryptography")

ROWS = [
    f"p{i},{30 + 2 * i},{('male', 'female')[i % 2]},{200 + i},{('no', 'yes')[i % 2]}"
    for i in range(24)
]
EXPERIMENT = ExperimentConfig(
    "tiny", cycles=0, rounds=1, encoder=Spec("halves"), strategy=Spec("front-rows")
)


@pytest.fixture
def imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Install the distribution; return the file in which its modules log their import."""
    yield install_toy(tmp_path / "installed", monkeypatch)
    forget(MODULE)


def allow() -> dict[str, str]:
    return {NAME: distribution_digest(NAME)}


@dataclass(frozen=True)
class Parties:
    coordinator_folder: CoordinatorFolder
    sites: tuple[SiteFolder, ...]


def found_study(folder: Path) -> Parties:
    """Set up a coordinator and two sites that allow the distribution's transport."""
    plan = StudyPlan(
        "hearts", EXPERIMENT, TABLE, ("north", "south"), transport="shared-folder"
    )
    coordinator_folder = CoordinatorFolder.create(
        folder / "study", plan, None, ["127.0.0.1"]
    )
    sites = []
    for name in plan.sites:
        (folder / name).mkdir()
        rows = table(folder / name / "rows.csv", *ROWS[:12], head=HEAD)
        tests = table(folder / name / "tests.csv", *ROWS[12:], head=HEAD)
        chosen: dict[str, Any] = {
            "name": name,
            "data": str(rows),
            "test": str(tests),
            "allow": allow(),
        }
        study = folder / "study" / "study.toml"
        sites.append(SiteFolder.create(folder / name / "SITE", study, **chosen))
        coordinator_folder.admit(sites[-1].path / "join.json")
    return Parties(CoordinatorFolder.open(folder / "study"), tuple(sites))


def command(*words: str | Path) -> Result:
    return CliRunner().invoke(site_commands, [str(word) for word in words])


def test_names_of_a_distribution_work_in_a_simulation(imported: Path) -> None:
    digits = fl.Federation(fl.load("digits"), sites=3)
    run = fl.run(digits, "front-rows", encoder="halves", cycles=0, progress=False)
    assert isinstance(run.model, nn.Module)
    assert run.model.get_parameter("head.weight").shape == (10, 2)
    assert len(run.predict(digits.dataset.x_test)) == len(digits.dataset.x_test)
    assert set(imported.read_text().split()) == {"encoder", "strategy"}


def test_nothing_is_imported_before_a_name_is_used(imported: Path) -> None:
    assert named_classes(EXPERIMENT)["encoder"] == f"{MODULE}.encoder:Halves"
    assert "halves" in extensions.list_extensions("fallow.encoders")
    with pytest.raises(ValueError, match="did you mean 'halves'"):
        find(fl.encoders, "halve")
    assert not imported.exists()


@pytest.mark.long
def test_a_study_over_the_transport_of_a_distribution_ends_with_its_encoder(
    imported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    parties = found_study(tmp_path)
    agreed = parties.coordinator_folder.agreement
    assert agreed.distributions[NAME].version == "2.1"
    assert agreed.distributions[NAME].digest == allow()[NAME]
    nodes = []
    for site in parties.sites:
        host = Host(site, site.open_ledger())
        nodes.append(connect(site, host.handle))
        nodes[-1].start()
    transport = parties.coordinator_folder.open_transport(lambda event: None)
    program = Program(
        parties.coordinator_folder.path,
        agreed,
        transport,
        parties.coordinator_folder.keys,
        poll=0.0,
        pages=False,
    )
    assert program.go()
    for node in nodes:
        node.stop()
    (cell,) = read_study(parties.coordinator_folder.path).cells
    assert cell.records[-1]["accuracy"] is not None
    assert set(imported.read_text().split()) == {"encoder", "strategy", "transport"}


def test_a_site_refuses_code_that_it_does_not_allow_and_imports_nothing(
    imported: Path, tmp_path: Path
) -> None:
    file = found_study(tmp_path).sites[0].path / "study.toml"
    imported.unlink()
    forget(MODULE)
    digest = allow()[NAME]
    with pytest.raises(ValueError, match=f'write {NAME} = "{digest}" under .allow.'):
        read_agreement(file)
    wrong = NamePolicy(allowed={NAME: "sha256:" + "0" * 64})
    with pytest.raises(ValueError, match="its code has changed"):
        read_agreement(file, wrong)
    assert not imported.exists()


@pytest.mark.parametrize("setting", ["encoder", "transport"])
def test_each_name_alone_needs_the_permission_of_the_site(
    setting: str, imported: Path, tmp_path: Path
) -> None:
    site = found_study(tmp_path).sites[0]
    plain = {"encoder": None, "strategy": Spec("random")}
    config = replace(site.agreement.config, **plain)  # type: ignore[arg-type]
    details = {"config": config, "transport": "https", "distributions": {}}
    if setting == "encoder":
        details["config"] = replace(config, encoder=Spec("halves"))
    else:
        details["transport"] = "shared-folder"
    with pytest.raises(ValueError, match=f"{setting}: '{MODULE}.*is not part of Fallow"):
        replace(site.agreement, **details, names=BUILT_IN)  # type: ignore[arg-type]
    allowed = replace(site.agreement, **details)  # type: ignore[arg-type]
    assert named_classes(allowed.config)["strategy"] == "random"


def test_a_study_for_another_version_is_refused_with_both_versions(
    imported: Path, tmp_path: Path
) -> None:
    agreed = found_study(tmp_path).sites[0].agreement
    other = replace(agreed.distributions[NAME], version="2.0", digest="sha256:" + "1" * 64)
    assert replace(agreed, names=OWN, distributions={NAME: other}).digest != agreed.digest
    with pytest.raises(ValueError, match=rf"uses {NAME} 2\.0 .*install {NAME}==2\.0"):
        replace(agreed, distributions={NAME: other})
    with pytest.raises(ValueError, match=r"uses code of another-one 2\.0"):
        replace(agreed, distributions={"another-one": other})


def test_a_registration_compares_the_code_that_is_installed(
    imported: Path, tmp_path: Path
) -> None:
    parties = found_study(tmp_path)
    agreed = parties.sites[0].agreement
    assert agreed.code == agreed.installed_code != ""
    module = tmp_path / "installed" / "site-packages" / MODULE / "encoder.py"
    with module.open("a") as file:
        file.write("# changed while the site runs\n")
    assert agreed.code != agreed.installed_code
    answer = {
        **{
            "rows": 9,
            "test": 4,
            "labeled": 2,
            "validation": 1,
            "pool": 6,
            "schema": "digest",
        },
        **{"fallow": "0", "seal": torch.zeros(32, dtype=torch.uint8)},
    }
    request = Request(key_of("0/hello/0"), "annotators", 0, 0, (Step("each", "hello", {}),))
    people = Annotators(schema="digest", code=agreed.code)
    check = ResponseCheck({"north": 9}, declared={"annotators": declared(people)})
    assert check.check("north", request, {**answer, "code": agreed.code})
    with pytest.raises(ValueError, match="compare the installed distributions with"):
        check.check("north", request, {**answer, "code": agreed.installed_code})
    with pytest.raises(ValueError, match="instead of"):
        check.check("north", request, answer)


def test_what_a_site_shows_before_it_joins_names_the_distributions(
    imported: Path, tmp_path: Path
) -> None:
    shown = describe_study(found_study(tmp_path).sites[0])
    digest = allow()[NAME]
    assert f"distribution: {NAME} 2.1 ({digest})" in shown
    assert f"code of another distribution: encoder = {MODULE}.encoder:Halves" in shown


@pytest.mark.long
def test_a_tracker_of_a_distribution_follows_a_run(imported: Path, tmp_path: Path) -> None:
    digits = fl.Federation(fl.load("digits"), sites=3)
    tracker = load_tracker("notebook-page", tmp_path)
    fl.run(digits, cycles=0, callbacks=[tracker], progress=False)
    assert "seed 0, cycle 0, 0." in (tmp_path / "page.txt").read_text()
    with pytest.raises(ValueError, match="there is no tracker 'notebok'; there are"):
        load_tracker("notebok", tmp_path)


def test_a_labeling_tool_of_a_distribution_writes_tasks_and_reads_labels(
    imported: Path, tmp_path: Path
) -> None:
    site = found_study(tmp_path).sites[0]
    with closing(site.open_ledger()) as ledger:
        ledger.instructions.begin("0000000001-" + 16 * "a")
        ledger.requests.ask(
            "0000000001-" + 16 * "a",
            "0/query",
            cycle=0,
            allowed=1,
            deadline=None,
            rows=[SelectedRow(0)],
        )
    file = tmp_path / "slips.txt"
    assert (
        "Wrote 1 labeling task"
        in command("export", site.path, file, "--tool", "slips").output
    )
    assert file.read_text() == "no/yes/cannot tell\np0: ?\n"
    assert file.stat().st_mode & 0o077 == 0
    file.write_text("no/yes/cannot tell\np0: yes\nnobody: no\n")
    refused = command("import", site.path, file, "--tool", "slips")
    assert "label 2: this site has no example 'nobody'" in refused.output
    partly = command("import", site.path, file, "--tool", "slips", "--partial")
    assert "Imported 1 label" in partly.output


def test_a_site_runs_no_labeling_tool_that_it_does_not_allow(
    imported: Path, tmp_path: Path
) -> None:
    site = found_study(tmp_path).sites[0]
    imported.unlink()
    forget(MODULE)
    text = (site.path / "site.toml").read_text()
    (site.path / "site.toml").write_text(text.partition("[allow]")[0])
    done = command("export", site.path, tmp_path / "slips.txt", "--tool", "slips")
    assert "is not part of Fallow" in str(done.exception)
    assert not imported.exists()


def test_two_distributions_with_one_name_are_refused(
    imported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = "[fallow.encoders]\nHal_ves = another_of_tests:Halves\n"
    install(
        tmp_path / "other",
        "another-toy",
        {"another_of_tests.py": ""},
        monkeypatch,
        entries=entries,
    )
    with pytest.raises(
        ValueError, match=f"'halves': another-toy and {NAME}; uninstall one"
    ):
        find(fl.encoders, "halves", OWN)


def test_a_name_of_fallow_is_never_taken_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = "[fallow.strategies]\nentropy = another_of_tests:Entropy\n"
    install(
        tmp_path,
        "another-toy",
        {"another_of_tests.py": "1/0"},
        monkeypatch,
        entries=entries,
    )
    assert find(fl.strategies, "entropy", OWN) is fl.Entropy
    assert (
        named_classes(ExperimentConfig("a", strategy=Spec("entropy")))["strategy"]
        == "entropy"
    )
