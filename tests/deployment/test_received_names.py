"""Test that a received study.toml is confirmed before any of its code runs."""

from __future__ import annotations

import ast
import builtins
import importlib
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from fallow.cli.site import site as commands
from fallow.core.names import OWN, NamePolicy, distribution_digest
from fallow.deployment.agreement import Agreement
from fallow.deployment.building import build_study
from fallow.deployment.coordinator.folder import CoordinatorFolder, StudyPlan
from fallow.deployment.site.folder import SiteFolder, check_digest
from fallow.deployment.site.host import Host
from fallow.deployment.study_file import agreement_text, read_agreement, write_agreement
from fallow.settings.config import ExperimentConfig
from fallow.settings.spec import Spec
from fallow.storage.errors import StorageError
from tests.deployment.agreed import TABLE, agreed, table
from tests.packages import METHODS, forget, install

pytest.importorskip("cryptography")

MODULE = "methods_sent_to_tests"
SETTINGS = ("model", "training", "strategy", "partition", "features", "encoder")


@pytest.fixture
def mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Install a distribution ``sent-methods``; return the file that its import creates."""
    mark = tmp_path / "imported"
    source = {f"{MODULE}.py": METHODS.format(mark=str(mark))}
    install(tmp_path / "installed", "sent-methods", source, monkeypatch)
    yield mark
    forget(MODULE)


def policy() -> NamePolicy:
    return NamePolicy(allowed={"sent-methods": distribution_digest("sent-methods")})


def write_sent(folder: Path, **specs: Spec) -> Path:
    """Write a study.toml with these classes, as someone who allows all of them."""
    details = agreed()
    config = replace(details.config, **specs)  # type: ignore[arg-type]
    file = folder / "study.toml"
    write_agreement(file, replace(details, config=config, names=OWN))
    if "partition" in specs:
        line = f'partition = {{name = "{specs["partition"].name}"}}\n'
        file.write_text(line + file.read_text())
    return file


def init(folder: Path, *words: str, typed: str = "") -> Result:
    """Run ``fallow site init`` with this input."""
    line = ["init", str(folder / "SITE"), "--study", str(folder / "study.toml")]
    line += ["--name", "north", "--data", str(table(folder / "rows.csv")), *words]
    return CliRunner().invoke(commands, line, input=typed)


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("name", ["subprocess:Popen", "runpy:run_path", f"{MODULE}:Fancy"])
def test_nothing_that_a_received_file_names_is_run(
    setting: str, name: str, mark: Path, tmp_path: Path
) -> None:
    ran = tmp_path / "ran"
    fields = {"args": ["touch", str(ran)]} if name.startswith("sub") else {}
    file = write_sent(tmp_path, **{setting: Spec(name, fields)})
    why = f"{setting}: '{name}' names code"
    if setting == "partition":  # real sites have no such setting
        why = "partition in the experiment part"
    with pytest.raises(ValueError, match=f"study.toml: {why}"):
        read_agreement(file)
    assert init(tmp_path).exit_code != 0
    assert not (tmp_path / "SITE").exists()
    assert not ran.exists()
    assert not mark.exists()


def test_reading_and_showing_an_allowed_study_builds_nothing(
    mark: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This includes frozen models used as encoders, and wrong digests."""

    def never(*args: Any, **fields: Any) -> Any:
        raise AssertionError("something was imported or built")

    fancy = {"strategy": Spec(f"{MODULE}:Fancy"), "features": Spec(f"{MODULE}:Net")}
    file = write_sent(tmp_path, **fancy)
    digest = policy().allowed["sent-methods"]
    for module in ("fallow.core.names", "fallow.core.build"):
        monkeypatch.setattr(importlib.import_module(module), "load_class", never)
    monkeypatch.setattr(
        importlib.import_module("fallow.experiment.rows"), "build_model", never
    )
    assert read_agreement(file, policy()).config.strategy.name == f"{MODULE}:Fancy"
    asked = init(tmp_path, "--allow", f"sent-methods={digest}", typed="0" * 32 + "\n")
    assert f"code of another distribution: strategy = {MODULE}:Fancy" in asked.output
    assert isinstance(asked.exception, ValueError)
    assert "is not the fingerprint of this study.toml" in str(asked.exception)
    assert not (tmp_path / "SITE").exists()
    assert not mark.exists()


def test_a_person_types_the_digest_that_the_coordinator_reads_out(tmp_path: Path) -> None:
    file = write_sent(tmp_path)
    digest = read_agreement(file).digest
    for typed in ("", "\n", digest[:7] + "\n", digest[1:] + "\n", "0" * 8 + "\n"):
        asked = init(tmp_path, typed=typed)
        assert isinstance(asked.exception, ValueError)
        assert "label budget" not in str(asked.exception), "the next question was reached"
        assert digest[:8] not in asked.output, "the answer was shown with the question"
        assert digest[:8] not in str(asked.exception)
        assert not (tmp_path / "SITE").exists()
    assert init(tmp_path, typed=f" {digest[:4].upper()} {digest[4:9]}\n\n").exit_code == 0
    assert SiteFolder.open(tmp_path / "SITE").agreement.digest == digest


def test_a_script_gives_the_digest_as_an_option(tmp_path: Path) -> None:
    digest = read_agreement(write_sent(tmp_path)).digest
    with pytest.raises(ValueError, match="too short"):
        check_digest(agreed(), "")
    assert isinstance(init(tmp_path, "--digest", "f" * 32).exception, ValueError)
    assert not (tmp_path / "SITE").exists()
    assert init(tmp_path, "--digest", digest).exit_code == 0


def test_an_allowed_query_is_used_and_other_code_under_its_name_is_not(
    mark: Path, tmp_path: Path
) -> None:
    file = write_sent(tmp_path, strategy=Spec(f"{MODULE}:Fancy"))
    allow = f"sent-methods={policy().allowed['sent-methods']}"
    digest = read_agreement(file, policy()).digest
    made_folder = init(tmp_path, "--digest", digest, "--allow", allow)
    assert made_folder.exit_code == 0, made_folder.exception
    assert "a count" in made_folder.output, "what leaves is shown, from its contract"
    text = (tmp_path / "SITE" / "site.toml").read_text()
    assert f'sent-methods = "{policy().allowed["sent-methods"]}"' in text
    result = SiteFolder.open(tmp_path / "SITE")
    host = Host(result, result.open_ledger())
    assert host._made.methods["query"].contract.title == "Fancy"
    host._ledger.close()
    forget(MODULE)
    mark.unlink()
    with (tmp_path / "installed" / f"{MODULE}.py").open("a") as source:
        source.write("# more\n")
    with pytest.raises(ValueError, match="its code has changed"):
        _ = SiteFolder.open(tmp_path / "SITE").agreement
    assert not mark.exists()


@pytest.mark.parametrize(
    ("setting", "name"),
    [
        ("strategy", "Plain"),
        ("strategy", "function"),
        ("model", "Fancy"),
        ("training", "Net"),
    ],
)
def test_a_class_of_another_kind_is_refused_also_where_its_code_is_allowed(
    setting: str, name: str, mark: Path, tmp_path: Path
) -> None:
    file = write_sent(tmp_path, **{setting: Spec(f"{MODULE}:{name}")})
    with pytest.raises(ValueError, match=f"{MODULE}:{name}' is no"):
        build_study(read_agreement(file, policy()))


def test_an_allowed_model_is_built(mark: Path, tmp_path: Path) -> None:
    file = write_sent(tmp_path, model=Spec(f"{MODULE}:Net"))
    assert type(build_study(read_agreement(file, policy())).model).__name__ == "Net"


def test_a_folder_without_the_confirmed_digest_builds_nothing(tmp_path: Path) -> None:
    digest = read_agreement(write_sent(tmp_path)).digest
    init(tmp_path, "--digest", digest)
    joined = tmp_path / "SITE" / "join.json"
    output = json.loads(joined.read_text())
    for content in ("", "[]", json.dumps({**output, "study": 3})):
        joined.write_text(content)
        with pytest.raises(StorageError, match="restore it from a backup"):
            _ = SiteFolder.open(tmp_path / "SITE").agreement
    joined.write_text(json.dumps({**output, "study": "0" * 32}))
    with pytest.raises(ValueError, match="has changed since"):
        _ = SiteFolder.open(tmp_path / "SITE").rows


def test_a_coordinator_may_name_her_own_code_and_it_stays_that_code(
    mark: Path, tmp_path: Path
) -> None:
    config = ExperimentConfig("tiny", cycles=1, rounds=1, strategy=Spec(f"{MODULE}:Fancy"))
    plan = StudyPlan("hearts", config, TABLE, ("north", "south"))
    CoordinatorFolder.create(tmp_path / "study", plan, "127.0.0.1:9", ["127.0.0.1"])
    coordinator_folder = CoordinatorFolder.open(tmp_path / "study")
    assert coordinator_folder.agreement.names == policy()
    with (tmp_path / "installed" / f"{MODULE}.py").open("a") as source:
        source.write("# more\n")
    with pytest.raises(ValueError, match="its code has changed"):
        _ = CoordinatorFolder.open(tmp_path / "study").agreement


def test_a_coordinator_cannot_name_what_no_site_could_install(tmp_path: Path) -> None:
    config = ExperimentConfig(
        "tiny", cycles=1, rounds=1, strategy=Spec("tests.experiment.crash:Nothing")
    )
    plan = StudyPlan("hearts", config, TABLE, ("north", "south"))
    with pytest.raises(ValueError, match="does not belong to an installed distribution"):
        CoordinatorFolder.create(tmp_path / "study", plan, "127.0.0.1:9", ["127.0.0.1"])
    assert not (tmp_path / "study").exists()


@pytest.mark.parametrize("section", ['allow = "all"', '[allow]\nx = "*"', "[allow]\nx = 1"])
def test_a_site_allows_code_by_its_digest_alone(section: str, tmp_path: Path) -> None:
    init(tmp_path, "--digest", read_agreement(write_sent(tmp_path)).digest)
    file = tmp_path / "SITE" / "site.toml"
    before = file.read_text().partition("[allow]")[0]
    file.write_text(
        f"{section}\n{before}" if "=" in section[:8] else f"{before}{section}\n"
    )
    with pytest.raises(ValueError, match=r"site\.toml.*allow"):
        SiteFolder.open(tmp_path / "SITE")


def test_no_part_of_the_federation_resolves_a_name_without_the_policy_of_its_machine() -> (
    None
):
    """Names that simulations resolve by default are not resolved from an agreement."""
    root = Path(importlib.import_module("fallow.deployment").__path__[0])
    called = {
        *("build", "build_encoder", "build_model", "check_task", "encoder_of", "features"),
        *("find", "methods_of", "shape_seen"),
    }
    calls = [
        (file.name, ast.unparse(node))
        for file in root.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in called
    ]
    assert len(calls) >= 4
    without = [line for line in calls if "names" not in line[1]]
    assert without == []


# -- oversized files -----------------------------------------------------------------------

HEAD = "cycles = 1\n"


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (HEAD, 'base = "/etc/passwd.toml"\n', "base is not a setting"),
        (HEAD, 'base = "demo"\n', "base is not a setting"),
        (HEAD, "cycles = 1000000000000\n", "cycles is 1000000000000"),
        (HEAD, f"title = {'[' * 5000}{']' * 5000}\n", "too many nested lists"),
        (HEAD, f"{'a.' * 100_000}a = 1\n", "a key of more than 64 parts"),
        (HEAD, f"title = {'9' * 5000}\n", "is not valid TOML"),
        (HEAD, f"x = {'[' * 50}{']' * 50}\n", "nested too deeply"),
        (HEAD, f"title = '{'x' * 20_000}'\n", "20000 characters"),
        (HEAD, 'title = "\\u001b[2J"\n', "changes how other text is shown"),
        (HEAD, 'title = "\\u202ecod"\n', "changes how other text is shown"),
        (HEAD, '"\\u001b[2J" = 1\n', "changes how other text is shown"),
        (HEAD, 'dtype = "__class__"\n', "dtype"),
        (HEAD, "# " + "x" * (5 << 20), "more than 4 MiB"),
        (
            'kind = "table"',
            'kind = "arrays"\nshape = [99999, 99999]',
            "numbers per example",
        ),
    ],
)
def test_a_file_that_is_too_much_is_one_sentence(
    old: str, new: str, reason: str, tmp_path: Path
) -> None:
    file = tmp_path / "study.toml"
    text = agreement_text(agreed())
    assert old in text
    if "arrays" in new:
        text = text[: text.index("# features; a column with values")]
    file.write_text(text.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(ValueError, match=reason) as error:
        read_agreement(file)
    assert "\x1b" not in str(error.value) and len(str(error.value)) < 2000


def test_a_device_is_no_agreement() -> None:
    with pytest.raises(ValueError, match="is not a file"):
        read_agreement("/dev/zero")


def test_an_agreement_cannot_be_made_with_a_name_that_is_not_allowed() -> None:
    details: Agreement = agreed()
    config = replace(details.config, model=Spec("subprocess:Popen"))
    with pytest.raises(ValueError, match="model: 'subprocess:Popen' names code"):
        replace(details, config=config)


def test_no_name_reaches_pythons_import_but_through_the_gate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trace all imports during ``init``."""
    file = write_sent(tmp_path, strategy=Spec("antigravity:fly"))
    asked: list[str] = []
    whole = builtins.__import__

    def watch(name: str, *args: Any, **more: Any) -> Any:
        asked.append(name)
        return whole(name, *args, **more)

    monkeypatch.setattr(builtins, "__import__", watch)
    assert init(tmp_path).exit_code != 0
    with pytest.raises(ValueError, match="part of Python"):
        read_agreement(file)
    assert "antigravity" not in asked
    assert "antigravity" not in sys.modules


@pytest.mark.parametrize(("typed", "limit"), [("", 2), ("1", 1), ("0", 0)])
def test_a_person_is_asked_for_a_limit_of_labels_and_proposed_one(
    typed: str, limit: int, tmp_path: Path
) -> None:
    file = write_sent(tmp_path)
    digest = read_agreement(file).digest
    done = init(tmp_path, typed=f"{digest[:8]}\n{typed}\n")
    assert done.exit_code == 0, done.output
    assert "Maximum number of labels over all runs (proposed: " in done.output
    assert ") [2]: " in done.output
    assert SiteFolder.open(tmp_path / "SITE").settings.limit == limit


def test_without_an_answer_about_the_limit_nothing_is_made(tmp_path: Path) -> None:
    digest = read_agreement(write_sent(tmp_path)).digest
    done = init(tmp_path, typed=f"{digest[:8]}\n")
    assert "no label budget was typed, so nothing was created: give --limit" in str(
        done.exception
    )
    assert not (tmp_path / "SITE").exists()
