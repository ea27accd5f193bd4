"""Test a site with Label Studio: tasks and annotations are transferred once despite
crashes.

The tests need a server that is not used otherwise: either ``FALLOW_LABEL_STUDIO`` (its
address) and ``FALLOW_LABEL_STUDIO_TOKEN``, or the command ``label-studio`` in the
environment of this Python.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from labeling_sites import TOKEN, Studio, site, sync

from fallow.core.names import distribution_digest
from fallow.storage.errors import StorageError
from fallow_labeling_tools.label_studio_server import (
    SERVER,
    TAKEN,
    name_project,
    read_server_settings,
    write_interface,
)
from tests.cli.conftest import Command, fallow, folder
from tests.deployment.label_queues import DIGITS, DOSE, HEART, make_queue, picture_rows
from tests.deployment.simulations import tiny
from tests.packages import forget, install

__all__ = ["fallow", "folder"]

PACKAGE = Path(__file__).resolve().parents[1]


@pytest.fixture
def allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a site that allows the distribution, installed as from a wheel."""
    name = "fallow-labeling-tools"
    declared = tomllib.loads((PACKAGE / "pyproject.toml").read_text())["project"]
    entries = ["[fallow.labeling_tools]"]
    for tool, target in declared["entry-points"]["fallow.labeling_tools"].items():
        entries.append(f"{tool} = {target}")
    source = PACKAGE / "src"
    files = {
        file.relative_to(source).as_posix(): file.read_text()
        for file in source.glob("*/*.py")
    }
    text = "\n".join(entries)
    install(tmp_path / "installed", name, files, monkeypatch, "1.0.0", entries=text)
    simulation = tiny(tmp_path / "simulation")
    site_folder = next(iter(simulation.sites.values())).path
    simulation.close()
    settings = site_folder / "site.toml"
    permission = f'[allow]\n{name} = "{distribution_digest(name)}"\n'
    settings.write_text(settings.read_text().replace("[allow]\n", permission))
    yield site_folder
    forget("fallow_labeling_tools")


@pytest.fixture(scope="session")
def studio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Studio]:
    pytest.importorskip("httpx")
    named = os.environ.get("FALLOW_LABEL_STUDIO")
    if named:
        yield Studio(named, os.environ["FALLOW_LABEL_STUDIO_TOKEN"])
        return
    command = shutil.which("label-studio", path=str(Path(sys.executable).parent))
    if command is None:
        pytest.skip("no Label Studio: neither FALLOW_LABEL_STUDIO nor the command is there")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    folder = tmp_path_factory.mktemp("studio")
    line = [
        *(command, "start", "--no-browser", "--internal-host", "127.0.0.1"),
        *("--port", str(port), "--username", "ann@example.org", "--password", TOKEN[:16]),
        *("--user-token", TOKEN, "--data-dir", str(folder)),
    ]
    quiet = {
        "COLLECT_ANALYTICS": "false",
        "LATEST_VERSION_CHECK": "false",
        "LABEL_STUDIO_ENABLE_LEGACY_API_TOKEN": "true",
        "LABEL_STUDIO_BASE_DATA_DIR": str(folder),
    }
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(line, env=os.environ | quiet, stdout=log, stderr=log)
    try:
        address = f"http://127.0.0.1:{port}"
        _wait(address, server)
        yield Studio(address, TOKEN)
    finally:
        server.terminate()
        server.wait()


def _wait(address: str, server: subprocess.Popen[bytes]) -> None:
    """Wait for the server, whose first start creates a database and takes minutes."""
    import httpx

    for _ in range(600):
        assert server.poll() is None, "Label Studio has ended"
        try:
            if httpx.get(f"{address}/health", timeout=5).is_success:
                return
        except httpx.HTTPError:
            pass
        time.sleep(1)
    raise AssertionError("Label Studio did not start in ten minutes")


def annotate(
    studio: Studio, project: int, labels: dict[str, str], kind: str = "choices"
) -> None:
    """Annotate the tasks of examples through the API that the browser uses."""
    for task in tasks_of(studio, project):
        label = labels.get(task["data"]["id"])
        if label is None:
            continue
        value = {kind: [label]}
        form = {"from_name": "label", "to_name": "sample", "type": kind, "value": value}
        if kind == "text":
            form["type"] = "textarea"
        call(studio, "POST", f"/api/tasks/{task['id']}/annotations", {"result": [form]})


def tasks_of(studio: Studio, project: int) -> list[Any]:
    path = f"/api/projects/{project}/export?exportType=JSON&download_all_tasks=true"
    result: list[Any] = call(studio, "GET", path)
    return result


def call(studio: Studio, method: str, path: str, body: Any = None) -> Any:
    import httpx

    head = {"Authorization": f"Token {studio.token}"}
    answer = httpx.request(
        method, studio.address + path, json=body, headers=head, timeout=60
    )
    assert answer.is_success, answer.text
    return answer.json()


def test_questions_go_out_once_and_annotations_come_back_once(
    studio: Studio, tmp_path: Path
) -> None:
    queue = make_queue(tmp_path, HEART)
    folder = site(queue, tmp_path, studio)
    first = sync(folder, queue)
    assert (first.sent, first.taken.recorded, first.taken.refused) == (3, 0, ())
    tasks = tasks_of(studio, first.project)
    assert {task["data"]["id"] for task in tasks} == {
        "patient-3",
        "patient-1",
        "patient-4",
    }
    assert tasks[0]["data"]["features"]["sex"]
    assert sync(folder, queue).sent == 0

    annotate(studio, first.project, {"patient-3": "ill", "patient-1": "cannot tell"})
    taken = sync(folder, queue).taken
    assert (taken.recorded, taken.same, taken.empty, taken.refused) == (2, 0, 1, ())
    (answer,) = queue.ledger.history(3)
    assert (answer.value, answer.annotator, answer.kind) == (
        1.0,
        "ann@example.org",
        "imported",
    )
    again = sync(folder, queue)
    assert (again.sent, again.taken.recorded, again.taken.same) == (0, 0, 2)


def test_an_annotation_that_contradicts_a_label_is_refused_and_the_others_are_taken(
    studio: Studio, tmp_path: Path
) -> None:
    queue = make_queue(tmp_path, HEART)
    folder = site(queue, tmp_path, studio)
    project = sync(folder, queue).project
    queue.ledger.answer(3, 0.0, "Bo")
    annotate(studio, project, {"patient-3": "ill", "patient-1": "iII", "patient-4": "ill"})
    annotate(studio, project, {"patient-4": "ill"})
    taken = sync(folder, queue).taken
    contradicts, unknown = sorted(text.partition(": ")[2] for text in taken.refused)
    assert contradicts.startswith("example 'patient-3' has the label 'healthy' by Bo, not")
    assert unknown.startswith("label 'iII' is not one of the agreed classes")
    assert (taken.recorded, taken.same) == (1, 1)


def test_a_sync_that_was_killed_is_made_good_by_the_next(
    studio: Studio, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = make_queue(tmp_path, DOSE)
    folder = site(queue, tmp_path, studio)
    monkeypatch.setattr("fallow_labeling_tools.label_studio_server.TASKS_PER_REQUEST", 1)
    sent = []

    class Killed(BaseException):
        """Simulate a signal that ends the process after the first request with tasks."""

    import httpx

    stream = httpx.Client.stream

    def until_the_second(self: Any, method: str, path: str, **more: Any) -> Any:
        if path.endswith("/import"):
            sent.append(path)
            if len(sent) == 2:
                raise Killed
        return stream(self, method, path, **more)

    with monkeypatch.context() as until, pytest.raises(Killed):
        until.setattr(httpx.Client, "stream", until_the_second)
        sync(folder, queue)
    done = sync(folder, queue)
    assert done.sent == 2
    tasks = tasks_of(studio, done.project)
    assert sorted(task["data"]["row"] for task in tasks) == [1, 3, 4]
    annotate(studio, done.project, {"patient-3": "2,5"}, kind="text")
    assert sync(folder, queue).taken.recorded == 1
    assert queue.ledger.history(3)[0].value == 2.5


def test_pictures_travel_in_the_task(studio: Studio, tmp_path: Path) -> None:
    queue = make_queue(tmp_path, DIGITS, picture_rows(tmp_path))
    folder = site(queue, tmp_path, studio)
    done = sync(folder, queue)
    (task,) = [t for t in tasks_of(studio, done.project) if t["data"]["row"] == 3]
    assert task["data"]["image"].startswith("data:image/png;base64,")
    assert str(tmp_path) not in str(task["data"])


def test_a_token_that_is_not_accepted_is_a_sentence(studio: Studio, tmp_path: Path) -> None:
    queue = make_queue(tmp_path, HEART)
    folder = site(queue, tmp_path, Studio(studio.address, "f" * 40))
    with pytest.raises(ValueError, match="does not accept the token") as error:
        sync(folder, queue)
    assert "f" * 40 not in str(error.value)


def test_a_personal_token_is_exchanged_as_the_server_wants(
    studio: Studio, tmp_path: Path
) -> None:
    import httpx

    head = {"Authorization": f"Token {studio.token}"}
    made = httpx.post(f"{studio.address}/api/token/", headers=head, timeout=60)
    if made.status_code == 409:
        pytest.skip("somebody has a personal token there, which is not ours to revoke")
    token = made.json()["token"]
    try:
        queue = make_queue(tmp_path, HEART)
        assert sync(site(queue, tmp_path, Studio(studio.address, token)), queue).sent == 3
    finally:
        revoked = f"{studio.address}/api/token/blacklist/"
        httpx.post(revoked, json={"refresh": token}, headers=head, timeout=60)


def test_the_command_says_what_went_both_ways(
    studio: Studio, allowed: Path, fallow: Command
) -> None:
    site_folder = allowed
    file = site_folder / SERVER
    file.write_text(f'address = "{studio.address}"\ntoken = "{studio.token}"\n')
    file.chmod(0o600)
    ended = fallow("site", "sync", str(site_folder), "--tool", "label-studio", "--json")
    assert ended.code == 0, ended.err
    details = json.loads(ended.out)
    taken = details["taken"]
    assert (details["sent"], taken["recorded"], taken["refused"]) == (0, 0, [])
    assert (site_folder / TAKEN).stat().st_mode & 0o077 == 0


# -- without a server ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "mode", "message"),
    [
        ('address = "http://127.0.0.1:1"\ntoken = "secret"\n', 0o640, "others may read it"),
        ('address = "http://studio.example.org"\ntoken = "secret"', 0o600, "unencrypted"),
        ('address = "http://127.0.0.1.evil.org"\ntoken = "secret"', 0o600, "unencrypted"),
        ('address = "https://a.org"\ntoken = "secret', 0o600, "not valid TOML"),
        ('address = "https://a.org"', 0o600, "lacks an address or a token"),
        ('address = "https://a.org"\ntoken = "sécret"', 0o600, "the token is not one"),
        ('address = "https://a.org"\ntoken = "a\\nb"', 0o600, "the token is not one"),
        ('address = "https://a.org"\ntoken = "a"\ntokn = "secret"', 0o600, "'tokn'"),
        (
            'address = "https://a.org"\ntoken = "a"\nproject = "1/import"',
            0o600,
            "the number",
        ),
    ],
)
def test_settings_that_would_tell_the_token_or_mean_nothing_are_refused(
    tmp_path: Path, text: str, mode: int, message: str
) -> None:
    file = tmp_path / SERVER
    file.write_text(text)
    file.chmod(mode)
    with pytest.raises(ValueError, match=SERVER) as error:
        read_server_settings(file)
    assert message in str(error.value)
    assert "secret" not in str(error.value)


def test_a_server_that_is_away_changes_nothing_and_says_so(tmp_path: Path) -> None:
    pytest.importorskip("httpx")
    queue = make_queue(tmp_path, HEART)
    folder = site(queue, tmp_path, Studio("http://127.0.0.1:9", TOKEN))
    with pytest.raises(StorageError, match="was not reached"):
        sync(folder, queue)
    assert len(queue.ledger.tasks(state="open")) == 3


def test_the_commands_say_what_is_missing(allowed: Path, fallow: Command) -> None:
    site_folder = str(allowed)
    refused = fallow("site", "sync", site_folder, "--tool", "label-studio").says()
    assert f"{SERVER} cannot be read" in refused
    assert "chmod 600" in refused
    assert "has no server" in fallow("site", "sync", site_folder, "--tool", "cvat").says()
    table = fallow("site", "export", site_folder, "ask.csv", "--tool", "cvat").says()
    assert table.startswith("ask.csv does not end in .zip, as tasks of this labeling tool")
    json = fallow("site", "export", site_folder, "ask.csv", "--tool", "label-studio").says()
    assert json.startswith("ask.csv does not end in .json")
    ended = fallow("site", "export", site_folder, "ask.zip", "--tool", "cvat")
    assert "Wrote 0 labeling tasks to ask.zip, and ask.labels.json for the" in ended.out


def test_a_site_that_does_not_allow_the_distribution_does_not_load_it(
    allowed: Path, fallow: Command
) -> None:
    settings = allowed / "site.toml"
    settings.write_text(settings.read_text().partition("[allow]")[0])
    forget("fallow_labeling_tools")
    refused = fallow("site", "export", str(allowed), "ask.zip", "--tool", "cvat").says()
    assert "it is part of the installed distribution fallow-labeling-tools" in refused
    assert "fallow_labeling_tools" not in sys.modules


def test_sites_and_studies_of_long_names_have_a_project_each() -> None:
    name = "screening of digital mammograms in eleven hospitals of the north"
    titles = {
        name_project(name, site, digest)
        for site in ("basel", "bern")
        for digest in ("0a" * 32, "0b" * 32)
    }
    assert len(titles) == 4
    assert {len(title) for title in titles} == {50}


def test_names_of_classes_cannot_leave_their_place_in_the_interface() -> None:
    from xml.etree import ElementTree

    names = ('"/><Header value="x', "a&b", "cannot tell")
    tree = ElementTree.fromstring(write_interface(names))  # noqa: S314 - our own words
    assert [choice.get("value") for choice in tree.iter("Choice")] == list(names)
    assert tree.find("Header") is None
