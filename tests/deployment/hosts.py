"""One site and a coordinator whose messages are controlled by the test."""

from __future__ import annotations

import csv
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from fallow.core.ask import Ask
from fallow.core.disclosure import Disclosure
from fallow.core.messages import Delivered, Request, Step
from fallow.core.training_config import Optimizer, TrainingConfig, TrainingStage
from fallow.core.types import SiteId, State, Value, Values
from fallow.deployment.agreement import Agreement, at_sites
from fallow.deployment.ledger import Ledger
from fallow.deployment.schema import Column, Schema
from fallow.deployment.site.folder import SiteFolder
from fallow.deployment.site.host import Host
from fallow.deployment.study_file import write_agreement
from fallow.experiment.event_log import EventLog
from fallow.privacy.signing import verify_key
from fallow.settings.config import ExperimentConfig, with_settings
from fallow.transport.envelope import Instruction, Reply, open_reply, sign_message
from fallow.transport.peer_messages import request_body
from tests.keys import key_of, step_of

SECRET = b"coordinator's signing key, 32 b."
STRANGER = b"somebody else's signing key, 32."
SITE, SITES = "north", ("north", "south", "west")
RUN, SECOND = "0000000001-" + 16 * "a", "0000000002-" + 16 * "b"
ASK: dict[str, Value] = {"allowed": 3}
CLASSES, FEATURES, ROWS, TESTS = 3, 4, 18, 12
SCHEMA = Schema(
    "table",
    "classification",
    "y",
    ("a", "b", "c"),
    tuple(Column(f"x{i}") for i in range(FEATURES)),
    (FEATURES,),
)
NUMBERS = replace(SCHEMA, task="regression", classes=())
TINY = ExperimentConfig(
    "tiny",
    training_config=TrainingConfig((TrainingStage(2),), 4, Optimizer(lr=0.1, momentum=0.9)),
    rounds=2,
    cycles=2,
    initial=4,
    budget=3,
    dtype="float64",
)


def agreement(*settings: str, schema: Schema = SCHEMA, **more: Any) -> Agreement:
    """Return a study of three sites, e.g. ``agreement("strategy=entropy", seed=3)``."""
    config = configure(settings, schema)
    return Agreement("hospitals", config, schema, SITES, verify_key(SECRET), **more)


@cache
def configure(settings: tuple[str, ...], schema: Schema) -> ExperimentConfig:
    config = with_settings(TINY, dict(pair.split("=", 1) for pair in settings))
    return at_sites(config, "hospitals", len(SITES), schema)


def truth(row: int) -> float:
    """Return the true class of a row, which annotators at the site answer."""
    return float(row % CLASSES)


CREATED: dict[str, TemporaryDirectory[str]] = {}
"""Folders of sites by the arguments of `folder`, to copy."""


def folder(
    path: Path, agreed: Agreement | None = None, brought: Sequence[int] = (), **chosen: Any
) -> SiteFolder:
    """Return the folder of a site whose examples are near the corner of their class. The
    rows in ``brought`` and all test rows have their label in the file. Equal arguments give
    equal files, with equal keys."""
    agreed = agreed or agreement("strategy=entropy")
    arguments = repr((agreed, list(brought), sorted(chosen.items())))
    if arguments not in CREATED:
        created = TemporaryDirectory()
        create_folder(Path(created.name), agreed, brought, **chosen)
        CREATED[arguments] = created
    template = CREATED[arguments].name
    shutil.copytree(template, path, dirs_exist_ok=True)
    settings = path / "SITE" / "site.toml"
    settings.write_text(settings.read_text().replace(template, str(path)))
    return SiteFolder.open(path / "SITE")


def create_folder(
    path: Path, agreed: Agreement, brought: Sequence[int], **chosen: Any
) -> None:
    draw = np.random.default_rng(0)
    files = {}
    for name, rows, known in (("rows", ROWS, brought), ("test", TESTS, range(TESTS))):
        files[name] = path / f"{name}.csv"
        with open(files[name], "w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            group = [chosen["group"]] if "group" in chosen else []
            columns = [column.name for column in agreed.schema.columns]
            writer.writerow([*columns, "y", *group])
            for row in range(rows):
                x = (
                    draw.normal(size=FEATURES)
                    + 2 * np.eye(CLASSES, FEATURES)[row % CLASSES]
                )
                y = "abc"[row % CLASSES] if agreed.schema.classes else row % CLASSES
                groups = [f"{name} {row // 3}"] if group else []
                writer.writerow([*x.round(4).tolist(), y if row in known else "", *groups])
    write_agreement(path / "study.toml", agreed)
    details = {
        "name": SITE,
        "data": str(files["rows"]),
        "test": str(files["test"]),
        **chosen,
    }
    SiteFolder.create(path / "SITE", path / "study.toml", **details)


@dataclass
class Leader:
    """Act as coordinator of one site: send signed instructions and count every reply.

    ``event_log``: with a file, the coordinator resumes where it stopped, as its site does.
    """

    site: SiteFolder
    run: str = RUN
    event_log: EventLog = field(default_factory=EventLog)
    instructions: list[Instruction] = field(default_factory=list)
    host: Host = field(init=False)
    ledger: Ledger = field(init=False)

    def __post_init__(self) -> None:
        self.start()

    def start(self) -> None:
        """Start a new process of the site."""
        self.ledger = self.site.open_ledger()
        self.host = Host(self.site, self.ledger)

    def again(self) -> None:
        self.ledger.close()
        self.start()

    # -- single instructions ---------------------------------------------------------------

    @property
    def position(self) -> int:
        return int(self.event_log.read_note("place") or 0)

    def instruction(self, request: Request, **more: Any) -> Instruction:
        """Return the next instruction."""
        counted = self.event_log.read_note("counted")
        origin = (self.site.agreement.digest, self.run, self.site.name, request.key)
        body = request_body(request, {})
        return replace(Instruction(*origin, self.position + 1, counted, body), **more)

    def send(self, instruction: Instruction, secret: bytes = SECRET) -> Reply:
        blob = self.host.handle(sign_message(secret, instruction))
        return open_reply(self.site.keys.verify, blob, self.site.name)

    def count(self, instruction: Instruction) -> None:
        self.event_log.note("counted", str(instruction.key))
        self.miss(instruction)

    def miss(self, instruction: Instruction) -> None:
        """Treat the site's reply as too late to count; the run continues without it."""
        self.event_log.note("place", str(instruction.number))

    # -- transport -------------------------------------------------------------------------

    @property
    def sites(self) -> tuple[SiteId, ...]:
        return (self.site.name,)

    def exchange(self, requests: Mapping[SiteId, Request], routes: Any = None) -> Delivered:
        instruction = self.instruction(requests[self.site.name])
        self.instructions.append(instruction)
        reply = self.send(instruction)
        if reply.refused:
            raise RuntimeError(reply.refused)
        self.count(instruction)
        return Delivered({self.site.name: reply.body}, 0, 0)

    def ask(self, key: str, owner: str, cycle: int = 0, **more: Any) -> Ask:
        return Ask(self, self.event_log, Disclosure(), step_of(key), owner, cycle, **more)

    # -- coordinator program ---------------------------------------------------------------

    def people(
        self, function_name: str, key: str, cycle: int = 0, /, **args: Value
    ) -> Values:
        ask = self.ask(key_of_people(key, function_name), "annotators", cycle)
        function = getattr(self.host._annotators, function_name)
        return ask.each(function, None, **args)[self.site.name]

    def label(self, annotator: str = "ann") -> None:
        """Answer all open labeling tasks with the true labels."""
        for question in self.ledger.tasks(state="open"):
            self.ledger.answer(question.row, truth(question.row), annotator)

    def initial(self, n: int = 4) -> None:
        """Run the initial labeling: draw examples, ask, answer and close."""
        methods = self.host._made.methods
        methods["initial"].query(self.ask("0/initial", "initial"), {self.site.name: n}, {})
        self.people("ask", "0/initial", -1, allowed=n)
        self.label()
        self.people("close", "0/initial", -1)

    def first_model(self) -> State:
        from fallow.core.streams import stream

        return self.host._made.fresh(stream(0, "init", 0))

    def round(self, r: int, state: State, cycle: int = 0) -> State:
        ask = self.ask(f"{cycle}/train/{r}", "training", cycle)
        values: State = self.host._made.methods["training"].round(state, ask)
        ask.flush()
        return values

    def query(self, state: State, cycle: int = 0, n: int = 3) -> None:
        ask = self.ask(f"{cycle}/query", "query", cycle)
        ask.fit(None, "global", None, **state)
        self.host._made.methods["query"].query(ask, {self.site.name: n}, {})

    def cycle(self, state: State, cycle: int = 0) -> State:
        """Run a cycle: two rounds, a query and labels."""
        for r in range(2):
            state = self.round(r, state, cycle)
        self.query(state, cycle)
        step = f"{cycle}/query"
        self.people("ask", step, cycle, allowed=3)
        self.label()
        self.people("close", step, cycle)
        return state


def keep(key: str, function_name: str, **args: Value) -> Request:
    """Return an instruction to select examples by the query strategy."""
    return Request(key_of(key), "query", 0, 0, (Step("keep", function_name, args),))


def make_request(function_name: str, key: str, **args: Value) -> Request:
    """Return an instruction that concerns annotators."""
    return Request(
        key_of(f"{key_of_people(key, function_name)}/0"),
        "annotators",
        0,
        0,
        (Step("each", function_name, args),),
    )


def key_of_people(key: str, function_name: str) -> str:
    """Return the key of a question to annotators, from the step's key and the client function."""
    return key if function_name == "hello" else f"{key}/{function_name}"


def order_picks(leader: Leader) -> Instruction:
    """Deliver a round's models to the site; return an instruction to select 3 examples."""
    state = leader.first_model()
    leader.round(0, state)
    leader.exchange(
        {
            "north": Request(
                key_of("0/query/0"),
                "query",
                0,
                0,
                (Step("fit", "global", dict(state)), Step("keep", "select", {"n": 3})),
            )
        }
    )
    return leader.instructions[-1]
