"""Test that replays, hostile sites, new runs and sites that were offline do no harm."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fallow.core.messages import Request, Step
from fallow.core.types import Values
from fallow.deployment.agreement import Timeouts
from fallow.deployment.coordinator.program import name_run, open_event_log
from fallow.experiment.event_log import EventLog
from fallow.strategies import AHFAL
from tests.deployment.hosts import (
    ASK,
    Leader,
    agreement,
    folder,
    make_request,
    order_picks,
)
from tests.deployment.remotes import federation
from tests.deployment.simulations import NAMES, tiny
from tests.keys import key_of

pytest.importorskip("cryptography")

SHARE = Request(key_of("0/query/0"), "query", 0, 0, (Step("sum", "share", {}),))

# -- replays -------------------------------------------------------------------------------


def test_an_order_of_an_earlier_run_that_never_arrived_begins_nothing(
    leader: Leader,
) -> None:
    """The instruction is of the first of two runs and arrives during the second."""
    late = leader.instruction(make_request("hello", "0/hello"), run=name_run(1e9))
    leader.run = name_run(1.5e9)
    order_picks(leader)
    memory = leader.ledger.store.load_states("north").keys()
    assert "this is a replay, or the coordinator's clock" in str(leader.send(late).refused)
    assert leader.ledger.store.load_states("north").keys() == memory != set()
    assert leader.people("ask", "0/query", **ASK) == {"asked": 3}  # the run continues


def test_runs_that_begin_in_one_second_are_taken_in_their_order(leader: Leader) -> None:
    runs = [name_run(1.5e9 + eighth / 8) for eighth in range(8)]
    assert runs == sorted(runs)
    for run in runs:
        begun = leader.send(leader.instruction(make_request("hello", "0/hello"), run=run))
        assert not begun.refused
    assert len(set(runs)) == 8


def test_two_runs_of_one_moment_have_different_names() -> None:
    assert name_run(1.5e9) != name_run(1.5e9)


def test_a_replayed_ask_of_a_finished_cycle_asks_nobody(leader: Leader) -> None:
    order_picks(leader)
    leader.people("ask", "0/query", **ASK)
    ask = leader.instructions[-1]
    leader.people("close", "0/query")
    for instruction in (
        ask,
        replace(ask, number=99),
        replace(ask, number=99, counted=None),
    ):
        assert "which is completed" in str(leader.send(instruction).refused)
    assert leader.ledger.tasks(state="open") == []


# -- a site that was offline ---------------------------------------------------------------


def test_picks_of_a_cycle_that_a_site_missed_are_not_asked_in_a_later_one(
    leader: Leader,
) -> None:
    """The site selected examples, then missed labeling and training."""
    order_picks(leader)
    output: Values = {"allowed": 3}
    assert leader.people("ask", "1/query", 1, **output) == {"asked": 0}


@pytest.mark.parametrize("restart", ["fresh", "continue"])
def test_a_site_that_missed_the_end_of_a_cycle_begins_the_next_one_like_the_others(
    tmp_path: Path, restart: str
) -> None:
    agreed = agreement("strategy=entropy", "training=ditto", f"restart={restart}")
    after = []
    kept = []
    for name, misses in (("there", False), ("away", True)):
        (tmp_path / name).mkdir()
        leader = Leader(folder(tmp_path / name, agreed, brought=range(6)))
        order_picks(leader)
        leader.people("ask", "0/query", **ASK)
        if not misses:
            leader.people("close", "0/query")  # no label arrived
        after.append(leader.round(0, leader.first_model(), cycle=1))
        kept.append(leader.ledger.store.load_states("north"))
        leader.ledger.close()
    assert kept[0].keys() == kept[1].keys() >= {"own/v"}
    torch.testing.assert_close(after[0], after[1], rtol=0, atol=0)
    torch.testing.assert_close(kept[0]["own/v"], kept[1]["own/v"], rtol=0, atol=0)


W = torch.ones(2).double()
REPLY: Values = {"rows": 9.0, "hits": 3.0, "class_rows": W, "class_hits": W}


def test_a_score_of_another_number_of_classes_is_refused_by_the_others() -> None:
    result = federation(AHFAL())
    answers: dict[str, Values] = dict.fromkeys(result.remote.sites, REPLY)
    first = result.remote.sites[0]
    answers[first] = {**REPLY, "class_rows": torch.ones(3).double()}
    for site, signing in result.signing.items():
        signing.sent["0/train/1/score/0"] = answers[site]
    result.remote.waits = Timeouts(result.remote.waits.timeout, quorum=2)
    asked = {site: make_request("score", "0/train/1") for site in result.remote.sites}
    assert set(result.remote.exchange(asked).replies) == set(result.remote.sites) - {first}


# -- budgets -------------------------------------------------------------------------------


def test_runs_begun_again_do_not_average_noise_away(tmp_path: Path) -> None:
    pytest.importorskip("opendp")
    agreed = agreement("strategy=ahfal", "privacy.epsilon=0.5")  # of 2 cycles
    site = folder(tmp_path, agreed, brought=range(9))
    assert site.settings.epsilon is None and site.epsilon == 1.0
    refused = []
    for run in (f"000000000{at}-" + 16 * "a" for at in (1, 2, 3)):
        leader = Leader(site, run=run)
        refused.append(leader.send(leader.instruction(SHARE)).refused)
        leader.ledger.close()
    assert refused[:2] == [None, None]
    assert "has spent epsilon 1 of the 1 that it allows over all runs" in str(refused[2])


def test_a_row_withdrawn_after_it_was_picked_is_not_asked(leader: Leader) -> None:
    order_picks(leader)
    row = int(leader.ledger.store.load_states("north")["selected"]["rows"][0])
    leader.ledger.withdraw(row, "ann")
    assert leader.people("ask", "0/query", **ASK) == {"asked": 2}
    assert row not in {question.row for question in leader.ledger.tasks()}


# -- files ---------------------------------------------------------------------------------


def test_nobody_else_reads_a_ledger_or_its_copy(leader: Leader) -> None:
    order_picks(leader)
    leader.people("close", "0/query")
    files = sorted(leader.site.path.glob("ledger*"))
    assert {file.name for file in files} >= {"ledger.sqlite", "ledger-backup.sqlite"}
    assert [file.name for file in files if file.stat().st_mode & 0o077] == []


@pytest.mark.parametrize("is_old", [False, True], ids=["new", "of an earlier version"])
def test_nobody_else_reads_what_sites_answered_in_a_coordinators_journal(
    tmp_path: Path, is_old: bool
) -> None:
    file = tmp_path / "event_log.sqlite"
    if is_old:
        file.touch(mode=0o644)
    with open_event_log(tmp_path, agreement("strategy=entropy")) as event_log:
        event_log.note("a", "1")
        files = sorted(tmp_path.glob("event_log*"))
        assert {result.name for result in files} >= {file.name, f"{file.name}-wal"}
        assert [values.name for values in files if values.stat().st_mode & 0o077] == []


def test_a_refusal_names_no_folder_of_the_site(
    leader: Leader, monkeypatch: pytest.MonkeyPatch
) -> None:
    def report_damage(*args: object) -> None:
        raise leader.ledger._tables.damage_error("a page")

    monkeypatch.setattr(leader.ledger.instructions, "find_position", report_damage)
    refused = str(leader.send(leader.instruction(make_request("hello", "0/hello"))).refused)
    assert "its ledger is damaged" in refused and str(leader.site.path) not in refused
    assert "ledger.sqlite" in (leader.site.path / "errors.log").read_text()


def test_a_coordinators_journal_survives_a_power_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    full = 2
    normal = 1

    def read_durability(event_log: EventLog) -> int:
        return int(event_log._file.read("PRAGMA synchronous")[0][0])

    with open_event_log(tmp_path, agreement("strategy=entropy")) as event_log:
        assert read_durability(event_log) == full
    assert read_durability(EventLog(tmp_path / "simulated.sqlite")) == normal


# -- coordinator program -------------------------------------------------------------------


@pytest.mark.long
def test_a_study_begins_with_all_its_sites_and_says_so(tmp_path: Path) -> None:
    waits = Timeouts(timeout=5.0, quorum=2, patience=20.0, deadline=3600.0)
    simulation = tiny(tmp_path, waits=waits)
    simulation.transport.down = {"davos"}
    with pytest.raises(RuntimeError, match=r"starts with all its sites.*missing: davos"):
        simulation.program().go()
    assert simulation.transport.clock() >= 20.0  # the coordinator waited
    simulation.transport.down.clear()
    assert simulation.program().go()


@pytest.mark.long
def test_handing_over_the_last_model_is_among_what_left_each_site(tmp_path: Path) -> None:
    simulation = tiny(tmp_path)
    assert simulation.program().go()

    def list_finishes() -> list[Any]:
        return [
            row
            for row in simulation.records()[-1]["revealed"]
            if row["function"] == "finish"
        ]

    (row,) = list_finishes()
    assert (row["kind"], row["sites"], row["exchanges"]) == ("keep", len(NAMES[:3]), 1)
    (
        simulation.coordinator_folder / "model-card.md"
    ).unlink()  # killed before writing its last file
    assert simulation.program().go()
    assert list_finishes() == [row]
    assert "finish (keep)" in (simulation.coordinator_folder / "model-card.md").read_text()
