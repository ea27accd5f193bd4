"""Test that annotators can leave a run that started with a wrong clock."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from fallow.cli.app import build_app
from tests.deployment.hosts import RUN, SECOND, Leader, folder, make_request

pytest.importorskip("cryptography")
FAR = "00ffffffff-" + 16 * "f"  # the year 2106


def lock_out(path: Path) -> Leader:
    """Return a site with labels of a future run, which earlier versions accepted."""
    leader = Leader(folder(path))
    leader.initial()
    leader.ledger.instructions.begin(FAR)
    leader.run = SECOND
    return leader


def hello(leader: Leader) -> str | None:
    return leader.send(
        leader.instruction(make_request("hello", "0/hello"), counted=None)
    ).refused


def unlock(leader: Leader, answer: str, *more: str) -> tuple[int, str]:
    done = CliRunner().invoke(
        build_app(), ["site", "unlock", str(leader.site.path), *more], input=answer
    )
    return done.exit_code, " ".join(done.output.split())


def test_a_site_in_a_run_from_the_future_says_how_to_leave_it(tmp_path: Path) -> None:
    leader = lock_out(tmp_path)
    assert "fallow site unlock" in str(hello(leader))
    leader.ledger.close()


@pytest.mark.long
def test_a_run_that_people_leave_makes_room_for_another_and_labels_stay(
    tmp_path: Path,
) -> None:
    leader = lock_out(tmp_path)
    code, output = unlock(leader, "y\n")
    assert code == 0
    assert f"Newest run: {FAR}; began at 2106-02-07" in output
    assert "Kept: 4 labels" in output and "Lost: " in output
    assert "Leave run" in output and "Left run" in output
    assert hello(leader) is None
    assert len(leader.ledger.store.load_labels("north")) == 4
    leader.run = FAR
    assert "users at site north have left run" in str(hello(leader))
    leader.ledger.close()


@pytest.mark.parametrize("answer", ["n\n", "\n"])
def test_nothing_is_left_without_a_yes(tmp_path: Path, answer: str) -> None:
    leader = lock_out(tmp_path)
    code, output = unlock(leader, answer)
    assert code == 0 and "Nothing was changed." in output
    assert not leader.ledger.instructions.is_left(FAR) and hello(leader) is not None
    leader.ledger.close()


def test_only_the_newest_run_can_be_left(tmp_path: Path) -> None:
    leader = lock_out(tmp_path)
    done = CliRunner().invoke(
        build_app(), ["site", "unlock", str(leader.site.path), "--run", RUN]
    )
    assert done.exit_code != 0 and f"takes part in run {FAR}, not in {RUN}" in str(
        done.exception
    )
    assert not leader.ledger.instructions.is_left(RUN)
    leader.ledger.close()


def test_a_site_in_no_run_has_nothing_to_leave(tmp_path: Path) -> None:
    site = folder(tmp_path)
    done = CliRunner().invoke(build_app(), ["site", "unlock", str(site.path)])
    assert "there is nothing to leave" in str(done.exception)
