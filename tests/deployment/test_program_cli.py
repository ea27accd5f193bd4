"""Test ``fallow coordinate``: create a study, admit sites and show the status."""

from __future__ import annotations

import base64
import json
import os
import stat
import sys
import time
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from fallow.cli import main
from fallow.cli.coordinate import _ask_for_sums
from fallow.core.optional import OF_STUDIES
from fallow.deployment.coordinator.folder import CoordinatorFolder
from fallow.deployment.coordinator.live import Control
from fallow.deployment.coordinator.program import (
    name_run,
    open_event_log,
    set_run_aside,
)
from fallow.deployment.model_card import CARD
from fallow.deployment.site.agreement_text import describe_agreement
from fallow.deployment.site.folder import SiteFolder
from fallow.deployment.site.settings import Settings
from fallow.deployment.study_file import read_agreement
from fallow.privacy.masks import new_secret, public_half
from fallow.privacy.signing import new_signing_key, verify_key
from fallow.report.final_table import final_table
from fallow.report.sentences import summary
from fallow.settings.config import ExperimentConfig
from fallow.settings.spec import Spec
from fallow.settings.sums import describe_choices, describe_sums
from fallow.storage.files import only_one, write_json
from fallow.study.reading import read_study
from fallow.study.study_run import StudyRun
from tests.commands import check_result
from tests.deployment.agreed import table
from tests.deployment.children import free_port
from tests.report.conftest import write_study

RunCommand = Callable[..., tuple[int, str, str]]
INIT = (
    "--config",
    "demo",
    "--sites",
    "south,north",
    "--label",
    "disease",
    "--set",
    "cycles=1",
)


@pytest.fixture
def fallow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> RunCommand:
    """Run the command in a separate folder; return exit code, output and error."""
    monkeypatch.chdir(tmp_path)

    def called(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["fallow", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        if "--json" in words and not ended.value.code:
            check_result(words, out)
        return int(ended.value.code or 0), out, err

    return called


@pytest.fixture
def begun(fallow: RunCommand, tmp_path: Path) -> RunCommand:
    """Create a coordinator's folder ``study`` and the folders of its two sites."""
    table(tmp_path / "example.csv")
    code, _, err = fallow(
        "coordinate", "init", "study", "--sums", "exact", "--example", "example.csv", *INIT
    )
    assert (code, err) == (0, "")
    for site in ("north", "south"):
        SiteFolder.create(
            tmp_path / site,
            tmp_path / "study" / "study.toml",
            name=site,
            data=str(tmp_path / "example.csv"),
        )
    return fallow


def test_init_asks_how_sums_are_sent_and_writes_nothing_without_an_answer(
    fallow: RunCommand, tmp_path: Path
) -> None:
    table(tmp_path / "example.csv")
    code, _, err = fallow("coordinate", "init", "study", "--example", "example.csv", *INIT)
    assert code != 0
    assert "a study at real sites has no default" in err
    assert "give --sums exact or --sums noisy" in err
    assert not (tmp_path / "study").exists()

    config = ExperimentConfig("a", training=Spec("closed-form"))
    with CliRunner().isolation(input="noisy\n") as streams:
        assert _ask_for_sums(config, is_asked=True) == "noisy"
    shown = streams[0].getvalue().decode()
    for line in describe_choices(config):
        assert line[:60] in shown.replace("\n", " ")
    with (
        CliRunner().isolation(input=""),
        pytest.raises(ValueError, match="nothing was created"),
    ):
        _ask_for_sums(config, is_asked=True)


def test_init_states_what_the_sums_reveal_and_each_site_sees_it_before_it_joins(
    fallow: RunCommand, tmp_path: Path
) -> None:
    table(tmp_path / "example.csv")
    options = ["--example", "example.csv", *INIT, "--sums", "exact"]
    _, out, _ = fallow("coordinate", "init", "study", *options)
    agreement = read_agreement(tmp_path / "study" / "study.toml")
    sentence = describe_sums(agreement.config)
    assert f"Sums are {sentence}." in " ".join(out.split())
    assert "Wrote study/data.html" in out.replace("\n", " ")
    page = (tmp_path / "study" / "data.html").read_text()
    assert all(column.name in page for column in agreement.schema.columns)
    assert f"sums: {sentence}" in describe_agreement(agreement, Settings("north", "x"))
    study = (tmp_path / "study" / "study.toml").read_text()
    assert sentence in study.replace("\n# ", " ")
    (tmp_path / "study.toml").write_text(study.replace('sums = "exact", ', ""))
    with pytest.raises(ValueError, match=r"privacy.sums is not set"):
        read_agreement(tmp_path / "study.toml")


def test_init_turns_on_the_secure_sums_that_a_study_needs_and_says_so(
    fallow: RunCommand, tmp_path: Path
) -> None:
    table(tmp_path / "example.csv")
    (tmp_path / "real.toml").write_text('strategy = "margin"\n')
    options = ["--config", "real.toml", "--example", "example.csv", "--label", "disease"]
    sites = ["--sites", "east,north,south"]
    code, out, err = fallow(
        "coordinate", "init", "study", "--sums", "exact", *options, *sites
    )
    assert (code, err) == (0, "")
    assert "Secure aggregation is on (privacy.secure_sum)" in out
    assert "--set privacy.secure_sum=false turns it off" in out
    config = read_agreement(tmp_path / "study" / "study.toml").config
    assert config.training.name == "closed-form"
    assert config.privacy.secure_sum

    plain = ["--set", "privacy.secure_sum=false"]
    code, _, err = fallow(
        "coordinate", "init", "plain", "--sums", "exact", *options, *sites, *plain
    )
    assert code != 0
    assert 'agree to that with training = "closed-form:reveal=head:shown=parts"' in err

    code, _, err = fallow(
        "coordinate", "init", "two", "--sums", "exact", *options, "--sites", "north,south"
    )
    assert code != 0
    assert "set privacy.secure_sum = true (three sites or more)" in err


def test_init_refuses_what_needs_single_replies_and_says_how_to_turn_sums_off(
    fallow: RunCommand, tmp_path: Path
) -> None:
    table(tmp_path / "example.csv")
    options = ["--config", "demo", "--example", "example.csv", "--label", "disease"]
    options += ["--sites", "east,north,south", "--set", "training=robust"]
    code, _, err = fallow("coordinate", "init", "study", "--sums", "exact", *options)
    assert code == 2
    assert "robust does not support secure aggregation" in err
    assert "set privacy.secure_sum=false" in err
    assert not (tmp_path / "study").exists()
    code, out, _ = fallow(
        "coordinate",
        "init",
        "s",
        "--sums",
        "exact",
        *options,
        "--set",
        "privacy.secure_sum=false",
    )
    assert code == 0
    assert "Secure aggregation" not in out
    assert not read_agreement(tmp_path / "s" / "study.toml").config.privacy.secure_sum


def test_a_file_that_says_no_to_secure_sums_is_followed(
    fallow: RunCommand, tmp_path: Path
) -> None:
    table(tmp_path / "example.csv")
    (tmp_path / "plain.toml").write_text(
        'training = "fedavg"\nstrategy = "margin"\n[privacy]\nsecure_sum = false\n'
    )
    details = ["--config", "plain.toml", "--example", "example.csv", "--label", "disease"]
    code, _, err = fallow(
        "coordinate",
        "init",
        "study",
        "--sums",
        "exact",
        *details,
        "--sites",
        "east,north,south",
    )
    assert (code, err) == (0, "")
    assert not read_agreement(tmp_path / "study" / "study.toml").config.privacy.secure_sum


def test_a_quorum_that_is_too_small_for_secure_sums_is_told_the_switch(
    fallow: RunCommand, tmp_path: Path
) -> None:
    table(tmp_path / "example.csv")
    details = ["--config", "demo", "--example", "example.csv", "--label", "disease"]
    sites = ["--sites", "east,north,south", "--quorum", "2"]
    code, _, err = fallow(
        "coordinate", "init", "study", "--sums", "exact", *details, *sites
    )
    assert code == 2
    assert (
        "secure aggregation needs 3 sites; set privacy.secure_sum=false to disable it"
        in err
    )


def test_init_writes_an_agreement_that_names_this_coordinator(
    begun: RunCommand, tmp_path: Path
) -> None:
    agreed = read_agreement(tmp_path / "study" / "study.toml")
    coordinator_folder = CoordinatorFolder.open(tmp_path / "study")
    assert agreed.sites == ("north", "south")
    assert agreed.schema.features == ("age", "sex=female", "sex=male", "chol")
    assert agreed.coordinator == verify_key(coordinator_folder.secret)
    for secret in ("coordinator.key", "server.key"):
        mode = stat.S_IMODE((tmp_path / "study" / "keys" / secret).stat().st_mode)
        assert mode == 0o600, secret


def test_init_says_what_to_send_and_what_to_do_next(
    fallow: RunCommand, tmp_path: Path
) -> None:
    table(tmp_path / "example.csv")
    details = ("--example", "example.csv", "--host", "hub.example", *INIT)
    _, out, _ = fallow("coordinate", "init", "study", "--sums", "exact", *details)
    for message in (
        "study.toml",
        "--address hub.example:9092",
        "fallow coordinate admit study",
        "fallow coordinate start study",
    ):
        assert message in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--sites", "north,north"), "name each site once"),
        (
            ("--sites", "north,south", "--set", "strategy=oracle-histogram"),
            "exist only in a simulation",
        ),
        (("--sites", "north,south", "--address", "nowhere"), "give host:port"),
        (("--sites", "north,south", "--quorum", "3"), "federation.quorum is 3"),
        (("--sites", "north,south", "--deadline", "soon"), "deadline is 'soon'"),
    ],
)
def test_a_study_that_cannot_be_leaves_no_folder(
    words: tuple[str, ...], message: str, fallow: RunCommand, tmp_path: Path
) -> None:
    table(tmp_path / "example.csv")
    details = ("--config", "demo", "--example", "example.csv", "--label", "disease", *words)
    code, _, err = fallow("coordinate", "init", "study", "--sums", "exact", *details)
    assert code == 2
    assert message in err
    assert not (tmp_path / "study").exists()


def test_a_folder_is_begun_once(begun: RunCommand) -> None:
    code, _, err = begun(
        "coordinate", "init", "study", "--sums", "exact", "--example", "example.csv", *INIT
    )
    assert code == 2
    assert "choose another one" in err


def test_sites_are_admitted_by_what_they_send(begun: RunCommand, tmp_path: Path) -> None:
    code, out, _ = begun("coordinate", "admit", "study", "north/join.json")
    assert code == 0
    assert "missing: south" in out
    _, out, _ = begun("coordinate", "admit", "study", "south/join.json", "north/join.json")
    assert "next: fallow coordinate start study" in out
    keys = CoordinatorFolder.open(tmp_path / "study").keys
    for site in ("north", "south"):
        own = SiteFolder.open(tmp_path / site).keys
        assert (keys.sites[site], keys.seals[site].public) == (own.verify, own.seal_public)


def test_nobody_starts_before_all_sites_are_admitted(begun: RunCommand) -> None:
    begun("coordinate", "admit", "study", "north/join.json")
    code, _, err = begun("coordinate", "start", "study")
    assert code == 2
    assert "south not admitted yet" in err


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": "sout"}, "did you mean 'south'"),
        ({"study": "0" * 32}, "another version of the study"),
        ({"verify": "c2hvcnQ="}, "verify is not 32 bytes"),
        ({"seal": "%"}, "seal is a key that cannot encrypt"),
        # a key without a shared secret with any other key, so that sealing for it fails
        ({"seal": 43 * "A" + "="}, "seal is a key that cannot encrypt"),
        # a foreign key, whose owner could read what others send to the site
        (
            {"seal": base64.b64encode(public_half(new_secret())).decode()},
            "seal is not signed with the key of",
        ),
        ({"seal_signature": "%"}, "seal is not signed with the key of south"),
        # a point of small order, with which anybody could sign for the site
        ({"verify": "AQ" + 41 * "A" + "="}, "verify is a weak key"),
        ({"transport_key": 3}, "transport_key is 3; it must be a text"),
        (
            {"transport_key": "abc"},
            "transport_key is not empty, but this transport has no keys",
        ),
    ],
)
def test_what_is_wrong_with_a_join_file_is_said(
    change: dict[str, object], message: str, begun: RunCommand, tmp_path: Path
) -> None:
    file = tmp_path / "south" / "join.json"
    write_json(file, json.loads(file.read_bytes()) | change)
    code, _, err = begun("coordinate", "admit", "study", "south/join.json")
    assert code == 2
    assert message in " ".join(err.split())
    assert CoordinatorFolder.open(tmp_path / "study").admitted == {}


def test_a_join_file_with_a_number_of_thousands_of_digits_is_named(
    begun: RunCommand, tmp_path: Path
) -> None:
    (tmp_path / "long.json").write_text(f'{{"name": {"9" * 5000}}}')
    code, _, err = begun("coordinate", "admit", "study", "long.json")
    assert code == 2
    assert "long.json is not the join.json of a site" in err


def test_class_names_that_steer_a_screen_are_refused_before_a_folder_is_made(
    fallow: RunCommand, tmp_path: Path
) -> None:
    names = np.array(["\ud800", "b"] * 2)
    np.savez(tmp_path / "example.npz", x=np.ones((4, 2)), y=names)
    options = ("--config", "demo", "--sites", "a,b", "--example", "example.npz")
    code, _, err = fallow("coordinate", "init", "study", "--sums", "exact", *options)
    assert code == 2
    assert "schema.classes" in err and "leave it out" in err
    assert not (tmp_path / "study").exists()


@pytest.mark.parametrize(
    "options",
    [
        ("--guideline", "FILE"),
        ("--config", "FILE"),
        ("--clients", "FILE"),
        ("--certificate", "FILE", "--certificate-key", "FILE"),
        ("--certificate", "FILE", "--certificate-key", "FILE", "--ca", "FILE"),
    ],
    ids=["guideline", "config", "clients", "certificate", "authority"],
)
def test_no_option_waits_for_a_pipe_or_reads_a_file_of_any_size(
    options: tuple[str, ...], fallow: RunCommand, tmp_path: Path
) -> None:
    table(tmp_path / "example.csv")
    os.mkfifo(tmp_path / "pipe.toml")
    (tmp_path / "endless.toml").symlink_to("/dev/zero")
    with (tmp_path / "sparse.toml").open("wb") as sparse:
        sparse.truncate(64 << 20)
    sentences = {
        "pipe.toml": "pipe.toml is not a file but a pipe or a device; give a file",
        "endless.toml": "endless.toml is not a file but a pipe or a device; give a file",
        "sparse.toml": "sparse.toml has more than 4 MiB, the limit for such a file; give a "
        "smaller one",
    }
    for name, sentence in sentences.items():
        named = [name if word == "FILE" else word for word in options]
        usual = [*INIT]
        if "--config" in named:
            del usual[:2]  # its own --config
        study_options = ("--example", "example.csv", "--transport", "https", *usual, *named)
        code, _, err = fallow(
            "coordinate", "init", "study", "--sums", "exact", *study_options
        )
        assert code == 2
        assert sentence in " ".join(err.split())
        assert not (tmp_path / "study").exists()


def test_other_keys_of_a_site_are_taken_only_where_that_is_meant(
    begun: RunCommand, tmp_path: Path
) -> None:
    begun("coordinate", "admit", "study", "south/join.json")
    file = tmp_path / "south" / "join.json"
    other = json.loads((tmp_path / "north" / "join.json").read_bytes()) | {"name": "south"}
    keys = SiteFolder.open(tmp_path / "north").keys
    other["seal_signature"] = keys.sign_seal(other["study"], "south")
    write_json(file, other)
    code, _, err = begun("coordinate", "admit", "study", "south/join.json")
    assert code == 2
    assert "--replace" in err
    code, _, _ = begun("coordinate", "admit", "study", "south/join.json", "--replace")
    assert code == 0
    assert CoordinatorFolder.open(tmp_path / "study").admitted["south"] == other


@pytest.mark.long
def test_a_coordinator_that_waited_too_long_says_so_and_nothing_else(
    fallow: RunCommand, tmp_path: Path
) -> None:
    pytest.importorskip("uvicorn")
    table(tmp_path / "example.csv")
    waits = ("--timeout", "1s", "--patience", "2s", "--address", f"127.0.0.1:{free_port()}")
    details = ("--example", "example.csv", "--transport", "https", *waits, *INIT)
    assert fallow("coordinate", "init", "study", "--sums", "exact", *details)[0] == 0
    for site in ("north", "south"):
        SiteFolder.create(
            tmp_path / site,
            tmp_path / "study" / "study.toml",
            name=site,
            data=str(tmp_path / "example.csv"),
        )
        assert fallow("coordinate", "admit", "study", f"{site}/join.json")[0] == 0
    code, _, err = fallow("coordinate", "start", "study")
    assert code == 1
    assert "start again when the sites are connected to resume the run" in err
    assert "this is a bug" not in err


def test_the_status_of_a_study_that_was_not_started(begun: RunCommand) -> None:
    _, out, _ = begun("coordinate", "status", "study")
    assert "not admitted yet: north, south" in out
    _, out, _ = begun("coordinate", "status", "study", "--json")
    assert json.loads(out)["missing"] == ["north", "south"]


LIVE = {
    "state": "running",
    "phase": "labeling",
    "cycle": 0,
    "cycles": 1,
    "deadline": "2030-01-01T00:00:00+00:00",
    "sites": {
        "north": {
            "rows": 4,
            "online": True,
            "labels": {"asked": 3, "answered": 1, "declined": 0, "open": 2, "conflicts": 0},
        }
    },
    "refusals": [
        {
            "at": "2030-01-01T07:00:00+00:00",
            "site": "south",
            "exchange": "0/train/0",
            "reason": "its clock strikes thirteen",
        }
    ],
}


def test_the_status_of_a_study_that_runs(begun: RunCommand, tmp_path: Path) -> None:
    write_json(tmp_path / "study" / "live.json", LIVE)
    with only_one(tmp_path / "study" / "coordinator.lock"):
        _, out, _ = begun("coordinate", "status", "study")
        _, raw, _ = begun("coordinate", "status", "study", "--json")
    for output in ("labeling", "1 Jan 2030", "north", "its clock strikes thirteen"):
        assert output in out
    assert json.loads(raw)["sites"]["north"]["labels"]["open"] == 2


def test_the_status_says_what_more_labels_would_bring_and_why_a_run_has_ended(
    begun: RunCommand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The forecast uses the coordinator's records, as ``fallow forecast`` does, without pandas."""
    study = tmp_path / "study"
    write_study(study, strategies=("entropy",), seeds=1, cycles=6, reference=None)
    path = study / "cells/entropy/seed-0/records.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    rows[-1]["stopped"] = "another 100 labels bring less than 0.3 points"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    write_json(study / "live.json", {**LIVE, "state": "finished"})
    with monkeypatch.context() as core:
        for package in OF_STUDIES:
            core.setitem(sys.modules, package, None)
        _, out, _ = begun("coordinate", "status", "study")
        _, raw, _ = begun("coordinate", "status", "study", "--json")
    _, forecast, _ = begun("forecast", "study")
    output = json.loads(raw)["forecast"]
    assert output[0].endswith(
        "seed 0 stopped after cycle 5: another 100 labels bring less than 0.3 points."
    )
    assert "another 200 labels" in output[1].lower()
    assert output[1] == " ".join(forecast.split())
    for line in output:
        assert line in " ".join(out.split())


def test_the_status_begins_with_the_first_sentence_of_the_report(
    begun: RunCommand, tmp_path: Path
) -> None:
    study = tmp_path / "study"
    write_study(study, strategies=("entropy",), seeds=1, cycles=3, reference=None)
    path = study / "cells/entropy/seed-0/records.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    rows[-1]["per_class"] = [1.0, *(0.0 for _ in rows[-1]["per_class"][1:])]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    write_json(study / "live.json", {**LIVE, "state": "finished"})
    first = "1 run of entropy ended with a model that predicts only one class."
    _, out, _ = begun("coordinate", "status", "study")
    assert first in " ".join(out.split())
    _, raw, _ = begun("coordinate", "status", "study", "--json")
    assert json.loads(raw)["headline"].startswith(first)
    assert first in summary(read_study(study), final_table(read_study(study)))


def test_a_new_run_begins_beside_the_files_of_the_earlier_one(
    begun: RunCommand, tmp_path: Path
) -> None:
    study = tmp_path / "study"
    agreed = CoordinatorFolder.open(study).agreement
    run_folder = StudyRun(str(agreed.config.strategy), agreed.seed).folder(study)
    assert set_run_aside(study, run_folder) is None
    names = []
    for _ in range(2):
        with open_event_log(run_folder, agreed) as event_log:
            names.append(event_log.note_once("run", name_run(time.time())))
        (study / CARD).write_text(names[-1])
        assert set_run_aside(study, run_folder) is not None
    assert len(set(names)) == 2
    for number, name in enumerate(names, start=1):
        assert (study / "earlier" / f"run-{number}" / CARD).read_text() == name
    assert not run_folder.exists() and not (study / CARD).exists()


def test_the_status_of_labels_that_are_being_cut_short(
    begun: RunCommand, tmp_path: Path
) -> None:
    step = {"step": "0/query", "tasks": "labels of cycle 0"}
    write_json(tmp_path / "study" / "live.json", {**LIVE, **step})
    with only_one(tmp_path / "study" / "coordinator.lock"):
        begun("coordinate", "advance", "study")
        _, out, _ = begun("coordinate", "status", "study")
        assert "labels of cycle 0 are being closed at the coordinator's request" in out
        assert "Annotators have until" not in out
        write_json(tmp_path / "study" / "live.json", {**LIVE, "phase": "training"})
        assert "closed" not in begun("coordinate", "status", "study")[1]


def test_the_status_of_a_study_whose_process_died(
    begun: RunCommand, tmp_path: Path
) -> None:
    write_json(tmp_path / "study" / "live.json", LIVE)
    _, out, _ = begun("coordinate", "status", "study")
    assert "The process has ended" in out


def test_a_running_coordinator_is_told_to_advance_and_to_stop(
    begun: RunCommand, tmp_path: Path
) -> None:
    control = Control(tmp_path / "study" / "control")
    write_json(tmp_path / "study" / "live.json", LIVE)
    with only_one(tmp_path / "study" / "coordinator.lock"):
        assert begun("coordinate", "advance", "study")[0] == 0
        assert begun("coordinate", "stop", "study")[0] == 0
    assert control.take("advance") and control.take("stop")


def test_there_is_nothing_to_tell_where_nothing_runs(
    begun: RunCommand, tmp_path: Path
) -> None:
    for word in ("advance", "stop"):
        code, _, err = begun("coordinate", word, "study")
        assert code == 2
        assert "no coordinator is running" in err
    write_json(tmp_path / "study" / "live.json", {**LIVE, "phase": "training"})
    with only_one(tmp_path / "study" / "coordinator.lock"):
        _, _, err = begun("coordinate", "advance", "study")
    assert "waits neither for labels nor" in err


WAITING = {
    "key": "0/initial/features/0",
    "sites": ["south"],
    "needed": 2,
    "since": "2026-12-05T21:49:24+00:00",
    "until": "2026-12-12T21:49:24+00:00",
    "can_advance": True,
    "is_of_all": True,
}


def test_status_and_advance_speak_of_sites_that_are_waited_for(
    begun: RunCommand, tmp_path: Path
) -> None:
    live = {**LIVE, "phase": "initial labels", "deadline": None, "waiting": WAITING}
    live["absent"] = [
        {"site": "north", "exchange": "round 1 of cycle 0", "at": WAITING["since"]}
    ]
    write_json(tmp_path / "study" / "live.json", live)
    with only_one(tmp_path / "study" / "coordinator.lock"):
        _, out, _ = begun("coordinate", "status", "study")
        assert "Waiting for south since 5 Dec 2026, 21:49 UTC, until" in out
        assert "'fallow coordinate advance' proceeds without them for the rest" in out
        assert "Round 1 of cycle 0 proceeds without north since 5 Dec 2026" in out
        code, out, _ = begun("coordinate", "advance", "study")
        assert (code, out) == (0, "the study proceeds without south within seconds\n")
    assert Control(tmp_path / "study" / "control").take("advance")


@pytest.mark.parametrize(
    ("phase", "message"),
    [
        (
            "registering sites",
            "a study starts with all its sites, and south did not reply yet",
        ),
        ("training", "0/initial/features/0 needs 2 replies and waits for south; without"),
    ],
)
def test_what_cannot_go_on_without_a_site_is_said_with_what_to_do(
    phase: str, message: str, begun: RunCommand, tmp_path: Path
) -> None:
    waiting = {**WAITING, "can_advance": False}
    live = {**LIVE, "phase": phase, "waiting": waiting}
    write_json(tmp_path / "study" / "live.json", live)
    with only_one(tmp_path / "study" / "coordinator.lock"):
        code, _, err = begun("coordinate", "advance", "study")
    assert code == 2
    assert message in err


def test_a_folder_that_is_none_is_named(fallow: RunCommand) -> None:
    code, _, err = fallow("coordinate", "status", "nowhere")
    assert code == 2
    assert "fallow coordinate init nowhere" in err


def test_a_copied_agreement_of_another_coordinator_is_refused(
    begun: RunCommand, tmp_path: Path
) -> None:
    key = tmp_path / "study" / "keys" / "coordinator.key"
    key.write_bytes(b64encode(new_signing_key()))
    code, _, err = begun("coordinate", "status", "study")
    assert code == 2
    assert "another coordinator" in err


# -- non-interactive use -------------------------------------------------------------------


def test_init_tells_a_program_what_it_made(fallow: RunCommand, tmp_path: Path) -> None:
    table(tmp_path / "example.csv")
    details = ("--example", "example.csv", *INIT)
    code, out, _ = fallow(
        "coordinate", "init", "study", "--sums", "exact", *details, "--json"
    )
    output = json.loads(out)
    assert code == 0
    assert output["sites"] == ["north", "south"]
    assert output["digest"] == read_agreement(Path(output["study"])).digest
    assert fallow(
        "coordinate", "init", "other", "--sums", "exact", *details, "--quiet"
    ) == (0, "", "")


def test_who_is_admitted_is_told_to_a_program(begun: RunCommand) -> None:
    code, out, _ = begun("coordinate", "admit", "study", "north/join.json", "--json")
    event = json.loads(out)
    assert code == 0
    assert [item["site"] for item in event["admitted"]] == ["north"]
    assert event["missing"] == ["south"] and not event["restart"]
    assert begun("coordinate", "admit", "study", "south/join.json", "--quiet") == (
        0,
        "",
        "",
    )


def test_stop_is_told_to_a_program(begun: RunCommand, tmp_path: Path) -> None:
    with only_one(tmp_path / "study" / "coordinator.lock"):
        code, out, _ = begun("coordinate", "stop", "study", "--json")
        assert code == 0 and json.loads(out) == {"folder": "study"}
        assert begun("coordinate", "stop", "study", "--quiet") == (0, "", "")


def test_a_site_that_joins_by_a_script_gives_the_digest(
    begun: RunCommand, tmp_path: Path
) -> None:
    words = ["site", "init", "again", "--study", "study/study.toml", "--name", "north"]
    words += ["--data", "example.csv"]
    code, _, err = begun(*words, "--json")
    assert code == 2 and "--quiet and --json do not prompt" in err
    assert not (tmp_path / "again").exists()
    digest = read_agreement(tmp_path / "study" / "study.toml").digest
    code, out, _ = begun(*words, "--digest", digest, "--json")
    output = json.loads(out)
    assert code == 0 and output["site"] == "north" and output["digest"] == digest
    assert Path(output["join"]).exists() and output["rows"] > 0
    words[2] = "quiet"
    assert begun(*words, "--digest", digest, "--quiet") == (0, "", "")


def test_a_script_that_gives_no_limit_takes_what_one_run_asks_for(
    begun: RunCommand, tmp_path: Path
) -> None:
    agreement = read_agreement(tmp_path / "study" / "study.toml")
    table(
        tmp_path / "many.csv",
        *[f"q{n},60,male,200,{'' if n > 4 else 'no'}" for n in range(99)],
    )
    words = ["site", "init", "again", "--study", "study/study.toml", "--name", "north"]
    words += ["--data", "many.csv", "--digest", agreement.digest]
    code, out, err = begun(*words)
    assert (code, err) == (0, "")
    # 5 % of 2 x 99 examples, half initially and half in the only cycle
    line = (
        "Label budget: 10, the number that one run of the study requests if all sites have"
    )
    assert line in " ".join(out.split())
    assert 'Write address = "host:port" of the coordinator into' in out
    assert SiteFolder.open(tmp_path / "again").settings.limit == 10
    words[2] = "limited"
    code, out, _ = begun(*words, "--limit", "7", "--address", "hub.example:9092")
    assert code == 0 and "Label budget:" not in out
    assert "address =" not in out
    assert SiteFolder.open(tmp_path / "limited").settings.limit == 7


def test_a_site_tells_a_program_what_it_wrote_and_took(
    begun: RunCommand, tmp_path: Path
) -> None:
    code, out, _ = begun("site", "export", "north", "open.csv", "--json")
    assert code == 0
    assert json.loads(out) == {
        "file": "open.csv",
        "kind": "labeling tasks",
        "count": 0,
        "more": [],
    }
    (tmp_path / "answers.csv").write_text("id,label\n1,yes\n")
    code, out, err = begun("site", "import", "north", "answers.csv", "--json")
    output = json.loads(out)
    assert code == 2 and "1 line of answers.csv cannot be imported" in err
    assert output["recorded"] == 0 and len(output["refused"]) == 1


# -- guideline -----------------------------------------------------------------------------


def test_a_guideline_is_agreed_on_and_shown_before_a_site_joins(
    fallow: RunCommand, tmp_path: Path
) -> None:
    table(tmp_path / "example.csv")
    long = "Where two readings differ, choose “Cannot tell”. " * 40
    (tmp_path / "guide.txt").write_text(f"\nIll: half a vessel or more.\n{long}\n", "utf-8")
    details = ("--example", "example.csv", *INIT, "--guideline", "guide.txt")
    assert fallow("coordinate", "init", "study", "--sums", "exact", *details)[0] == 0
    agreed = read_agreement(tmp_path / "study" / "study.toml")
    assert agreed.guideline == f"Ill: half a vessel or more.\n{long.strip()}"
    words = ["site", "init", "north", "--study", "study/study.toml", "--name", "north"]
    _, out, _ = fallow(*words, "--data", "example.csv", "--digest", "00000000")
    assert "guideline, displayed beside each example:" in out
    assert "Ill: half a vessel or more." in out and long.strip() in out
    assert not (tmp_path / "north").exists()  # it is shown before anything is created


def test_a_new_site_has_a_data_sheet_that_only_its_user_may_read(
    begun: RunCommand, tmp_path: Path
) -> None:
    digest = read_agreement(tmp_path / "study" / "study.toml").digest
    words = ["site", "init", "own", "--study", "study/study.toml", "--name", "north"]
    code, _, err = begun(*words, "--data", "example.csv", "--digest", digest, "--quiet")
    assert (code, err) == (0, "")
    page = tmp_path / "own" / "data.html"
    assert "Look at these first" in page.read_text(encoding="utf-8")
    assert page.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "the guideline guide.txt cannot be read"),
        (b"\xff\xfe\xfa", "guide.txt: it is not in UTF-8"),
        (b" \n", "guide.txt: federation.guideline is empty"),
        (b"a" * 4001, "guide.txt: federation.guideline has 4001 characters"),
    ],
)
def test_a_guideline_that_cannot_be_shown_is_refused(
    fallow: RunCommand, tmp_path: Path, content: bytes | None, why: str
) -> None:
    table(tmp_path / "example.csv")
    if content is not None:
        (tmp_path / "guide.txt").write_bytes(content)
    options = ("--example", "example.csv", *INIT, "--guideline", "guide.txt")
    code, _, err = fallow("coordinate", "init", "study", "--sums", "exact", *options)
    assert code == 2 and why in err
    assert not (tmp_path / "study").exists()
