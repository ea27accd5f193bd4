"""Small label queues for the tests of the labeling page and of label import and export."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from html import unescape
from pathlib import Path
from threading import Thread
from typing import Any

import torch
from fastapi import FastAPI
from httpx import ASGITransport, AsyncClient, Cookies, Response

from fallow.data.facts import DataFacts
from fallow.deployment.answer_plan import AnswerPlan, Rule
from fallow.deployment.labeling_page import LabelQueue, create_app
from fallow.deployment.labeling_page.access import TokenAccess
from fallow.deployment.labeling_page.local_server import build_server, listen
from fallow.deployment.ledger import Ledger
from fallow.deployment.ledger.label_requests import SelectedRow
from fallow.deployment.ledger.labeling_tasks import Reasons
from fallow.deployment.schema import Column, Schema
from fallow.deployment.site.rows import ReadableRow, SiteRows

RUN, STEP = "run", "0/query"
ROWS = 12
COLUMNS = (
    Column("age", "years"),
    Column("sex", values=("female", "male")),
    Column("chol", "mg/dl"),
)
HEART = Schema("table", "classification", "disease", ("healthy", "ill"), COLUMNS, (4,))
DOSE = replace(HEART, task="regression", label="dose", classes=(), unit="mg")
FACTS = DataFacts(
    source="<b>rows</b>.csv",
    read=12,
    kept=12,
    sites=[],
    lost=[],
    left_out=[],
    columns=[],
    classes={},
    duplicates=0,
    crossing=0,
    warnings=["one class has a single label"],
)
DIGITS = Schema("images", "classification", classes=("zero", "one", "two"), shape=(1, 8, 8))


def table_rows(ids: tuple[str, ...] | None = None) -> SiteRows:
    """Return twelve patients, or one for each name; row r is 40 + r years old."""
    names = ids or tuple(f"patient-{row}" for row in range(ROWS))

    def describe(row: int) -> ReadableRow:
        sex = COLUMNS[1].values[row % 2]
        cells = (("age", str(40 + row)), ("sex", sex), ("chol", str(200 + 3 * row)))
        return tuple((name, text, COLUMNS[i].unit) for i, (name, text) in enumerate(cells))

    return SiteRows(torch.zeros(len(names), 4), (None,) * len(names), names, describe)


GUIDED = AnswerPlan(guided_share=0.9)
"""Plan by which most labeling tasks show predictions."""


def make_queue(
    folder: Path,
    schema: Schema = HEART,
    rows: SiteRows | None = None,
    asked: Mapping[int, Reasons] | tuple[int, ...] = (3, 1, 4),
    answers: int = 1,
    limit: int | None = None,
    rule: Rule = "majority",
) -> LabelQueue:
    """Return a queue whose newest cycle, number 0, asks for these rows in this order."""
    ledger = Ledger(
        folder / "ledger.sqlite",
        "cleveland",
        schema.n_answers,
        limit,
        rule,
        labels=schema.labels,
    )
    ledger.instructions.begin(RUN)
    if asked:
        ask(ledger, asked, answers=answers)
    return LabelQueue("heart", "cleveland", schema, rows or table_rows(), ledger)


def guess(value: int, probability: float) -> Reasons:
    """Return the reasons of a task that shows its likeliest class."""
    return {
        "predicted": value,
        "probability": probability,
        "by": "global",
        "likeliest": [(value, probability)],
    }


BLIND: Reasons = {"predicted": 1.0, "probability": 0.7, "by": "global", "is_blind": True}
"""Reasons of a task that shows no prediction before it is labeled."""


def ask(
    ledger: Ledger,
    asked: Mapping[int, Reasons] | tuple[int, ...],
    cycle: int = 0,
    deadline: str | None = None,
    **more: Any,
) -> None:
    """Ask for these rows, with ``more`` of `SelectedRow`; the default deadline is three days away."""
    later = datetime.now(UTC) + timedelta(days=3, hours=1)
    end = deadline or later.isoformat(timespec="seconds")
    if isinstance(asked, Mapping):
        lines = [SelectedRow(row, why, **more) for row, why in asked.items()]
    else:
        lines = [SelectedRow(row, **more) for row in asked]
    ledger.requests.ask(
        RUN, f"{cycle}/query", cycle=cycle, allowed=len(lines), deadline=end, rows=lines
    )


def close(ledger: Ledger, cycle: int = 0) -> None:
    """Close a cycle as the coordinator does, without a validation set."""
    ledger.requests.close(RUN, f"{cycle}/query", lambda labels: labels)


def make_checks(folder: Path) -> LabelQueue:
    """Return a queue that checks the label of row 3, to which the prediction prefers another."""
    queue = make_queue(folder, asked=(3, 1))
    queue.ledger.answer(3, 1.0, "Ann")
    queue.ledger.answer(1, 1.0, "Ann")
    close(queue.ledger)
    reasons: Reasons = {"predicted": 0.0, "by": "without"}
    ask(queue.ledger, {3: reasons}, cycle=1, is_check=True)
    return queue


@dataclass
class Browser:
    """Simulate a browser that keeps cookies and sends the forms of a page."""

    app: FastAPI
    access: TokenAccess
    cookies: Cookies = field(default_factory=Cookies)
    shown: Response = field(default_factory=lambda: Response(204))

    def request(self, method: str, path: str, follow: bool = True, **more: Any) -> Response:
        """Send a request; return the response and the address of a redirect."""

        async def send() -> Response:
            home = f"http://{self.access.hosts[0]}"
            options: Any = {
                "cookies": self.cookies,
                "follow_redirects": follow,
                "base_url": home,
            }
            async with AsyncClient(transport=ASGITransport(self.app), **options) as client:
                response = await client.request(method, path, **more)
                self.cookies = client.cookies
                return response

        self.shown = asyncio.run(send())
        return self.shown

    def get(self, path: str = "/") -> str:
        self.request("GET", path)
        return self.text

    @property
    def text(self) -> str:
        """Return the text of the page without markup."""
        return " ".join(unescape(re.sub(r"<[^>]+>", " ", self.shown.text)).split())

    @property
    def path(self) -> str:
        return self.shown.url.path

    def hidden(self, action: str) -> dict[str, str]:
        """Return the hidden fields of the first form with this action."""
        form = self.shown.text.split(f'action="{action}"', 1)[1].split("</form>", 1)[0]
        fields = re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', form)
        return {name: unescape(value) for name, value in fields}

    def send(self, action: str, **fields: str) -> str:
        """Send the first form with this action on the current page."""
        return self.post(action, {**self.hidden(action), **fields})

    def post(self, action: str, fields: Mapping[str, str]) -> str:
        headers = {"origin": f"http://{self.access.hosts[0]}"}
        self.request("POST", action, data=dict(fields), headers=headers)
        return self.text


def outside(queue: LabelQueue, annotator: str | None = None) -> Browser:
    """Return a browser that is not logged in."""
    access = TokenAccess(8123, "the-token")
    return Browser(create_app(queue, access, annotator), access)


def enter(queue: LabelQueue, annotator: str | None = "Ann") -> Browser:
    """Return a browser that has logged in under this name."""
    browser = outside(queue, annotator)
    browser.get(browser.access.address)
    return browser


@contextmanager
def running(queue: LabelQueue, annotator: str | None = None) -> Iterator[TokenAccess]:
    """Serve the page on a free port of this machine."""
    with listen(0) as listener:
        access = TokenAccess(listener.getsockname()[1])
        server = build_server(create_app(queue, access, annotator))
        thread = Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield access
        finally:
            server.should_exit = True
            thread.join(timeout=10)


def picture_rows(folder: Path) -> SiteRows:
    """Write twelve images of 8 x 8 pixels to separate files."""
    from PIL import Image

    x = torch.arange(ROWS * 64).reshape(ROWS, 1, 8, 8) * 5 % 256
    files = [folder / f"scan-{row}.png" for row in range(ROWS)]
    for file, pixels in zip(files, x, strict=True):
        Image.fromarray(pixels[0].byte().numpy()).save(file)
    names = tuple(file.name for file in files)
    return SiteRows(x / 255, (None,) * ROWS, names, lambda row: files[row])
