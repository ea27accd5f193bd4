"""Run the tests of captured HTTPS traffic over Flower, and check Flower's own traffic."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("flwr")

from tests.deployment.planted import PLANTED
from tests.packages import install_integration
from tests.transport import test_capture as over_https
from tests.transport.capture import everything, parts
from tests.transport.test_capture import STUDY, Captured, captured, one_cycle

FLOWER = "flower"
pytestmark = [pytest.mark.processes, pytest.mark.soak]

REQUESTS = {
    *("activate-node", "deactivate-node", "send-node-heartbeat", "get-run", "get-fab"),
    *(
        "pull-messages",
        "pull-object",
        "push-messages",
        "push-object",
        "confirm-message-received",
    ),
}
FIELDS = {
    *("host", "accept", "accept-encoding", "connection", "content-length", "content-type"),
    *("user-agent", "flwr-package-name", "flwr-package-version", "flwr-component-name"),
    *("flwr-public-key", "flwr-timestamp", "flwr-signature"),
}
"""All requests and data that a SuperNode sends, as listed in docs/what-leaves.md."""


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Captured]:
    folder = tmp_path_factory.mktemp("capture")
    with pytest.MonkeyPatch.context() as patch:
        install_integration("fallow-flower", folder / "installed", patch)
        with one_cycle(folder, FLOWER) as capture:
            yield capture


def test_no_row_no_name_and_no_label_leaves_a_site_over_flower(quiet: Captured) -> None:
    over_https.test_no_row_no_name_and_no_label_leaves_a_site_over_the_real_wire(quiet)


def test_every_answer_was_on_the_wire_and_nobody_outside_reads_it(quiet: Captured) -> None:
    over_https.test_every_answer_of_the_site_was_on_the_wire_and_nobody_outside_reads_it(
        quiet
    )


def test_flower_itself_says_of_a_site_what_the_documents_name(quiet: Captured) -> None:
    sent = [part for stream in quiet.taps[PLANTED].up() for part in parts(stream)]
    assert {part.line for part in sent} <= {
        f"POST /v1/fleet/{name} HTTP/1.1" for name in REQUESTS
    }
    assert set().union(*(part.fields for part in sent)) == FIELDS
    uploaded = everything(quiet.taps[PLANTED].up())
    assert str(quiet.study.folder).encode() not in uploaded
    assert str(Path.home()).encode() not in uploaded


def test_nothing_of_it_leaves_in_a_study_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_integration("fallow-flower", tmp_path / "installed", monkeypatch)
    with captured(tmp_path, STUDY, transport=FLOWER) as outcome:
        assert outcome.find_traces() == []
        assert "model/finish/0" in outcome.answered()
