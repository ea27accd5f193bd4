"""Test that releases after a backup of the ledger count as spent once it is restored."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fallow.core.events import Event
from fallow.core.messages import Request, Step
from fallow.deployment.coordinator.program import set_run_aside
from fallow.deployment.ledger import Ledger
from fallow.deployment.ledger.releases import NAME
from fallow.privacy.ledger import Released
from fallow.privacy.settings import Privacy
from fallow.settings.config import ExperimentConfig
from fallow.settings.spec import Spec
from fallow.storage.errors import StorageError
from fallow.study.study_run import StudyRun
from tests.deployment.hosts import RUN, SECOND, Leader, agreement, folder
from tests.deployment.simulations import NAMES, federation, rows
from tests.experiment.crash import KILLED, start_child, wait_for_child
from tests.keys import key_of

pytest.importorskip("cryptography")
pytest.importorskip("opendp")

LIMIT, EACH = 3.0, 0.5


def noisy(path: Path, **chosen: Any) -> Leader:
    """Return a site with an epsilon limit of 3, for a run of six releases of 0.5."""
    agreed = agreement("strategy=ahfal", f"privacy.epsilon={EACH}", "cycles=6", "budget=1")
    settings = {"epsilon": LIMIT, **chosen}
    return Leader(folder(path, agreed, brought=range(9), **settings))


def share(cycle: int) -> Request:
    return Request(
        key_of(f"{cycle}/query/0"), "query", cycle, 0, (Step("sum", "share", {}),)
    )


def release(leader: Leader, cycle: int) -> torch.Tensor:
    """Make one release that counts."""
    instruction = leader.instruction(share(cycle))
    reply = leader.send(instruction)
    assert reply.refused is None, reply.refused
    leader.count(instruction)
    return torch.as_tensor(reply.body["share"])


def put_in_place(leader: Leader, file: Path) -> None:
    """Stop the process, replace the ledger by a file, and start the process."""
    leader.ledger.close()
    for end in ("", "-wal", "-shm"):
        (leader.site.path / f"ledger.sqlite{end}").unlink(missing_ok=True)
    shutil.copyfile(file, leader.site.ledger_path)
    leader.start()


def hand_copy(leader: Leader, name: str = "by-hand.sqlite") -> Path:
    """Copy the ledger of a stopped process, as recommended."""
    leader.ledger.close()
    copy = leader.site.path / name
    shutil.copyfile(leader.site.ledger_path, copy)
    leader.start()
    return copy


def own_copy(leader: Leader) -> Path:
    """Return the backup that the site makes every hour."""
    leader.ledger.backup()
    return leader.site.path / "ledger-backup.sqlite"


COPIES = pytest.mark.parametrize("copied", [hand_copy, own_copy])


@COPIES
def test_four_releases_since_the_copy_are_charged_all_four(
    tmp_path: Path, copied: Any
) -> None:
    leader = noisy(tmp_path)
    release(leader, 0)
    file = copied(leader)
    for cycle in range(1, 5):
        release(leader, cycle)
    put_in_place(leader, file)
    assert leader.ledger.store.sum_spent() == 5 * EACH
    second = Leader(leader.site, run=SECOND)  # the first run continues without this site
    release(second, 0)
    assert second.ledger.store.sum_spent() == LIMIT
    refused = str(second.send(second.instruction(share(1))).refused)
    assert "has spent epsilon 3 of the 3" in refused
    for one in (leader, second):
        one.ledger.close()


@COPIES
def test_the_same_question_has_the_same_answer_after_a_ledger_was_put_back(
    tmp_path: Path, copied: Any
) -> None:
    leader = noisy(tmp_path)
    file = copied(leader)
    instruction = leader.instruction(
        share(0)
    )  # the instruction is performed and the reply is lost
    first = leader.send(instruction).body["share"]
    put_in_place(leader, file)
    assert torch.equal(
        torch.as_tensor(leader.send(instruction).body["share"]), torch.as_tensor(first)
    )
    assert leader.ledger.store.sum_spent() == EACH
    leader.ledger.close()


@COPIES
@pytest.mark.parametrize("lost", ["gone", "damaged"])
def test_where_nobody_knows_what_was_released_all_that_was_left_is_spent(
    tmp_path: Path, copied: Any, lost: str
) -> None:
    leader = noisy(tmp_path)
    release(leader, 0)
    file = copied(leader)
    release(leader, 1)
    book = leader.site.path / NAME
    if lost == "gone":
        book.unlink()
    else:
        book.write_bytes(book.read_bytes().replace(b'"epsilon": 0.5', b'"epsilon": 0.1'))
    put_in_place(leader, file)
    assert leader.ledger.store.sum_spent() == LIMIT
    output = str(leader.ledger.store.describe_restored_ledger())
    assert "ε 2.5, the rest of its limit of 3, counts as spent" in output
    assert "raise the limit under [privacy] in site.toml" in output
    second = Leader(leader.site, run=SECOND)
    refused = str(second.send(second.instruction(share(0))).refused)
    assert "(2.5 of it because its ledger was restored from a backup)" in refused
    for one in (leader, second):
        one.ledger.close()


def test_a_folder_that_was_put_back_as_a_whole_with_its_own_copy_is_in_doubt(
    tmp_path: Path,
) -> None:
    """The second book is as old as the ledger but has another inode number."""
    leader = noisy(tmp_path)
    release(leader, 0)
    own_copy(leader)
    saved = tmp_path / "saved"
    shutil.copytree(leader.site.path, saved)
    for cycle in range(1, 4):
        release(leader, cycle)
    shutil.copyfile(saved / NAME, tmp_path / "book")
    (leader.site.path / NAME).unlink()
    os.replace(tmp_path / "book", leader.site.path / NAME)
    put_in_place(leader, saved / "ledger-backup.sqlite")
    assert leader.ledger.store.sum_spent() == LIMIT
    leader.ledger.close()


def test_a_second_book_whose_content_was_put_back_is_in_doubt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The inode number is the same, but the file was changed long after its last line."""
    leader = noisy(tmp_path)
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now - 100)
    release(leader, 0)
    own_copy(leader)
    book = leader.site.path / NAME
    before = book.read_bytes()
    release(leader, 1)
    monkeypatch.setattr(time, "time", lambda: now)
    book.write_bytes(before)
    put_in_place(leader, leader.site.path / "ledger-backup.sqlite")
    assert leader.ledger.store.sum_spent() == LIMIT
    leader.ledger.close()


def test_a_second_book_that_knows_less_than_its_ledger_is_in_doubt(tmp_path: Path) -> None:
    leader = noisy(tmp_path)
    release(leader, 0)
    book = leader.site.path / NAME
    before = book.read_bytes()
    release(leader, 1)
    book.write_bytes(before)
    leader.again()
    assert leader.ledger.store.sum_spent() == LIMIT
    leader.ledger.close()


@COPIES
def test_a_ledger_that_is_put_back_twice_is_charged_no_less(
    tmp_path: Path, copied: Any
) -> None:
    leader = noisy(tmp_path)
    file = tmp_path / "kept"
    shutil.copyfile(copied(leader), file)
    spent = []
    for cycle in range(3):
        reply = leader.send(leader.instruction(share(cycle), counted=None))
        assert reply.refused is None
        put_in_place(leader, file)
        spent.append(leader.ledger.store.sum_spent())
    assert spent == [EACH, 2 * EACH, 3 * EACH]
    (leader.site.path / NAME).unlink()
    for _ in range(3):
        put_in_place(leader, file)
        assert leader.ledger.store.sum_spent() == LIMIT
    leader.ledger.close()


def test_an_older_ledger_in_the_place_of_one_that_is_open_lets_nothing_out(
    tmp_path: Path,
) -> None:
    leader = noisy(tmp_path)
    file = hand_copy(leader)
    release(leader, 0)
    os.replace(file, leader.site.ledger_path)  # while the process runs
    for _ in range(2):
        refused = str(leader.send(leader.instruction(share(1))).refused)
        assert "was moved or replaced while the site was running" in refused
    leader.again()
    assert leader.ledger.store.sum_spent() == EACH
    leader.ledger.close()


def test_an_older_ledger_written_over_one_that_is_open_is_charged(tmp_path: Path) -> None:
    leader = noisy(tmp_path)
    file = hand_copy(leader)
    release(leader, 0)
    leader.ledger._tables.read("PRAGMA wal_checkpoint(TRUNCATE)")
    leader.site.ledger_path.write_bytes(file.read_bytes())  # while the process runs
    reply = leader.send(leader.instruction(share(1), counted=None))
    left = 1 if reply.refused else 2
    put_in_place(leader, file)
    assert leader.ledger.store.sum_spent() == left * EACH
    leader.ledger.close()


def test_a_copy_of_a_ledger_that_was_put_back_is_a_copy_like_any_other(
    tmp_path: Path,
) -> None:
    leader = noisy(tmp_path)
    put_in_place(leader, own_copy(leader))
    kept, book = tmp_path / "kept", tmp_path / "book"
    shutil.copyfile(own_copy(leader), kept)
    shutil.copyfile(leader.site.path / NAME, book)
    release(leader, 0)
    os.replace(book, leader.site.path / NAME)  # also restored: the release is unknown
    put_in_place(leader, kept)
    assert leader.ledger.store.sum_spent() == LIMIT
    leader.ledger.close()


def test_a_ledger_that_was_deleted_takes_its_releases_with_it_nowhere(
    tmp_path: Path,
) -> None:
    leader = noisy(tmp_path)
    release(leader, 0)
    leader.ledger.close()
    for end in ("", "-wal", "-shm"):
        (leader.site.path / f"ledger.sqlite{end}").unlink(missing_ok=True)
    leader.start()
    assert leader.ledger.store.sum_spent() == EACH
    leader.ledger.close()


@pytest.mark.parametrize("dies", ["before", "after"])
def test_a_process_that_dies_beside_the_second_book_loses_no_release(
    tmp_path: Path, dies: str
) -> None:
    """If the process is killed before the release is in the second book, the whole limit
    counts as spent. Otherwise the release is spent, and its instruction always gets the
    same reply."""
    leader = noisy(tmp_path)
    instruction = leader.instruction(share(0))
    leader.ledger.close()

    def act() -> None:
        leader.start()
        books = leader.ledger.store._releases
        add = books.add

        def deadly(line: Any) -> None:
            if dies == "after":
                add(line)
            os.kill(os.getpid(), signal.SIGKILL)

        object.__setattr__(books, "add", deadly)
        leader.send(instruction)

    assert wait_for_child(start_child(act)) == KILLED
    leader.start()
    assert leader.ledger.store.sum_spent() == (EACH if dies == "after" else 0)
    assert leader.ledger.store.describe_restored_ledger() is None  # no file was restored
    first = leader.send(instruction).body["share"]
    assert leader.ledger.store.sum_spent() == EACH
    leader.again()
    assert torch.equal(
        torch.as_tensor(first), torch.as_tensor(leader.send(instruction).body["share"])
    )
    leader.ledger.close()


def test_a_line_that_was_being_written_when_the_power_went_is_none(tmp_path: Path) -> None:
    leader = noisy(tmp_path)
    release(leader, 0)
    with (leader.site.path / NAME).open("ab") as file:
        file.write(b"0123 {half a li")
    release(leader, 1)
    leader.again()
    assert leader.ledger.store.sum_spent() == 2 * EACH
    leader.ledger.close()


# -- releases that the coordinator knows of ------------------------------------------------


def roll_back(path: Path) -> Leader:
    """Return a site whose whole folder was restored, so that no file reveals it."""
    leader = noisy(path)
    release(leader, 0)
    leader.ledger.close()
    saved = {
        name: (leader.site.path / name).read_bytes() for name in ("ledger.sqlite", NAME)
    }
    leader.start()
    release(leader, 1)
    leader.ledger.close()
    for name, content in saved.items():
        (leader.site.path / name).write_bytes(content)
    for end in ("-wal", "-shm"):
        (leader.site.path / f"ledger.sqlite{end}").unlink(missing_ok=True)
    leader.start()
    return leader


def test_a_coordinator_that_counted_what_the_site_forgot_proves_that_it_is_older(
    tmp_path: Path,
) -> None:
    leader = roll_back(tmp_path)
    assert leader.ledger.store.sum_spent() == EACH
    for _ in range(2):
        refused = str(leader.send(leader.instruction(share(2))).refused)
        assert "it is older, perhaps from a backup" in refused
    assert leader.ledger.store.sum_spent() == LIMIT
    leader.ledger.close()


def test_a_site_whose_loss_is_known_is_not_charged_for_it_again(tmp_path: Path) -> None:
    leader = noisy(tmp_path)
    file = own_copy(leader)
    release(leader, 0)
    release(leader, 1)
    put_in_place(leader, file)
    assert "it is older, perhaps from a backup" in str(
        leader.send(leader.instruction(share(2))).refused
    )
    assert leader.ledger.store.sum_spent() == 2 * EACH
    leader.ledger.close()


def test_what_a_coordinator_keeps_silent_about_is_charged_all_the_same(
    tmp_path: Path,
) -> None:
    """It says that nothing counted and repeats the instruction."""
    leader = noisy(tmp_path)
    file = own_copy(leader)
    lying = [leader.instruction(share(cycle), counted=None) for cycle in range(4)]
    for instruction in lying:
        assert leader.send(instruction).refused is None
    put_in_place(leader, file)
    assert leader.ledger.store.sum_spent() == 4 * EACH
    answers = [leader.send(replace(instruction, counted=None)) for instruction in lying]
    assert all(reply.refused is None for reply in answers)
    assert leader.ledger.store.sum_spent() == 4 * EACH  # same replies as before
    leader.ledger.close()


# -- file ----------------------------------------------------------------------------------


def test_a_ledger_without_noise_has_no_second_book(tmp_path: Path) -> None:
    Ledger(tmp_path / "ledger.sqlite", "north", 3, None).close()
    assert not (tmp_path / NAME).exists()


def test_the_second_book_is_read_by_its_owner_alone(tmp_path: Path) -> None:
    Ledger(tmp_path / "ledger.sqlite", "north", 3, None, epsilon=1.0).close()
    assert (tmp_path / NAME).stat().st_mode & 0o777 == 0o600


def test_a_second_book_that_cannot_be_written_lets_nothing_out(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.sqlite", "north", 3, None, epsilon=1.0)
    (tmp_path / NAME).unlink()
    (tmp_path / NAME).mkdir()
    with pytest.raises(StorageError, match="nothing was released"):
        ledger.store.spend("north", "0/query/0", Released(0.5, "d", {}))
    assert ledger.store.sum_spent() == 0
    ledger.close()


def test_a_ledger_of_an_earlier_version_begins_a_second_book(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    earlier = Ledger(path, "north", 3, None)  # without a second book
    earlier.instructions.begin(RUN)
    earlier.store.run = RUN
    earlier.store.spend("north", "0/query/0", Released(0.5, "d", {}))
    earlier.close()
    for _ in range(2):
        now = Ledger(path, "north", 3, None, epsilon=LIMIT)
        assert (now.store.sum_spent(), now.store.describe_restored_ledger()) == (0.5, None)
        now.close()
    assert (tmp_path / NAME).exists()


def test_a_copy_holds_no_key_of_a_sum(tmp_path: Path) -> None:
    """A key that masked two contributions would disclose their difference."""
    ledger = Ledger(tmp_path / "ledger.sqlite", "north", 3, None)
    secret = b"a secret of a sum has 32 bytes.."
    hidden = torch.tensor(list(secret), dtype=torch.uint8)
    ledger.store.hide("north", {"name": "0/query/0|0", "secret": hidden})
    ledger.store.keep("north", "own/w", {"w": torch.zeros(10_000)})
    ledger.store.keep("north", "own/w", None)
    ledger.store.settle(0)
    assert ledger._tables.read("PRAGMA freelist_count") != [(0,)]
    ledger.backup()
    ledger.close()
    assert secret in (tmp_path / "ledger.sqlite").read_bytes()
    assert secret not in (tmp_path / "ledger-backup.sqlite").read_bytes()
    os.replace(tmp_path / "ledger-backup.sqlite", tmp_path / "ledger.sqlite")
    restored = Ledger(tmp_path / "ledger.sqlite", "north", 3, None)
    assert restored.store.load_secret("north") is None
    assert restored._tables.read("PRAGMA freelist_count") == [(0,)]  # nor deleted data
    restored.close()


def test_what_is_spent_at_a_site_survives_a_power_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With FULL, each commit reaches the disk. With NORMAL, a power failure may undo the
    newest commits and the spending that they recorded."""
    monkeypatch.undo()
    full = 2
    leader = noisy(tmp_path)
    assert leader.ledger._tables.read("PRAGMA synchronous") == [(full,)]
    leader.ledger.close()


def test_the_second_book_is_on_the_disk_before_the_ledger_has_a_release(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger(tmp_path / "ledger.sqlite", "north", 3, None, epsilon=1.0)
    seen = []

    def watch_fsync(file: int) -> None:
        seen.append((os.fstat(file).st_size, ledger.store.sum_spent()))

    monkeypatch.setattr(os, "fsync", watch_fsync)
    before = (tmp_path / NAME).stat().st_size
    ledger.store.spend("north", "0/query/0", Released(0.5, "d", {}))
    assert [(size > before, spent) for size, spent in seen] == [(True, 0.0)]
    ledger.close()


def test_a_new_second_book_survives_a_power_cut_with_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file without an entry in its folder on the disk is lost."""
    synced = []

    def watch_fsync(file: int) -> None:
        if stat.S_ISDIR(os.fstat(file).st_mode):
            synced.append((tmp_path / NAME).exists())

    monkeypatch.setattr(os, "fsync", watch_fsync)
    Ledger(tmp_path / "ledger.sqlite", "north", 3, None, epsilon=1.0).close()
    assert synced[-1:] == [True]


# -- three sites under secure aggregation -------------------------------------------------------


@pytest.mark.long
def test_a_restored_ledger_of_three_sites_names_the_command_that_keeps_all_labels(
    tmp_path: Path,
) -> None:
    config = ExperimentConfig(
        "hospitals",
        model=Spec("linear"),
        encoder=Spec("identity"),
        training=Spec("closed-form", {"unlabeled": "off"}),
        strategy=Spec("random"),
        privacy=Privacy(secure_sum=True),
        initial=5,
        budget=4,
        rounds=1,
        score_rounds=1,
        cycles=1,
    )
    simulation = federation(tmp_path, config, rows(NAMES[:3]))
    chur = simulation.sites["chur"]
    refusals: list[str] = []

    def restore_once(event: Event) -> None:
        simulation.label(event)
        if event["event"] == "labels" and event["step"] == "0/query" and not refusals:
            simulation.ledgers["chur"].close()
            for end in ("-wal", "-shm"):
                (chur.path / f"ledger.sqlite{end}").unlink(missing_ok=True)
            shutil.copyfile(chur.path / "ledger-backup.sqlite", chur.ledger_path)
            simulation.transport.alive["chur"] = simulation.host("chur")
        elif event["event"] == "refused":
            refusals.append(str(event["reason"]))
            raise KeyboardInterrupt  # a person stops the coordinator

    with pytest.raises(KeyboardInterrupt):
        simulation.program(restore_once).go()
    assert "secure aggregation needs 3 sites" in refusals[0]
    assert "'fallow coordinate start FOLDER --new-run'" in refusals[0]
    assert refusals[0].endswith("no label in a ledger is lost")

    ledgers = simulation.ledgers
    before = {
        site: {label.row for label in own} for site, own in simulation.labels().items()
    }
    assert len(before["chur"]) == 5  # those of its backup
    for site in ("basel", "davos"):  # also labels of the cycle that was interrupted
        before[site] |= {task.row for task in ledgers[site].tasks(state="answered")}
        assert len(before[site]) == 9
    run = StudyRun(str(simulation.agreement.config.strategy), simulation.agreement.seed)
    coordinator = simulation.coordinator_folder
    assert set_run_aside(coordinator, run.folder(coordinator)) is not None
    assert simulation.program().go()
    after = simulation.labels()
    for site, labeled in before.items():
        assert labeled <= {label.row for label in after[site]}
        assert len(after[site]) == 9
    simulation.close()
