"""Synchronization with a site's own Label Studio over its REST API.

Open labeling tasks become tasks of Label Studio, and finished annotations become labels
(https://api.labelstud.io). The address and the access token are in ``label-studio.toml`` in the
site's folder, which only its owner can read:

    address = "http://127.0.0.1:8080"
    token = "..."
    project = 3          # optional; by default a project is created and found by its title

Tasks are identified by the study's hash, the site, the example and the cycle in their ``data``. An
interrupted call is therefore completed by the next one, and a project may have other tasks.
"""

from __future__ import annotations

import base64
import hashlib
import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Timer
from typing import TYPE_CHECKING, Self, final
from urllib.parse import urlsplit
from xml.sax.saxutils import quoteattr

from fallow.core.optional import import_optional
from fallow.deployment.ledger import Ledger
from fallow.deployment.site.folder import SiteFolder
from fallow.deployment.site.labeling_tools import (
    Cells,
    JsonObject,
    LabelingTasks,
    LabelingTool,
    ShowRow,
    Synced,
)
from fallow.deployment.site.labels_io import (
    import_labels,
    list_choices,
    list_open_tasks,
)
from fallow.storage.errors import StorageError, sentence
from fallow.storage.files import FILE, OTHERS, write_whole
from fallow_labeling_tools.label_studio import (
    FEATURE,
    SHOWN,
    TAG,
    build_tasks,
    read_tasks,
)

if TYPE_CHECKING:
    import httpx

SERVER = "label-studio.toml"
TAKEN = "label-studio.json"
"""File with the last import, in the site's folder. Messages about entries refer to it."""
PATIENCE = 30.0  # seconds without data
MAX_RESPONSE_SECONDS = 600.0  # seconds for a whole response
LARGEST = 2**27  # largest response in bytes
TASKS_PER_REQUEST = 50
MAX_TITLE_LENGTH = 50  # characters of the title of a project
PAGE = 100  # projects per response
MOST_PAGES = 1000  # largest number of pages of projects
ON_THIS_MACHINE = ("127.0.0.1", "::1", "localhost")
HOW = (
    'write address = "http://127.0.0.1:8080" and token = "..." into it, and restrict it to '
    "your account (chmod 600)"
)


# -- settings -------------------------------------------------------------------------------


@final
@dataclass(frozen=True)
class ServerSettings:
    """Address of a site's Label Studio, and optionally the number of a project."""

    address: str
    token: str = field(repr=False)
    project: int | None = None


def read_server_settings(file: Path) -> ServerSettings:
    """Read the settings in `SERVER`.

    Raises ValueError, never with the token in it, for a file that others can read, for an invalid
    file, and for an address to which the token would be sent unencrypted.
    """
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
            f"{file} contains a token and others may read it: restrict it to your account "
            f"(chmod 600), and replace the token if others may have seen it"
        )
    odd = server_settings.keys() - {"address", "token", "project"}
    if odd:
        raise ValueError(f"{file} has the unknown setting {min(odd)!r}: {HOW}")
    address = server_settings.get("address")
    token = server_settings.get("token")
    project = server_settings.get("project")
    if not isinstance(address, str) or not isinstance(token, str) or not token.strip():
        raise ValueError(f"{file} lacks an address or a token: {HOW}")
    if project is not None and type(project) is not int:
        raise ValueError(f"{file}: project must be the number of a project")
    if not token.isascii() or not token.isprintable():
        raise ValueError(f"{file}: the token is not one of Label Studio")
    parts = urlsplit(address)
    is_here = parts.hostname in ON_THIS_MACHINE
    if parts.scheme != "https" and not (parts.scheme == "http" and is_here):
        raise ValueError(
            f"{file}: the token would go to {address} unencrypted; give an address that begins with "
            "https://, or one of this machine"
        )
    return ServerSettings(address.rstrip("/"), token.strip(), project)


# -- client ---------------------------------------------------------------------------------


@final
class LabelStudioServer:
    """Client of a Label Studio server, a context manager that closes its connection.

    Every method raises StorageError if the server does not respond as Label Studio does, and ValueError
    if it does not accept the token.
    """

    def __init__(self, settings: ServerSettings) -> None:
        import_optional("httpx", "fallow-core[deploy]", "Label Studio over its REST API")
        import httpx

        self._settings = settings
        self._client = httpx.Client(
            base_url=settings.address,
            timeout=PATIENCE,
            headers={"accept-encoding": "identity"},
            follow_redirects=False,  # the token must not be sent to another address
            trust_env=settings.address.startswith(
                "https"
            ),  # use environment proxies for HTTPS only
        )

    def __enter__(self) -> Self:
        self._client.headers["Authorization"] = self._authorize()
        return self

    def __exit__(self, *error: object) -> None:
        self._client.close()

    def _authorize(self) -> str:
        """Return the authorization header, from the token or one exchanged for it."""
        token = self._settings.token
        if token.count(".") != 2:
            return f"Token {token}"
        answer = self._ask("POST", "/api/token/refresh", {"refresh": token})
        access = answer.get("access") if isinstance(answer, dict) else None
        if not isinstance(access, str) or not access.isascii() or not access.isprintable():
            raise self._unexpected_response("POST", "/api/token/refresh")
        return f"Bearer {access}"

    def find_project(self, title: str, interface: str) -> int:
        """Return the number of the project with a title, creating it if necessary."""
        if self._settings.project is not None:
            return self._settings.project
        for page in range(1, MOST_PAGES + 1):
            path = f"/api/projects?page={page}&page_size={PAGE}"
            answer = self._ask("GET", path)
            if not isinstance(answer, dict) or not isinstance(answer.get("results"), list):
                raise self._unexpected_response("GET", path)
            for project in answer["results"]:
                if isinstance(project, dict) and project.get("title") == title:
                    return self._number(project, path)
            if not answer.get("next"):
                break
        else:
            raise self._unexpected_response("GET", "/api/projects")
        made = self._ask(
            "POST", "/api/projects", {"title": title, "label_config": interface}
        )
        return self._number(made, "/api/projects")

    def list_tasks(self, project: int) -> list[JsonObject]:
        """Return every task of a project with its annotations, as in the full export."""
        path = f"/api/projects/{project}/export?exportType=JSON&download_all_tasks=true"
        answer = self._ask("GET", path)
        if not isinstance(answer, list):
            raise self._unexpected_response("GET", path)
        return [task for task in answer if isinstance(task, dict)]

    def list_annotators(self) -> dict[int, str]:
        """Return the e-mail addresses of annotators by their number."""
        answer = self._ask("GET", "/api/users/")
        if not isinstance(answer, list):
            raise self._unexpected_response("GET", "/api/users/")
        annotators: dict[int, str] = {}
        for person in answer:
            if isinstance(person, dict) and type(person.get("id")) is int:
                annotators[person["id"]] = str(person.get("email") or "")
        return annotators

    def add_tasks(self, project: int, tasks: Sequence[JsonObject]) -> None:
        """Add tasks to a project."""
        for first in range(0, len(tasks), TASKS_PER_REQUEST):
            part = list(tasks[first : first + TASKS_PER_REQUEST])
            self._ask("POST", f"/api/projects/{project}/import", part)

    def _number(self, project: object, path: str) -> int:
        number = project.get("id") if isinstance(project, dict) else None
        if type(number) is not int:
            raise self._unexpected_response("POST", path)
        return number

    def _ask(self, method: str, path: str, body: object = None) -> object:
        import httpx

        where = self._settings.address
        try:
            with (
                self._cut_off_after(MAX_RESPONSE_SECONDS),
                self._client.stream(method, path, json=body) as response,
            ):
                content = _read_up_to(response, LARGEST)
        except httpx.HTTPError as error:
            raise StorageError(
                f"Label Studio at {where} was not reached ({sentence(error)}): is it running?"
            ) from error
        if response.status_code in (401, 403):
            raise ValueError(
                f"Label Studio at {where} does not accept the token in {SERVER}; its page 'Account & "
                "Settings' shows the one that it accepts"
            )
        if not response.is_success or content is None:
            raise self._unexpected_response(method, path, response.status_code)
        try:
            answer: object = json.loads(content)
        except (ValueError, RecursionError) as error:
            raise self._unexpected_response(method, path) from error
        return answer

    @contextmanager
    def _cut_off_after(self, seconds: float) -> Iterator[None]:
        """Abort a request after ``seconds``, even if data arrives slowly.

        `PATIENCE` alone restarts with each byte.
        """
        timer = Timer(seconds, self._client.close)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _unexpected_response(
        self, method: str, path: str, status: int = 200
    ) -> StorageError:
        plain = path.partition("?")[0]
        return StorageError(
            f"{self._settings.address} does not answer as Label Studio does ({status} to {method} "
            f"{plain}); labels and tasks are unchanged"
        )


def _read_up_to(response: httpx.Response, largest: int) -> bytes | None:
    """Return the raw body of a response, or None if it is too large or encoded.

    No encoding was requested, and a few encoded bytes can expand to many.
    """
    if response.headers.get("content-encoding", "identity") != "identity":
        return None
    body = bytearray()  # a list of small parts would need far more memory
    for part in response.iter_raw():
        if len(body) + len(part) > largest:
            return None
        body += part
    return bytes(body)


# -- synchronization ------------------------------------------------------------------------


@final
class LabelStudio(LabelingTool):
    """Exchange labeling tasks and labels with Label Studio, as files or over its REST API."""

    def format_tasks(self, tasks: LabelingTasks) -> dict[str, bytes]:
        """Return tasks as JSON, with labels as annotations."""
        entries = build_tasks(tasks.lines, is_class=bool(tasks.choices))
        return {".json": _format_objects(entries)}

    def parse_labels(self, content: bytes) -> list[Cells]:
        """Return the label of each annotation in the full JSON export."""
        return read_tasks(content)

    def sync(self, folder: SiteFolder, ledger: Ledger, show: ShowRow) -> Synced:
        """Import annotations as if entered on the labeling page, and add new labeling tasks.

        Labels are checked as by `import_labels`: rejected ones are reported and left out, and all
        others are imported in one transaction. Raises ValueError and StorageError as
        `LabelStudioServer` does.
        """
        settings = read_server_settings(folder.path / SERVER)
        agreement = folder.agreement
        schema = agreement.schema
        rows = folder.rows
        file = folder.path / TAKEN
        with LabelStudioServer(settings) as server:
            title = name_project(agreement.name, folder.name, agreement.digest)
            has_images = show(0) is not None
            choices = list_choices(schema, agreement.plan)
            interface = write_interface(choices, has_images=has_images)
            project = server.find_project(title, interface)
            tasks = [
                task
                for task in server.list_tasks(project)
                if _is_own(task, agreement.digest, folder.name)
            ]
            annotators = server.list_annotators()
            annotated = [_shorten(task, annotators) for task in tasks]
            write_whole(file, _format_objects(annotated), mode=FILE)
            taken = import_labels(
                ledger,
                schema,
                rows,
                file,
                "Label Studio",
                partial=True,
                tool=self,
                plan=agreement.plan,
            )
            known = {_identify_task(_find_data(task)) for task in tasks}
            lines = []
            for line in list_open_tasks(ledger, schema, rows):
                if _identify_task(line) not in known:
                    details = {"study": agreement.digest, "site": folder.name}
                    lines.append(details | _describe_sample(line, show))
            server.add_tasks(project, build_tasks(lines, is_class=bool(schema.classes)))
        return Synced(project, len(lines), taken, str(file))


def _format_objects(objects: Sequence[JsonObject]) -> bytes:
    """Return objects as the content of a JSON file."""
    return (json.dumps(objects, indent=1, ensure_ascii=False) + "\n").encode()


def name_project(study: str, site: str, digest: str) -> str:
    """Return the title of a project, which differs by site and by the digest of the study.

    >>> name_project("heart", "basel", "0a1b")
    'heart, basel (0ef03bda)'
    """
    mark = hashlib.sha256(f"{digest} {site}".encode()).hexdigest()[:8]
    ending = f" ({mark})"
    return f"{study}, {site}"[: MAX_TITLE_LENGTH - len(ending)] + ending


def write_interface(choices: Sequence[str], *, has_images: bool = False) -> str:
    """Return the labeling interface of a project: the example, and the input tag `TAG`.

    ``choices`` are the texts of which one is chosen, empty for regression.

    >>> print(write_interface(["no", 'y"es', "cannot tell"]))
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
    if has_images:
        lines.append(f'  <Image name="{SHOWN}" value="$image" zoom="true"/>')
    else:
        lines.append(f'  <Table name="{SHOWN}" value="$features"/>')
    attributes = f'name="{TAG}" toName="{SHOWN}"'
    if not choices:
        lines.append(f'  <TextArea {attributes} maxSubmissions="1" required="true"/>')
        return "\n".join([*lines, "</View>"])
    lines.append(f'  <Choices {attributes} choice="single" required="true">')
    for name in choices:
        lines.append(f"    <Choice value={quoteattr(name)}/>")
    return "\n".join([*lines, "  </Choices>", "</View>"])


def _describe_sample(line: JsonObject, show: ShowRow) -> dict[str, object]:
    """Return a labeling task as data of a task: its identification and the displayed content."""
    sample: dict[str, object] = {}
    for name, value in line.items():
        if name in ("id", "row", "cycle", "position") or name.startswith(FEATURE):
            sample[name] = value
    row = line["row"]
    shown = show(row) if isinstance(row, int) else None
    if shown is not None:
        content = base64.b64encode(shown.content).decode("ascii")
        sample["image"] = f"data:{shown.media_type};base64,{content}"
    return sample


def _is_own(task: JsonObject, study: str, site: str) -> bool:
    """Return whether a task belongs to this site and study.

    Examples of different sites may have the same names.
    """
    data = _find_data(task)
    return data.get("study") == study and data.get("site") == site


def _find_data(task: JsonObject) -> Mapping[str, object]:
    data = task.get("data")
    if isinstance(data, dict):
        return data
    return {}


def _identify_task(details: Mapping[str, object]) -> tuple[str, str, str]:
    """Return the identification of a labeling task: its example and its cycle."""
    return str(details.get("id")), str(details.get("row")), str(details.get("cycle"))


def _shorten(task: JsonObject, annotators: Mapping[int, str]) -> JsonObject:
    """Return a task without the displayed content, with annotators by address."""
    data = _find_data(task)
    sample = {name: data.get(name) for name in ("id", "row", "cycle")}
    value = task.get("annotations")
    annotations: list[JsonObject] = []
    if isinstance(value, list):
        for annotation in value:
            if isinstance(annotation, dict):
                annotations.append(_name_author(annotation, annotators))
    return {"id": task.get("id"), "data": sample, "annotations": annotations}


def _name_author(annotation: JsonObject, annotators: Mapping[int, str]) -> JsonObject:
    author = annotation.get("completed_by")
    if not isinstance(author, int) or not annotators.get(author):
        return annotation
    return {**annotation, "completed_by": {"id": author, "email": annotators[author]}}
