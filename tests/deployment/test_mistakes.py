"""Test user errors in commands: one sentence, the right exit code and no data loss."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from fallow.deployment.coordinator.folder import CoordinatorFolder
from fallow.deployment.site.folder import SiteFolder
from fallow.storage.files import write_json
from tests.deployment.agreed import ROWS, table
from tests.deployment.mistakes import RunCommand, edited, refused

pytest.importorskip("cryptography")
INIT = (
    "coordinate",
    "init",
    "new",
    "--config",
    "demo",
    "--sites",
    "south,north",
    "--label",
    "disease",
    "--sums",
    "exact",
    "--set",
    "cycles=1",
    "--example",
    "rows.csv",
)
SITE = (
    "site",
    "init",
    "new",
    "--study",
    "study/study.toml",
    "--name",
    "north",
    "--data",
    "rows.csv",
)
ADMIT = ("coordinate", "admit", "study")


def keep_last(words: Sequence[str]) -> list[str]:
    """Return arguments in which the last value of an option takes the place of an earlier one."""
    kept = list(words)
    single = [word for word in dict.fromkeys(words) if word.startswith("--")]
    for flag in single:
        if flag in ("--set", "--host", "--allow"):
            continue
        if kept.count(flag) > 1:
            at = kept.index(flag)
            del kept[at : at + 2]
    return kept


# -- creating a folder ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((*SITE, "--data", "nowhere.csv"), "nowhere.csv"),
        ((*SITE, "--data", "nothing.csv"), "nothing.csv"),
        ((*SITE, "--data", "head.csv"), "head.csv"),
        ((*SITE, "--data", "."), "is a table, .csv or .parquet"),
        ((*SITE, "--data", "study/study.toml"), "is a table, .csv or .parquet"),
        ((*SITE, "--data", "other.csv"), "did you mean 'chols'"),
        ((*SITE, "--data", "text.csv"), "'man' is not one of the agreed texts"),
        ((*SITE, "--data", "class.csv"), "'perhaps' is not one of the agreed classes"),
        ((*SITE, "--name", "nroth"), "its sites are north, south"),
        (
            (*SITE, "--name", ""),
            "name is ''; it must be a nonempty text in quotes",
        ),
        ((*SITE, "--study", "rows.csv"), "rows.csv"),
        ((*SITE, "--study", "nowhere.toml"), "nowhere.toml cannot be read"),
        ((*SITE, "--study", "study"), "study cannot be read (Is a directory)"),
        ((*SITE, "--address", "host"), "give host:port"),
        ((*SITE, "--address", ""), "address is ''; give host:port"),
        ((*SITE, "--address", "h:65536"), "a port is a number from 1 to 65535"),
        ((*SITE, "--address", "h:0"), "a port is a number from 1 to 65535"),
        ((*SITE, "--address", "https://h:1"), "without a scheme"),
        ((*SITE, "--address", "a b:1"), "'a b' is not a host"),
        ((*SITE, "--test", "rows.csv"), "test rows have no label"),
        ((*SITE, "--limit", "many"), "many"),
        (
            (*SITE, "--limit", "-1"),
            "labels.limit is -1; it must be a whole number, 0 or more",
        ),
        (
            (*SITE, "--annotators", "0"),
            "labels.annotators is 0; it must be a whole number, at least 1",
        ),
        (
            (*SITE, "--epsilon", "inf"),
            "privacy.limit is inf; it must be a finite number above 0",
        ),
        ((*SITE, "--ca", "nowhere.pem"), "nowhere.pem cannot be read"),
        ((*SITE, "--ca", "rows.csv"), "rows.csv contains no certificate of an authority"),
        (
            (*SITE, "--ca", "study/keys/server.pem"),
            "contains no certificate of an authority",
        ),
        (
            (*SITE, "--ca", "study/keys/server.key"),
            "contains no certificate of an authority",
        ),
        (
            (*SITE, "--ca", "other/keys/authority.pem"),
            "is not the certificate that study.toml names",
        ),
        ((*INIT, "--address", "host:99999"), "a port is a number from 1 to 65535"),
        ((*INIT, "--address", "::1:9092"), "an IPv6 address in brackets"),
        ((*INIT, "--host", ""), "host: '' is not a host"),
        ((*INIT, "--host", "https://h"), "host: 'https://h' is not a host"),
        ((*INIT, "--host", "h:9092"), "host: 'h:9092' is not a host"),
        ((*INIT, "--host", "hôpital.example"), "in ASCII letters (xn--... for others)"),
        ((*INIT, "--sites", ""), "name at least one site"),
        ((*INIT, "--sites", "North,north"), "two names differ in capital letters only"),
        ((*INIT, "--deadline", "2020-01-01"), "give a length of time such as '10m'"),
        ((*INIT, "--deadline", "0s"), "must be above 0 seconds"),
        ((*INIT, "--example", "nowhere.csv"), "nowhere.csv"),
        ((*INIT, "--label", "diseas"), "did you mean 'disease'"),
    ],
)
def test_a_wrong_choice_is_told_and_makes_no_folder(
    words: tuple[str, ...], message: str, command: RunCommand
) -> None:
    refused(command(*keep_last(words)), message)
    assert not Path("new").exists()


@pytest.mark.parametrize("init", [INIT, SITE])
@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("north", "already the folder of a site"),
        ("study", "already the folder of a coordinator"),
        ("rows.csv", "rows.csv is a file"),
        ("rows.csv/in", "rows.csv is a file"),
    ],
)
def test_no_folder_is_made_where_there_is_something(
    init: tuple[str, ...], target: str, message: str, command: RunCommand
) -> None:
    refused(command(*init[:2], target, *init[3:]), message)
    assert not (Path("north/coordinator.json").exists() or Path("study/site.toml").exists())


def test_a_coordinator_without_a_name_is_told_that_no_other_machine_reaches_it(
    command: RunCommand,
) -> None:
    assert "certificate is valid for this machine only" in command(*INIT)[1]


def test_an_attempt_that_failed_halfway_makes_certificates_for_the_hosts_of_the_next(
    command: RunCommand,
) -> None:
    assert command(*INIT, "--host", "wrong.example")[0] == 0
    key = Path("new/keys/coordinator.key").read_bytes()
    Path("new/coordinator.json").unlink()
    assert command(*INIT, "--host", "right.example")[0] == 0
    assert Path("new/keys/coordinator.key").read_bytes() == key
    x509 = pytest.importorskip("cryptography.x509")
    pem_x509_certificate = x509.load_pem_x509_certificate(
        Path("new/keys/server.pem").read_bytes()
    )
    names = pem_x509_certificate.extensions.get_extension_for_class(
        x509.SubjectAlternativeName
    ).value
    assert "right.example" in names.get_values_for_type(x509.DNSName)


# -- wrong or missing folders --------------------------------------------------------------

COORDINATE: list[tuple[str, ...]] = [
    ("coordinate", word, "X") for word in ("start", "status", "advance", "stop")
]
COORDINATE += [("coordinate", "admit", "X", "north/join.json")]
OWN: list[tuple[str, ...]] = [
    ("site", "start", "X"),
    ("site", "status", "X"),
    ("site", "import", "X", "labels.csv"),
    ("site", "export", "X", "out.csv"),
    ("label", "X", "--no-open", "--port", "0"),
]


@pytest.mark.parametrize("words", [*COORDINATE, *OWN])
def test_a_folder_that_is_none_or_of_the_other_kind_is_named(
    words: tuple[str, ...], command: RunCommand
) -> None:
    wrong, kind, init = (
        ("north", "site", "coordinate init")
        if words in COORDINATE
        else ("study", "coordinator", "site init")
    )
    for target in ("nowhere", "rows.csv"):
        done = command(*[target if word == "X" else word for word in words])
        refused(done, f"{target} is not the folder of a")
        assert f"make one with: fallow {init} {target}" in done[2]
    done = command(*[wrong if word == "X" else word for word in words])
    refused(done, f"{wrong} is the folder of a {kind}; give the folder of a")


# -- admitting sites -----------------------------------------------------------------------


def test_what_is_no_join_file_is_said(command: RunCommand) -> None:
    for file, output in (
        ("nowhere.json", "cannot be read (No such"),
        ("north", "(Is a directory"),
        ("rows.csv", "it is not JSON"),
        ("list.json", "it is [1]; it must be a table"),
        ("empty.json", "name is missing"),
    ):
        refused(command(*ADMIT, file), output)
    refused(command(*ADMIT, "elsewhere/join.json"), "is for another version of the study")
    assert CoordinatorFolder.open("study").admitted == {}


def test_the_same_file_twice_changes_nothing(command: RunCommand) -> None:
    assert command(*ADMIT, "north/join.json")[0] == 0
    before = CoordinatorFolder.open("study").admitted
    assert (
        "admitted north again" in command(*ADMIT, "north/join.json", "north/join.json")[1]
    )
    assert CoordinatorFolder.open("study").admitted == before


def test_two_sites_of_one_name_or_one_pair_of_keys_are_found_out(
    command: RunCommand,
) -> None:
    command(*ADMIT, "north/join.json")
    own = json.loads(Path("north/join.json").read_bytes())
    write_json(
        Path("second.json"),
        json.loads(Path("south/join.json").read_bytes()) | {"name": "north"},
    )
    refused(command(*ADMIT, "second.json"), "two sites may use this name")
    write_json(Path("copied.json"), own | {"name": "south"})
    refused(command(*ADMIT, "copied.json"), "copied.json has the keys of north")
    assert CoordinatorFolder.open("study").admitted == {"north": own}


# -- edited or lost files ------------------------------------------------------------------

Change = Callable[[], object]
STATUS, START = ("site", "status", "north"), ("site", "start", "north")
LABEL, EXPORT = (
    ("label", "north", "--no-open", "--port", "0"),
    ("site", "export", "north", "out.csv"),
)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("data =", "dat =", "site.toml: dat is not a setting; did you mean 'data'"),
        ("[labels]", "[lables]", "lables is not a setting; did you mean 'labels'"),
        ("[labels]", "[labels", "site.toml is not valid TOML"),
        (
            "# limit = 100",
            'limit = "many"',
            "labels.limit is 'many'; it must be a whole number",
        ),
        (
            "# limit = 100",
            "limit = true",
            "labels.limit is True; it must be a whole number",
        ),
        ("annotators = 1", "annotators = 0", "labels.annotators is 0"),
        (
            "# limit = 4.0",
            'limit = "low"',
            "privacy.limit is 'low'; it must be a finite number",
        ),
        ('name = "north"', "", "name is missing; write a line name = ..."),
        (
            'name = "north"',
            'name = "nroth"',
            "has name = 'nroth', but the keys here belong to north",
        ),
        ('name = "north"', 'name = "south"', "the keys here belong to north"),
        ("127.0.0.1:1", "127.0.0.1:99999", "a port is a number from 1 to 65535"),
    ],
)
def test_a_wrong_setting_of_a_site_is_named_as_it_stands_in_the_file(
    old: str, new: str, message: str, command: RunCommand
) -> None:
    edited(Path("north/site.toml"), old, new)
    for words in (STATUS, START, LABEL):
        refused(command(*words), message)
    assert new in Path("north/site.toml").read_text()


@pytest.mark.parametrize(
    ("change", "words", "message", "code"),
    [
        (
            lambda: edited(Path("north/study.toml"), "seed = 0", "seed = 1"),
            [STATUS, START, LABEL],
            "north/study.toml has changed since site north was created",
            2,
        ),
        (lambda: Path("north/study.toml").unlink(), [STATUS, START], "cannot be read", 2),
        (
            lambda: table(Path("rows.csv"), *ROWS[:3]),
            [START, LABEL, EXPORT],
            "restore the old file",
            1,
        ),
        (
            lambda: Path("rows.csv").unlink(),
            [START, LABEL, EXPORT],
            "rows.csv, which does not exist",
            2,
        ),
        (lambda: Path("test.csv").unlink(), [START], "test.csv, which does not exist", 2),
        (
            lambda: Path("north/data.json").write_text("{"),
            [START, EXPORT],
            "missing or damaged",
            1,
        ),
        (
            lambda: Path("north/keys/site.key").unlink(),
            [START],
            "site.key is missing: restore",
            1,
        ),
        (
            lambda: Path("north/keys/authority.pem").unlink(),
            [START],
            "authority.pem is missing",
            1,
        ),
    ],
)
def test_what_was_changed_or_lost_at_a_site_is_said_and_no_label_is(
    change: Change,
    words: list[tuple[str, ...]],
    message: str,
    code: int,
    command: RunCommand,
) -> None:
    shutil.copytree("north", "before")
    change()
    for line in words:
        refused(command(*line), message, code)
    shutil.copytree("before", "north", dirs_exist_ok=True)
    ledger = SiteFolder.open("north").open_ledger()
    assert [question.row for question in ledger.tasks(state="open")] == [2, 3]
    ledger.close()


@pytest.mark.parametrize(
    ("change", "message", "code"),
    [
        (
            lambda: edited(Path("study/study.toml"), "seed = 0", "seed = 1"),
            "has changed since north, south joined",
            2,
        ),
        (
            lambda: edited(Path("study/study.toml"), '"south"]', '"south", "west"]'),
            "has changed since north, south joined",
            2,
        ),
        (
            lambda: edited(Path("study/study.toml"), '"2w"', '"2020-01-01"'),
            "federation.deadline is '2020-01-01'; give a length of time",
            2,
        ),
        (lambda: Path("study/coordinator.json").write_text("{"), "missing or damaged", 1),
        (lambda: Path("study/sites.json").write_text("[]"), "missing or damaged", 1),
        (lambda: Path("study/sites.json").unlink(), "north, south not admitted yet", 2),
        (
            lambda: Path("study/keys/coordinator.key").unlink(),
            "coordinator.key is missing",
            1,
        ),
        (
            lambda: Path("study/keys/server.key").unlink(),
            "server.key is missing: restore",
            1,
        ),
        (
            lambda: shutil.copy("other/keys/authority.pem", "study/keys"),
            "is not the certificate in study/study.toml",
            1,
        ),
        (
            lambda: edited(Path("study/coordinator.json"), "127.0.0.1:", "192.0.2.1:"),
            "this machine cannot listen at 192.0.2.1:9092",
            2,
        ),
        (
            lambda: edited(Path("study/coordinator.json"), "9092", "99092"),
            "a port is a number from 1 to 65535",
            2,
        ),
    ],
)
def test_what_was_changed_or_lost_at_the_coordinator_is_said_before_flower_starts(
    change: Change, message: str, code: int, command: RunCommand
) -> None:
    command(*ADMIT, "north/join.json", "south/join.json")
    change()
    refused(command("coordinate", "start", "study"), message, code)
    assert not Path("study/flower").exists()
