"""What each page shows: the desk's contents in the words of the templates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, final
from urllib.parse import quote

from fastapi.responses import HTMLResponse, RedirectResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from fallow.federation.ledger.questions import Question
from fallow.federation.page import words
from fallow.federation.page.desk import (
    CANNOT_TELL,
    ENDED,
    LabelQueue,
    decision,
    mine,
    sent,
    spoken,
)
from fallow.federation.page.forms import whole_number
from fallow.federation.page.pictures import SMALL, size

HERE = Path(__file__).parent
A_PAGE = 50  # earlier labels on one page
QUIET = (
    "saved",
    "same",
)  # said beside the answers, where it moves nothing under the pointer
TOLD = {  # what has just happened; {id} and {label} are filled in
    "saved": "Saved: {label} for sample {id}.",
    "same": "{label} was saved for sample {id} already; it counts once.",
    "changed": "Corrected: sample {id} is {label} now. If your earlier label has entered training, "
    "this one replaces it when the cycle is closed.",
    "conflict": "Saved: {label} for sample {id}. Somebody else has said something different: both "
    "answers are kept, and the sample waits under Conflicts.",
    "undone": "Undone: your last answer for sample {id} does not count; what you said before does.",
    "resolved": "Decided: {label} for sample {id}.",
    "withdrawn": "Sample {id} is withdrawn: it leaves the data of this study for good.",
}


@cache
def templates() -> Any:
    """The templates, each compiled once; all text is escaped, and a name they lack is an error."""
    folder = FileSystemLoader(HERE / "templates")
    kept: dict[str, Any] = {"trim_blocks": True, "lstrip_blocks": True}
    made = Environment(loader=folder, autoescape=True, undefined=StrictUndefined, **kept)
    made.filters.update(clock=words.clock, cycle=words.cycle_name)
    return made


@final
class Told(NamedTuple):
    """A sentence on what has just happened."""

    sentence: str
    is_quiet: bool


@final
@dataclass(frozen=True, eq=False)
class Views:
    """The pages of a desk as HTML."""

    desk: LabelQueue

    def page(
        self, name: str, who: str | None, status: int = 200, **more: Any
    ) -> HTMLResponse:
        """A whole page, with what every page has: who labels, how far the cycle is."""
        desk = self.desk
        about = {
            "desk": desk,
            "schema": desk.schema,
            "ids": desk.rows.ids,
            "label": desk.label,
        }
        about |= {"who": who, "alert": None, "told": None, **self.counts()}
        return HTMLResponse(
            templates().get_template(f"{name}.html").render(about | more), status
        )

    def counts(self) -> dict[str, Any]:
        """How far the newest cycle is, and how many conflicts wait."""
        cycles = self.desk.ledger.cycles()
        asked = self.desk.ledger.questions(max(cycles)) if cycles else []
        told = self.desk.ledger.progress()
        conflicts = len(self.desk.ledger.questions(state="conflict"))
        deadline = asked[0].deadline if asked else None
        said = f"{told.answered + told.declined} of {told.asked} done"
        if told.conflicts:
            said += f", {told.conflicts} in conflict"
        if gone := sum(question.state == "withdrawn" for question in asked):
            said += f", {gone} withdrawn"
        if told.open or told.conflicts:
            said += f", {words.left(deadline, datetime.now(UTC))}"
        return {
            "cycle": max(cycles, default=None),
            "progress": asdict(told),
            "said": said,
            "deadline": deadline,
            "conflicts": conflicts,
        }

    # -- one sample -------------------------------------------------------------------------

    def sample(
        self,
        asked: Question,
        who: str,
        status: int = 200,
        typed: str | None = None,
        **more: Any,
    ) -> HTMLResponse:
        """One sample with its answers; typed: what was in the field of a form that was refused."""
        own, said = mine(asked, who), self.desk.said(asked, who)
        before, after = self.desk.around(asked.row, who)
        number = "" if own is None or own.value is None else f"{own.value:.10g}"
        has_spoken = said is not None or asked.state in ("declined", *ENDED)
        return self.page(
            "sample",
            who,
            status,
            asked=asked,
            own=own,
            said_before=said,
            decided=decision(asked),
            seen=sent(own),
            before=before,
            after=after,
            typed=number if typed is None else typed,
            is_open=asked.state not in ENDED,
            state=words.STATES[asked.state],
            reasons=words.reasons(self.desk.schema, asked.why, asked.place, asked.of),
            history=self.desk.ledger.history(asked.row) if has_spoken else [],
            **self._keys(),
            **self._row(asked.row),
            **self._undo(who),
            **more,
        )

    def done(self, who: str, **more: Any) -> HTMLResponse:
        """Nothing to answer for this person."""
        others = len(self.desk.ledger.questions(state="open"))
        return self.page("done", who, others=others, **self._undo(who), **more)

    def conflict_list(self, who: str, status: int = 200, **more: Any) -> HTMLResponse:
        found = [
            {
                "asked": asked,
                "seen": spoken(asked),
                **self._said(asked),
                **self._row(asked.row),
            }
            for asked in self.desk.ledger.questions(state="conflict")
        ]
        return self.page("conflicts", who, status, found=found, **more)

    def own_labels(self, who: str, number: int, **more: Any) -> HTMLResponse:
        found = self.desk.answered(who)
        pages = max(1, -(-len(found) // A_PAGE))
        number = min(number, pages)
        shown = found[(number - 1) * A_PAGE : number * A_PAGE]
        more |= {"found": shown, "total": len(found), "number": number, "pages": pages}
        return self.page("mine", who, states=words.STATES, decision=decision, **more)

    def withdrawal(
        self, row: int, who: str, status: int = 200, **more: Any
    ) -> HTMLResponse:
        about = {"why": "", **more}
        return self.page("withdraw", who, status, row=row, **self._row(row), **about)

    def plain(self, status: int, why: str) -> HTMLResponse:
        """A sentence alone: for who may not see the page, and where the ledger cannot be read."""
        return HTMLResponse(templates().get_template("plain.html").render(why=why), status)

    def live(self, who: str, row: int | None) -> dict[str, Any]:
        """What a page that stays open asks for every few seconds."""
        told, asked = self.counts(), None if row is None else self.desk.question(row)
        own = mine(asked, who) if asked else None
        return {
            "said": told["said"],
            "done": told["progress"]["answered"] + told["progress"]["declined"],
            "asked": told["progress"]["asked"],
            "waiting": len(self.desk.waiting(who)),
            "state": asked.state if asked else None,
            "seen": sent(own),
        }

    # -- pieces -----------------------------------------------------------------------------

    def _row(self, row: int) -> dict[str, Any]:
        """A row's readable form: a picture with its size, or cells of a table."""
        shown = self.desk.describe_row(row)
        if found := size(self.desk.rows, row):
            return {"picture": found, "is_small": max(found) <= SMALL, "cells": ()}
        return {"picture": None, "is_small": False, "cells": shown}

    def _said(self, asked: Question) -> dict[str, list[str]]:
        """The different answers to a question as forms carry them, and in words."""
        values = list(dict.fromkeys(given.value for given in asked.answers))
        forms = [CANNOT_TELL if v is None else f"{v:.17g}" for v in values]
        return {"said": forms, "words": [self.desk.label(v) for v in values]}

    def _keys(self) -> dict[str, Any]:
        names = self.desk.schema.classes
        pairs = zip(names, words.hot_keys(names), strict=True)
        return {"keys": [(i, name, key) for i, (name, key) in enumerate(pairs)]}

    def _undo(self, who: str) -> dict[str, Any]:
        found = self.desk.undoable(who)
        if found is None:
            return {"undo": None}
        asked, given = found
        said = len(self.desk.ledger.history(asked.row))
        return {
            "undo": {"row": asked.row, "label": self.desk.label(given.value), "said": said}
        }

    def told(self, query: Mapping[str, str], who: str) -> Told | None:
        """What has just happened, as the address of the page that a form led on to names it."""
        what, row = query.get("told", ""), query.get("row", "")
        if what not in TOLD or (at := whole_number(row)) is None:
            return None
        if at >= len(self.desk.rows.ids):
            return None
        own = [given for given in self.desk.ledger.history(at) if given.who == who]
        label = self.desk.label(own[-1].value) if own else ""
        named = {"id": f"“{self.desk.rows.ids[at]}”", "label": f"“{label}”"}
        return Told(TOLD[what].format(**named), what in QUIET)


def onward(path: str, told: str, row: int) -> RedirectResponse:
    """To a page that says what happened: loading it again changes nothing."""
    joint = "&" if "?" in path else "?"
    return RedirectResponse(f"{path}{joint}told={quote(told)}&row={row}", status_code=303)
