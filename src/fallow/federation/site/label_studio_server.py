"""A site's own Label Studio: open questions become its tasks, finished annotations labels, over its
REST interface (https://api.labelstud.io).

Where it is, and the token by which it knows the site, stand in ``label-studio.toml`` in the site's
folder, for its owner's eyes alone:

    address = "http://127.0.0.1:8080"
    token = "..."
    project = 3          # which; without it, one is made, and found again by its title

Tasks are known by the study's digest, the site, the sample and the cycle in their ``data``.  So
whatever was stopped half-way is made good by the next call, and a project may hold other tasks
beside.
"""

from __future__ import annotations

import base64
import json
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Timer
from typing import TYPE_CHECKING, Protocol, Self, final
from urllib.parse import urlsplit
from xml.sax.saxutils import quoteattr

from fallow.core.optional import import_optional
from fallow.federation.ledger import Ledger
from fallow.federation.site.folder import SiteFolder
from fallow.federation.site.label_studio import SHOWN, TAG, JsonObject, build_tasks
from fallow.federation.site.labels_files import write_lines
from fallow.federation.site.labels_io import (
    CANNOT_TELL,
    Imported,
    import_labels,
    list_open_questions,
)
from fallow.storage.errors import Failed, sentence
from fallow.storage.private import OTHERS

if TYPE_CHECKING:
    import httpx

SERVER = "label-studio.toml"
TAKEN = "label-studio.json"
"""What was read last, in the site's folder: sentences about an entry mean this file's."""
PATIENCE = 30.0  # seconds in which nothing comes
LONGEST = 600.0  # seconds until an answer is there
LARGEST = 2**27  # bytes of an answer
AT_ONCE = 50  # tasks in one request
PAGE = 100  # projects in one answer
MOST_PAGES = 1000  # of projects
ON_THIS_MACHINE = ("127.0.0.1", "::1", "localhost")
HOW = (
    'write address = "http://127.0.0.1:8080" and token = "..." into it, and make it yours alone '
    "(chmod 600)"
)


class Shown(Protocol):
    """An image as a browser gets it."""

    @property
    def content(self) -> bytes: ...
    @property
    def media_type(self) -> str: ...


ShowRow = Callable[[int], Shown | None]
"""The picture of a row; None for a row that is none."""


# -- where it is ----------------------------------------------------------------------------


@final
@dataclass(frozen=True)
class ServerSettings:
    """Where a site's Label Studio is; project: the number of one that is there."""

    address: str
    token: str = field(repr=False)
    project: int | None = None


def read_server_settings(file: Path) -> ServerSettings:
    """What `SERVER` says.  Raises ValueError, never with the token in it, for a file that others may
    read, that is no such file, and for an address to which the token would go unencrypted."""
    try:
        with file.open("rb") as opened:
            rights = file.stat().st_mode
            server_settings = tomllib.load(opened)
    except OSError as error:
        raise ValueError(f"{file} cannot be read ({error.strerror}): {HOW}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError):
        raise ValueError(f"{file} is not valid TOML: {HOW}") from None
    if rights & OTHERS:
        raise ValueError(
            f"{file} holds a token and others may read it: make it yours alone (chmod 600), and "
            "take another token where others can have seen this one"
        )
    odd = server_settings.keys() - {"address", "token", "project"}
    if odd:
        raise ValueError(f"{file} has the setting {min(odd)!r}, which is none: {HOW}")
    address = server_settings.get("address")
    token = server_settings.get("token")
    project = server_settings.get("project")
    if not isinstance(address, str) or not isinstance(token, str) or not token.strip():
        raise ValueError(f"{file} lacks an address or a token: {HOW}")
    if project is not None and type(project) is not int:
        raise ValueError(f"{file}: project is not the number of one")
    if not token.isascii() or not token.isprintable():
        raise ValueError(f"{file}: the token is none of Label Studio")
    parts = urlsplit(address)
    is_here = parts.hostname in ON_THIS_MACHINE
    if parts.scheme != "https" and not (parts.scheme == "http" and is_here):
        raise ValueError(
            f"{file}: the token would go to {address} unencrypted; give an address that begins with "
            "https://, or one of this machine"
        )
    return ServerSettings(address.rstrip("/"), token.strip(), project)


# -- what is asked of it --------------------------------------------------------------------


@final
class LabelStudioServer:
    """What a site asks of a Label Studio.  A context, at whose end its connection is closed.

    Every method raises Failed where the server does not answer, or not as Label Studio does, and
    ValueError where it does not accept the token.
    """

    def __init__(self, settings: ServerSettings) -> None:
        import_optional("httpx", "fallow[deploy]", "Label Studio over its interface")
        import httpx

        self._settings = settings
        self._client = httpx.Client(
            base_url=settings.address,
            timeout=PATIENCE,
            headers={"accept-encoding": "identity"},
            follow_redirects=False,  # the token is for this address alone
            trust_env=settings.address.startswith("https"),  # as for a proxy
        )

    def __enter__(self) -> Self:
        self._client.headers["Authorization"] = self._authorize()
        return self

    def __exit__(self, *error: object) -> None:
        self._client.close()

    def _authorize(self) -> str:
        """A header: with the token itself, or with what a personal one is exchanged for."""
        token = self._settings.token
        if token.count(".") != 2:
            return f"Token {token}"
        answer = self._ask("POST", "/api/token/refresh", {"refresh": token})
        access = answer.get("access") if isinstance(answer, dict) else None
        if not isinstance(access, str) or not access.isascii() or not access.isprintable():
            raise self._odd("POST", "/api/token/refresh")
        return f"Bearer {access}"

    def find_project(self, title: str, interface: str) -> int:
        """The number of the project; it is made where there is none of this title."""
        if self._settings.project is not None:
            return self._settings.project
        for page in range(1, MOST_PAGES + 1):
            path = f"/api/projects?page={page}&page_size={PAGE}"
            answer = self._ask("GET", path)
            if not isinstance(answer, dict) or not isinstance(answer.get("results"), list):
                raise self._odd("GET", path)
            for project in answer["results"]:
                if isinstance(project, dict) and project.get("title") == title:
                    return self._number(project, path)
            if not answer.get("next"):
                break
        else:
            raise self._odd("GET", "/api/projects")
        made = self._ask(
            "POST", "/api/projects", {"title": title, "label_config": interface}
        )
        return self._number(made, "/api/projects")

    def list_tasks(self, project: int) -> list[JsonObject]:
        """Every task of a project with its annotations, as the full export has them."""
        path = f"/api/projects/{project}/export?exportType=JSON&download_all_tasks=true"
        answer = self._ask("GET", path)
        if not isinstance(answer, list):
            raise self._odd("GET", path)
        return [task for task in answer if isinstance(task, dict)]

    def list_people(self) -> dict[int, str]:
        """Who annotates there: their address by their number."""
        answer = self._ask("GET", "/api/users/")
        if not isinstance(answer, list):
            raise self._odd("GET", "/api/users/")
        people: dict[int, str] = {}
        for person in answer:
            if isinstance(person, dict) and type(person.get("id")) is int:
                people[person["id"]] = str(person.get("email") or "")
        return people

    def add_tasks(self, project: int, tasks: Sequence[JsonObject]) -> None:
        """Put tasks into a project."""
        for first in range(0, len(tasks), AT_ONCE):
            part = list(tasks[first : first + AT_ONCE])
            self._ask("POST", f"/api/projects/{project}/import", part)

    def _number(self, project: object, path: str) -> int:
        number = project.get("id") if isinstance(project, dict) else None
        if type(number) is not int:
            raise self._odd("POST", path)
        return number

    def _ask(self, method: str, path: str, body: object = None) -> object:
        import httpx

        where = self._settings.address
        try:
            with (
                self._cut_off_after(LONGEST),
                self._client.stream(method, path, json=body) as response,
            ):
                content = _read_up_to(response, LARGEST)
        except httpx.HTTPError as error:
            raise Failed(
                f"Label Studio at {where} was not reached ({sentence(error)}): is it running?"
            ) from error
        if response.status_code in (401, 403):
            raise ValueError(
                f"Label Studio at {where} does not accept the token in {SERVER}; its page 'Account & "
                "Settings' shows the one that it accepts"
            )
        if not response.is_success or content is None:
            raise self._odd(method, path, response.status_code)
        try:
            answer: object = json.loads(content)
        except (ValueError, RecursionError) as error:
            raise self._odd(method, path) from error
        return answer

    @contextmanager
    def _cut_off_after(self, seconds: float) -> Iterator[None]:
        """End a request that takes longer, also where a byte comes now and then, for which
        `PATIENCE` begins anew each time."""
        timer = Timer(seconds, self._client.close)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _odd(self, method: str, path: str, status: int = 200) -> Failed:
        plain = path.partition("?")[0]
        return Failed(
            f"{self._settings.address} does not answer as Label Studio does ({status} to {method} "
            f"{plain}); labels and tasks are as they were before"
        )


def _read_up_to(response: httpx.Response, largest: int) -> bytes | None:
    """The body of an answer as it comes; None for one that is larger, and for one that is encoded,
    which nobody has asked for: few bytes can be many once they are unpacked."""
    if response.headers.get("content-encoding", "identity") != "identity":
        return None
    body = bytearray()  # a list of small parts would take many times their bytes
    for part in response.iter_raw():
        if len(body) + len(part) > largest:
            return None
        body += part
    return bytes(body)


# -- both ways ------------------------------------------------------------------------------


@final
@dataclass(frozen=True)
class Synced:
    """What went between a site and its Label Studio.

    sent: tasks that are new there.  taken: what became of its annotations.
    """

    project: int
    sent: int
    taken: Imported


def sync_label_studio(folder: SiteFolder, ledger: Ledger, show: ShowRow) -> Synced:
    """Take what people have annotated, as if they had said it on the labeling page, and send the
    questions that are open and not there yet.

    Labels pass the checks of `import_labels`: what is refused is said and left out, and the rest is
    taken in one transaction.  Raises ValueError and Failed as `LabelStudioServer` does.
    """
    settings = read_server_settings(folder.path / SERVER)
    agreement = folder.agreement
    schema = agreement.schema
    rows = folder.rows
    with LabelStudioServer(settings) as server:
        title = f"{agreement.name}, {folder.name} ({agreement.digest[:8]})"
        interface = write_interface(schema.classes, n_images=_count_images(show))
        project = server.find_project(title[:50], interface)
        tasks = [
            task
            for task in server.list_tasks(project)
            if _is_own(task, agreement.digest, folder.name)
        ]
        people = server.list_people()
        annotated = [_shorten(task, people) for task in tasks]
        write_lines(folder.path / TAKEN, annotated)
        taken = import_labels(
            ledger, schema, rows, folder.path / TAKEN, "Label Studio", partial=True
        )
        known = {_name_question(_find_data(task)) for task in tasks}
        lines = []
        for line in list_open_questions(ledger, schema, rows):
            if _name_question(line) not in known:
                about = {"study": agreement.digest, "site": folder.name}
                lines.append(about | _describe_sample(line, show))
        server.add_tasks(project, build_tasks(lines, is_class=bool(schema.classes)))
    return Synced(project, len(lines), taken)


def write_interface(classes: Sequence[str], n_images: int = 0) -> str:
    """The labeling interface of a project: what is seen, and the tag `TAG` that people fill in.

    classes: their names; none where there are numbers to say.  n_images: images of a row; 0: rows
    are tables.

    >>> print(write_interface(["no", 'y"es']))
    <View>
      <Table name="sample" value="$features"/>
      <Choices name="label" toName="sample" choice="single" required="true">
        <Choice value="no"/>
        <Choice value='y"es'/>
        <Choice value="cannot tell"/>
      </Choices>
    </View>
    """
    lines = ["<View>"]
    for number in range(1, n_images + 1):
        name = SHOWN if number == 1 else f"{SHOWN}{number}"
        value = "$image" if number == 1 else f"$image{number}"
        lines.append(f'  <Image name="{name}" value="{value}" zoom="true"/>')
    if not n_images:
        lines.append(f'  <Table name="{SHOWN}" value="$features"/>')
    about = f'name="{TAG}" toName="{SHOWN}"'
    if not classes:
        lines.append(f'  <TextArea {about} maxSubmissions="1" required="true"/>')
        return "\n".join([*lines, "</View>"])
    lines.append(f'  <Choices {about} choice="single" required="true">')
    for name in dict.fromkeys((*classes, CANNOT_TELL)):
        lines.append(f"    <Choice value={quoteattr(name)}/>")
    return "\n".join([*lines, "  </Choices>", "</View>"])


def _count_images(show: ShowRow) -> int:
    """Whether rows are images, as the first one says."""
    return int(show(0) is not None)


def _describe_sample(line: JsonObject, show: ShowRow) -> dict[str, object]:
    """A question as the data of a task: how it is known again, and what people see of it."""
    sample: dict[str, object] = {}
    for name, value in line.items():
        if name in ("id", "row", "cycle", "place") or name.startswith("feature:"):
            sample[name] = value
    row = line["row"]
    shown = show(row) if isinstance(row, int) else None
    if shown is not None:
        content = base64.b64encode(shown.content).decode("ascii")
        sample["image"] = f"data:{shown.media_type};base64,{content}"
    return sample


def _is_own(task: JsonObject, study: str, site: str) -> bool:
    """Whether a task is of a site in a study: samples of two sites may have the same names.

    Those that were sent before sites stood in tasks name none.
    """
    data = _find_data(task)
    return data.get("study") == study and data.get("site", site) == site


def _find_data(task: JsonObject) -> Mapping[str, object]:
    data = task.get("data")
    if isinstance(data, dict):
        return data
    return {}


def _name_question(about: Mapping[str, object]) -> tuple[str, str, str]:
    """By what a question is known: its sample, and the cycle that asked for it."""
    return str(about.get("id")), str(about.get("row")), str(about.get("cycle"))


def _shorten(task: JsonObject, people: Mapping[int, str]) -> JsonObject:
    """A task without what people saw; who annotated stands by address and not by number."""
    data = _find_data(task)
    sample = {name: data.get(name) for name in ("id", "row", "cycle")}
    value = task.get("annotations")
    annotations: list[JsonObject] = []
    if isinstance(value, list):
        for annotation in value:
            if isinstance(annotation, dict):
                annotations.append(_name_author(annotation, people))
    return {"id": task.get("id"), "data": sample, "annotations": annotations}


def _name_author(annotation: JsonObject, people: Mapping[int, str]) -> JsonObject:
    author = annotation.get("completed_by")
    if not isinstance(author, int) or not people.get(author):
        return annotation
    return {**annotation, "completed_by": {"id": author, "email": people[author]}}
