"""Test ``fallow audit``: its contents, its signature and the detection of changes."""

from __future__ import annotations

import csv
import json
import re
import shutil
import sqlite3
import subprocess
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from contextlib import closing
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from fallow.cli.coordinate_messages import CoordinatorLines
from fallow.cli.log_lines import LogLines
from fallow.core.exchange_key import ExchangeKey
from fallow.deployment.audit_log.entries import FIELDS, read_audit_log
from fallow.deployment.audit_log.signed import read_key, verify_audit, write_audit
from fallow.deployment.coordinator.arrivals import (
    ARRIVALS,
    Arrival,
    add_arrival,
    read_arrivals,
)
from fallow.deployment.site.folder import SiteFolder
from fallow.storage.errors import StorageError
from tests.deployment.hosts import Leader, agreement, folder
from tests.deployment.simulations import Federation, federation, rows
from tests.deployment.test_program_cli import RunCommand, begun, fallow

pytest.importorskip("cryptography")
__all__ = ["begun", "fallow"]  # fixtures

FILES = ("audit.html", "audit.csv")
CLASSES = ("class 0", "class 1", "class 2")


@pytest.fixture(scope="module")
def simulation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    """Return a study that two sites have finished with labels."""
    from tests.deployment.real import SHORT

    made = federation(tmp_path_factory.mktemp("study"), SHORT, rows(("basel", "chur")))
    try:
        assert made.program().go()
        yield made
    finally:
        made.close()


@pytest.fixture
def audit(simulation: Federation, tmp_path: Path) -> Path:
    """Return the audit log of a site."""
    write_audit(simulation.sites["basel"].path, tmp_path / "audit")
    return tmp_path / "audit"


def entries(audit: Path) -> list[dict[str, str]]:
    with (audit / "audit.csv").open(newline="") as lines:
        return list(csv.DictReader(lines))


def key_of(simulation: Federation, site: str = "basel") -> Path:
    return simulation.sites[site].path / "join.json"


def test_the_trail_of_a_site_has_every_label_with_its_person_and_every_answer(
    simulation: Federation, audit: Path
) -> None:
    site = simulation.sites["basel"]
    values = entries(audit)
    assert tuple(values[0]) == FIELDS
    with closing(site.open_ledger()) as ledger:
        asked = {question.row for question in ledger.tasks()}
        traffic = ledger.instructions.traffic()
    labeled = [line for line in values if line["event"] == "answer"]
    assert {int(line["row"]) for line in labeled} == asked
    assert {line["party"] for line in labeled} != {""}
    sent = [line for line in values if line["event"] == "sent"]
    assert len(sent) == sum(line["exchanges"] for line in traffic)
    assert sum(int(line["bytes"]) for line in sent) == sum(
        line["bytes"] for line in traffic
    )
    times = [line["time"] for line in values]
    assert times == sorted(times)
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", at) for at in times)


def test_no_cell_of_a_row_and_no_label_stands_in_a_trail(
    simulation: Federation, audit: Path
) -> None:
    site = simulation.sites["basel"]
    cells = [cell for line in open_rows(site) for cell in line if "." in cell]
    assert len(cells) > 50
    for name in FILES:
        text = (audit / name).read_text()
        assert not [cell for cell in cells if cell in text]
        assert not [word for word in CLASSES if word in text]


def test_no_line_of_a_log_of_a_whole_study_has_a_cell_or_a_label(
    simulation: Federation, capsys: pytest.CaptureFixture[str]
) -> None:
    log = LogLines(form="json", study="hospitals", party="coordinator")
    lines = CoordinatorLines(Console(file=StringIO()), simulation.agreement, log=log)
    for event in simulation.events:
        lines(event)
    output = capsys.readouterr().out
    assert len(output.splitlines()) > 10
    assert all(json.loads(line)["study"] == "hospitals" for line in output.splitlines())
    cells = [
        cell
        for line in open_rows(simulation.sites["basel"])
        for cell in line
        if "." in cell
    ]
    assert not [word for word in (*cells, *CLASSES) if word in output]


def open_rows(site: SiteFolder) -> list[list[str]]:
    """Return the lines of a site's own file."""
    with (site.path / site.settings.data).open(newline="") as lines:
        return list(csv.reader(lines))


def test_a_trail_is_what_its_party_signed(simulation: Federation, audit: Path) -> None:
    checked = verify_audit(audit, read_key(key_of(simulation)))
    assert checked.faults == []
    assert (checked.summary["role"], checked.summary["party"]) == ("site", "basel")


@pytest.mark.parametrize("name", FILES)
def test_a_changed_file_and_a_missing_one_are_found_and_named(
    simulation: Federation, audit: Path, name: str
) -> None:
    content = (audit / name).read_bytes()
    key = read_key(key_of(simulation))
    for changed in (
        content.replace(b"answer", b"Answer", 1),
        content[:-1],
        content + b"\n",
    ):
        (audit / name).write_bytes(changed)
        assert verify_audit(audit, key).faults == [f"{name} differs from the signed one"]
    (audit / name).unlink()
    assert verify_audit(audit, key).faults == [f"{name} is missing"]


def test_a_manifest_that_was_changed_and_one_of_somebody_else_are_refused(
    simulation: Federation, audit: Path
) -> None:
    manifest = audit / "manifest.json"
    whole = manifest.read_bytes()
    key = read_key(key_of(simulation))
    manifest.write_bytes(whole.replace(b'"basel"', b'"chur"', 1))
    with pytest.raises(ValueError, match="was not signed by the owner of that key"):
        verify_audit(audit, key)
    manifest.write_bytes(whole)
    of_another = read_key(key_of(simulation, "chur"))
    with pytest.raises(ValueError, match="was not signed by the owner of that key"):
        verify_audit(audit, of_another)


def sign_again(simulation: Federation, audit: Path, change: Callable[[Any], None]) -> None:
    """Sign modified files as a dishonest site."""
    from fallow.privacy.signing import SIGNATURE, sign

    manifest = json.loads((audit / "manifest.json").read_bytes())
    change(manifest)
    content = json.dumps(manifest).encode()
    (audit / "manifest.json").write_bytes(content)
    signature = sign(simulation.sites["basel"].keys.sign, content)[:SIGNATURE]
    (audit / "manifest.sig").write_bytes(signature)


def test_a_site_cannot_sign_as_the_coordinator(simulation: Federation, audit: Path) -> None:
    sign_again(simulation, audit, lambda line: line.update(role="coordinator"))
    with pytest.raises(ValueError, match="of the coordinator, but the key is that of site"):
        verify_audit(audit, read_key(key_of(simulation)))


@pytest.mark.parametrize(
    "change",
    [
        lambda record: record.pop("files"),
        lambda record: record["files"].pop("audit.csv"),
        lambda record: record["files"].update({"audit.csv": 7}),
        lambda record: record.update(files=[], role="site"),
        lambda record: record.update(role="somebody"),
        lambda record: record.update(made={"a": ["b"]}),
    ],
)
def test_a_manifest_that_its_own_party_made_odd_is_refused_in_a_sentence(
    simulation: Federation, audit: Path, change: Callable[[Any], None]
) -> None:
    sign_again(simulation, audit, change)
    with pytest.raises(ValueError, match="is not the manifest of an audit log"):
        verify_audit(audit, read_key(key_of(simulation)))


def test_no_message_of_a_party_passes_for_its_trail(
    simulation: Federation, audit: Path
) -> None:
    """A site signs replies with the same key, but a signed reply is not a manifest."""
    from fallow.privacy.signing import SIGNATURE
    from fallow.transport.envelope import Reply, sign_message

    site = simulation.sites["basel"]
    signed = sign_message(
        site.keys.sign, Reply("run", "basel", ExchangeKey("hello", "hello"))
    )
    (audit / "manifest.sig").write_bytes(signed[:SIGNATURE])
    (audit / "manifest.json").write_bytes(signed[SIGNATURE:])
    with pytest.raises(ValueError, match="was not signed by the owner of that key"):
        verify_audit(audit, read_key(key_of(simulation)))


def test_openssl_alone_checks_the_signature(simulation: Federation, audit: Path) -> None:
    """docs/operating.md describes this for auditors without Fallow."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("no openssl here")
    details = json.loads((audit / "manifest.json").read_bytes())
    head = bytes.fromhex("302a300506032b6570032100")
    text = b64encode(head + b64decode(details["key"])).decode()
    pem = audit / "key.pem"
    pem.write_text(f"-----BEGIN PUBLIC KEY-----\n{text}\n-----END PUBLIC KEY-----\n")
    words = ["pkeyutl", "-verify", "-pubin", "-inkey", str(pem), "-rawin"]
    files = ["-in", str(audit / "manifest.json"), "-sigfile", str(audit / "manifest.sig")]
    done = subprocess.run([openssl, *words, *files], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_ledger_of_which_a_line_was_changed_gives_no_trail(
    simulation: Federation, tmp_path: Path
) -> None:
    copy = tmp_path / "basel"
    shutil.copytree(simulation.sites["basel"].path, copy)
    with closing(sqlite3.connect(copy / "ledger.sqlite")) as db, db:
        db.execute("DROP TRIGGER history_stays")
        db.execute("DROP TRIGGER annotation_is_marked_again")
        db.execute("UPDATE annotation SET annotator = 'Eve' WHERE id = 1")
    with pytest.raises(StorageError, match="line 1 of its table annotation was changed"):
        read_audit_log(copy)


def test_every_release_of_noise_stands_there_with_its_time(tmp_path: Path) -> None:
    pytest.importorskip("opendp")
    from tests.deployment.test_host_protected import SHARE

    agreed = agreement("strategy=ahfal", "privacy.epsilon=0.5")
    leader = Leader(folder(tmp_path, agreed, brought=range(9)))
    leader.send(leader.instruction(SHARE))
    leader.ledger.close()
    trail, _ = read_audit_log(leader.site.path)
    (noise,) = [entry for entry in trail.entries if entry["event"] == "noise"]
    assert (noise["epsilon"], noise["exchange"]) == (0.5, "0/query/0")
    (sent,) = [entry for entry in trail.entries if entry["event"] == "sent"]
    assert noise["time"] == sent["time"] != ""


def test_a_name_of_a_person_is_no_markup_and_no_formula(
    simulation: Federation, tmp_path: Path
) -> None:
    copy = tmp_path / "basel"
    shutil.copytree(simulation.sites["basel"].path, copy)
    site = SiteFolder.open(copy)
    with closing(site.open_ledger()) as ledger:
        row = ledger.tasks()[0].row
        ledger.withdraw(row, '=1+1<script>alert("x")</script>', "her reason")
    write_audit(copy, tmp_path / "audit")
    page = (tmp_path / "audit" / "audit.html").read_text()
    assert "<script" not in page
    assert "&lt;script" in page
    table = (tmp_path / "audit" / "audit.csv").read_text()
    assert "'=1+1" in table
    for name in FILES:
        assert "her reason" not in (tmp_path / "audit" / name).read_text()


def test_the_trail_of_a_coordinator_has_who_was_let_in_and_what_arrived(
    begun: RunCommand, tmp_path: Path
) -> None:
    joined = [str(tmp_path / site / "join.json") for site in ("north", "south")]
    assert begun("coordinate", "admit", "study", *joined)[0] == 0
    arrival = Arrival(
        "2026-11-22T10:00:00+00:00", "received", "north", "r1", "0/hello", 70, 0.5
    )
    add_arrival(tmp_path / "study" / ARRIVALS, arrival)
    code, out, err = begun("audit", "write", "study", "--json")
    assert (code, err) == (0, "")
    assert json.loads(out)["entries"] == 3
    result = entries(tmp_path / "study" / "audit")
    assert [line["event"] for line in result] == ["admitted", "admitted", "received"]
    assert (result[2]["party"], result[2]["bytes"], result[2]["epsilon"]) == (
        "north",
        "70",
        "0.5",
    )
    words = ("audit", "verify", "study/audit", "--key", "study/study.toml")
    assert begun(*words)[0] == 0
    (tmp_path / "study" / "audit" / "audit.csv").write_text("nothing\n")
    code, _, err = begun(*words)
    assert code == 1
    assert "audit.csv differs from the signed one" in err


def test_a_coordinator_notes_each_answer_as_it_arrives(simulation: Federation) -> None:
    arrivals = list(read_arrivals(simulation.coordinator_folder / ARRIVALS))
    assert {arrival.site for arrival in arrivals} == {"basel", "chur"}
    assert {arrival.event for arrival in arrivals} == {"received"}
    assert all(arrival.n_bytes > 0 and arrival.run and arrival.time for arrival in arrivals)
    assert not [arrival for arrival in arrivals if arrival.key.startswith("progress/")]
    trail, _ = read_audit_log(simulation.sites["chur"].path)
    sent = {entry["exchange"] for entry in trail.entries if entry["event"] == "sent"}
    assert {arrival.key for arrival in arrivals if arrival.site == "chur"} == sent


def test_a_line_that_was_cut_short_costs_only_itself(tmp_path: Path) -> None:
    file = tmp_path / ARRIVALS
    arrival = Arrival("2026-11-22T10:00:00+00:00", "received", "north", "r1", "0/hello", 70)
    add_arrival(file, arrival)
    with file.open("ab") as half:
        half.write(b'{"time": "2026-11')
    add_arrival(file, arrival)
    assert list(read_arrivals(file)) == [arrival, arrival]
    assert file.stat().st_mode & 0o077 == 0
    with file.open("ab") as more:
        more.write(b'{"time": "2026"}\n')
    with pytest.raises(StorageError, match="line 4, was changed"):
        list(read_arrivals(file))


def test_a_folder_that_is_there_keeps_its_rights_and_a_file_is_none(
    simulation: Federation, tmp_path: Path
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o755)  # whatever the umask is
    write_audit(simulation.sites["basel"].path, shared)
    assert shared.stat().st_mode & 0o777 == 0o755
    write_audit(simulation.sites["basel"].path, tmp_path / "new")
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700
    with pytest.raises(ValueError, match="is a file; give the name of a folder"):
        write_audit(simulation.sites["basel"].path, shared / "audit.csv")


@pytest.mark.parametrize(
    ("key", "why"),
    [
        ("weak.json", "verify is a weak key, for which anyone can forge signatures"),
        ("short.json", "verify is not 32 bytes in base64"),
        ("nothing.json", "give the join.json of a site"),
        ("nothing.toml", "give the study.toml"),
    ],
)
def test_what_is_no_key_is_refused_in_a_sentence(
    fallow: RunCommand, tmp_path: Path, key: str, why: str
) -> None:
    for name, verify in (("weak", "AQ" + 41 * "A" + "="), ("short", "abc")):
        names = ("name", "study", "seal", "seal_signature", "transport_key")
        joining = {**dict.fromkeys(names, "north"), "verify": verify}
        (tmp_path / f"{name}.json").write_text(json.dumps(joining))
    code, _, err = fallow("audit", "verify", str(tmp_path), "--key", key)
    assert code in (1, 2)
    assert why in err
