"""Labeling page: one GET with 10,000 waiting labeling tasks, beside one with 100."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from httpx import ASGITransport, AsyncClient, Response

from bench.timing import Entry, Race
from fallow.deployment.labeling_page import LabelQueue, create_app
from fallow.deployment.labeling_page.access import TokenAccess
from fallow.deployment.ledger import Ledger
from fallow.deployment.ledger.label_requests import SelectedRow
from fallow.deployment.schema import Column, Schema
from fallow.deployment.site.rows import SiteRows

SCHEMA = Schema(
    "table", "classification", "disease", ("healthy", "ill"), (Column("age"),), (1,)
)
RUN = "run"


def prepare(is_quick: bool) -> Race:
    n_few, n_many = (10, 100) if is_quick else (100, 10_000)
    folder = TemporaryDirectory()
    ledgers = [open_ledger(Path(folder.name) / f"{n}.sqlite", n) for n in (n_few, n_many)]
    few, many = (build_page(ledger) for ledger in ledgers)
    shown: dict[str, str] = {}

    def theirs() -> None:
        shown["few"] = few()

    def ours() -> None:
        shown["many"] = many()

    def are_equal() -> bool:
        pages = [re.sub(r"\d[\d,]*", "#", page) for page in shown.values()]
        return len(set(pages)) == 1

    def close() -> None:
        for ledger in ledgers:
            ledger.close()
        folder.cleanup()

    return Race(theirs, ours, are_equal, close=close)


def open_ledger(path: Path, waiting: int) -> Ledger:
    """Create a ledger with open labeling tasks."""
    ledger = Ledger(path, "north", len(SCHEMA.classes), limit=None)
    ledger.instructions.begin(RUN)
    ledger.requests.ask(
        RUN,
        "0/query",
        cycle=0,
        allowed=waiting,
        deadline=None,
        rows=[SelectedRow(row) for row in range(waiting)],
    )
    return ledger


def build_page(ledger: Ledger) -> Callable[[], str]:
    """Return a function that requests the page of the next labeling task."""
    waiting = ledger.progress().open
    names = tuple(f"patient {row}" for row in range(waiting))
    rows = SiteRows(
        torch.zeros(waiting, 1),
        (None,) * waiting,
        names,
        lambda row: (("age", str(row), ""),),
    )
    access = TokenAccess(8123, "the-token")
    queue = LabelQueue("bench", "north", SCHEMA, rows, ledger)
    app = create_app(queue, access, "Ann")

    async def request() -> Response:
        home = f"http://{access.hosts[0]}"
        transport = ASGITransport(app)
        async with AsyncClient(transport=transport, base_url=home) as client:
            await client.get(access.address)  # log in
            return await client.get("/")

    def show() -> str:
        response = asyncio.run(request())
        response.raise_for_status()
        return response.text

    return show


ENTRIES = (
    Entry(
        "labeling-page",
        "the same two requests (log in, show a task) with 100 waiting labeling tasks; "
        "Fallow has 10,000",
        bar=0.4,
        compared="the pages without their numbers: identical",
        prepare=prepare,
        ceiling=0.03,
    ),
)
