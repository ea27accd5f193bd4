"""What each page shows: the desk's contents in the words of the templates."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import NamedTuple, TypedDict, final
from urllib.parse import quote

from fastapi.responses import HTMLResponse, RedirectResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from fallow.federation.ledger.questions import LabelAnswer, Question
from fallow.federation.page import words
from fallow.federation.page.desk import (
    CANNOT_TELL,
    ENDED,
    LabelQueue,
    decision,
    encode_answer,
    encode_answers,
    find_own_answer,
)
from fallow.federation.page.forms import whole_number
from fallow.federation.page.pictures import SMALL, sizes
from fallow.report.own_data import summarize_data

HERE = Path(__file__).parent
A_PAGE = 50  # earlier labels on one page
QUIET = ("saved", "same")
"""What is said beside the answers, where it moves nothing under the pointer."""
NOTICES = {  # what has just happened; {id} and {label} are filled in
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
def templates() -> Environment:
    """The templates, each compiled once; all text is escaped, and a name they lack is an error."""
    environment = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(clock=words.format_time, cycle=words.cycle_name)
    return environment


@final
class Notice(NamedTuple):
    """A sentence on what has just happened."""

    sentence: str
    is_quiet: bool


class CycleCounts(TypedDict):
    """How far the newest cycle is, None before the first.

    said: the same in words.  deadline: ISO 8601, UTC.  conflicts: how many wait, over all cycles.
    """

    cycle: int | None
    progress: dict[str, int]
    said: str
    deadline: str | None
    conflicts: int


Context = dict[str, object]
"""Names of a template, and what they stand for."""


@final
@dataclass(frozen=True, eq=False)
class Views:
    """The pages of a desk as HTML.  asks_for_names: people say who they are, and may say another."""

    desk: LabelQueue
    asks_for_names: bool = True

    def page(
        self, name: str, who: str | None, status: int = 200, /, **more: object
    ) -> HTMLResponse:
        """A whole page, with what every page has: who labels, how far the cycle is."""
        desk = self.desk
        context: Context = {
            "desk": desk,
            "schema": desk.schema,
            "ids": desk.rows.ids,
            "label": desk.label,
            "who": who,
            "asks_for_names": self.asks_for_names,
            "alert": None,
            "notice": None,
            **self.counts(),
            **more,
        }
        html = templates().get_template(f"{name}.html").render(context)
        return HTMLResponse(html, status)

    def counts(self) -> CycleCounts:
        """How far the newest cycle is, and how many conflicts wait."""
        ledger = self.desk.ledger
        cycle = max(ledger.cycles(), default=None)
        asked: Sequence[Question] = []
        if cycle is not None:
            asked = ledger.questions(cycle)
        deadline = None
        if asked:
            deadline = asked[0].deadline
        progress = ledger.progress()
        output = f"{progress.answered + progress.declined} of {progress.asked} done"
        if progress.conflicts:
            output += f", {progress.conflicts} in conflict"
        n_withdrawn = sum(question.state == "withdrawn" for question in asked)
        if n_withdrawn:
            output += f", {n_withdrawn} withdrawn"
        if progress.open or progress.conflicts:
            output += f", {words.describe_time_left(deadline, datetime.now(UTC))}"
        return {
            "cycle": cycle,
            "progress": asdict(progress),
            "said": output,
            "deadline": deadline,
            "conflicts": len(ledger.questions(state="conflict")),
        }

    # -- one sample -------------------------------------------------------------------------

    def sample(
        self,
        asked: Question,
        who: str,
        status: int = 200,
        typed: str | None = None,
        shows_guess: bool = False,
        **more: object,
    ) -> HTMLResponse:
        """One sample with its answers; typed: what was in the field of a form that was refused.

        shows_guess: somebody has asked what the model guesses now; it is no part of a page before.
        """
        own = find_own_answer(asked, who)
        last_said = self.desk.find_last_said(asked, who)
        before, after = self.desk.around(asked.row, who)
        if typed is None:
            typed = ""
            if own is not None and own.value is not None:
                typed = f"{own.value:.10g}"
        # what others said is shown to those who can no longer be swayed by it
        shows_history = last_said is not None or asked.state in ("declined", *ENDED)
        history: Sequence[LabelAnswer] = []
        if shows_history:
            history = self.desk.ledger.history(asked.row)
        return self.page(
            "sample",
            who,
            status,
            asked=asked,
            own=own,
            said_before=last_said,
            decided=decision(asked),
            seen=encode_answer(own),
            before=before,
            after=after,
            typed=typed,
            is_open=asked.state not in ENDED,
            state=words.STATES[asked.state],
            reasons=words.list_reasons(
                self.desk.schema, asked.why, place=asked.place, of=asked.of
            ),
            history=history,
            similar=self._similar(asked.row),
            **self._keys(),
            **self._guess(asked.row, is_shown=shows_guess),
            **self._row(asked.row),
            **self._undo(who),
            **more,
        )

    def all_done(self, who: str, **more: object) -> HTMLResponse:
        """Nothing to answer for this person."""
        others = len(self.desk.ledger.questions(state="open"))
        return self.page("done", who, others=others, **self._undo(who), **more)

    def data(self, who: str) -> HTMLResponse:
        """How the site's own files were read."""
        facts = self.desk.data
        summary = ""
        if facts is not None:
            summary = summarize_data(facts)
        return self.page("data", who, facts=facts, summary=summary)

    def conflict_list(self, who: str, status: int = 200, **more: object) -> HTMLResponse:
        """The questions on which people disagree, each with what they said."""
        conflicts: list[Context] = []
        for asked in self.desk.ledger.questions(state="conflict"):
            details: Context = {"asked": asked, "seen": encode_answers(asked)}
            conflicts.append(details | self._distinct_answers(asked) | self._row(asked.row))
        return self.page("conflicts", who, status, found=conflicts, **more)

    def own_labels(self, who: str, number: int, **more: object) -> HTMLResponse:
        """A page of what this person has answered, the newest first; numbers begin with 1."""
        answered = self.desk.list_answered(who)
        n_pages = max(1, math.ceil(len(answered) / A_PAGE))
        number = min(number, n_pages)
        first = (number - 1) * A_PAGE
        return self.page(
            "mine",
            who,
            found=answered[first : first + A_PAGE],
            total=len(answered),
            number=number,
            pages=n_pages,
            states=words.STATES,
            decision=decision,
            **more,
        )

    def withdrawal(
        self, row: int, who: str, status: int = 200, **more: object
    ) -> HTMLResponse:
        """The form by which a sample leaves."""
        context: Context = {"why": "", "row": row}
        context |= self._row(row)
        context |= more
        return self.page("withdraw", who, status, **context)

    def plain(self, status: int, why: str) -> HTMLResponse:
        """A sentence alone: for who may not see the page, and where the ledger cannot be read."""
        return HTMLResponse(templates().get_template("plain.html").render(why=why), status)

    def live(self, who: str, row: int | None) -> Context:
        """What a page that stays open asks for every few seconds."""
        counts = self.counts()
        progress = counts["progress"]
        asked = None
        if row is not None:
            asked = self.desk.question(row)
        own = None
        state = None
        if asked is not None:
            own = find_own_answer(asked, who)
            state = asked.state
        return {
            "said": counts["said"],
            "done": progress["answered"] + progress["declined"],
            "asked": progress["asked"],
            "waiting": len(self.desk.waiting(who)),
            "state": state,
            "seen": encode_answer(own),
        }

    # -- pieces -----------------------------------------------------------------------------

    def _similar(self, row: int) -> list[Context]:
        """The labeled rows that are most like a row, each in its readable form."""
        result: list[Context] = []
        for other, value in self.desk.list_similar(row):
            result.append(
                {"row": other, "label": self.desk.label(value), **self._row(other)}
            )
        return result

    def _guess(self, row: int, *, is_shown: bool) -> Context:
        """What the model that the site was given last guesses, where somebody wants to know."""
        space = self.desk.space
        guess = None
        if space is not None and is_shown:
            guess = space.guess(row)
        sentence = None
        if guess is not None:
            by = words.MODELS["global"]
            sentence = words.describe_guess(self.desk.schema, by, *guess)
        return {"can_guess": space is not None and space.has_model, "guess": sentence}

    def _row(self, row: int) -> Context:
        """A row's readable form: pictures, each with its size, or cells of a table."""
        pictures = sizes(self.desk.rows, row)
        if not pictures:
            cells = self.desk.describe_row(row)
            return {"pictures": [], "is_small": False, "cells": cells}
        is_small = all(max(in_pixels) <= SMALL for in_pixels in pictures)
        return {"pictures": pictures, "is_small": is_small, "cells": ()}

    def _distinct_answers(self, asked: Question) -> Context:
        """The different answers to a question as forms carry them, and in words."""
        values = dict.fromkeys(answer.value for answer in asked.answers)
        as_sent: list[str] = []
        in_words: list[str] = []
        for value in values:
            if value is None:
                as_sent.append(CANNOT_TELL)
            else:
                as_sent.append(f"{value:.17g}")
            in_words.append(self.desk.label(value))
        return {"said": as_sent, "words": in_words}

    def _keys(self) -> Context:
        """The number, the name and the key of each class."""
        names = self.desk.schema.classes
        keys = zip(range(len(names)), names, words.hot_keys(names), strict=True)
        return {"keys": list(keys)}

    def _undo(self, who: str) -> Context:
        """What the button to undo needs; nothing where this person can undo nothing."""
        undoable = self.desk.undoable(who)
        if undoable is None:
            return {"undo": None}
        asked, given = undoable
        label = self.desk.label(given.value)
        n_said = len(self.desk.ledger.history(asked.row))
        return {"undo": {"row": asked.row, "label": label, "said": n_said}}

    def describe_outcome(self, query: Mapping[str, str], who: str) -> Notice | None:
        """What has just happened, as the address of the page that a form led on to names it."""
        outcome = query.get("told", "")
        row = whole_number(query.get("row", ""))
        ids = self.desk.rows.ids
        if outcome not in NOTICES or row is None or row >= len(ids):
            return None
        label = ""
        for given in self.desk.ledger.history(row):
            if given.who == who:
                label = self.desk.label(given.value)  # the last one counts
        sentence = NOTICES[outcome].format(id=f"“{ids[row]}”", label=f"“{label}”")
        return Notice(sentence, is_quiet=outcome in QUIET)


def onward(path: str, outcome: str, row: int) -> RedirectResponse:
    """To a page that says what happened: loading it again changes nothing."""
    joint = "?"
    if "?" in path:
        joint = "&"
    address = f"{path}{joint}told={quote(outcome)}&row={row}"
    return RedirectResponse(address, status_code=303)
