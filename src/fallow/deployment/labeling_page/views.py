"""Views of the labeling page: template contexts and rendering."""

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

from fallow.data.facts import summarize_data
from fallow.deployment.labeling_page import texts
from fallow.deployment.labeling_page.forms import WITHOUT, YES, whole_number, write_number
from fallow.deployment.labeling_page.label_queue import (
    ENDED,
    LabelQueue,
    decision,
    encode_answer,
    encode_answers,
    find_own_answer,
)
from fallow.deployment.labeling_page.languages import (
    LANGUAGE,
    find_count_text,
    find_text,
    text_id,
    translate,
)
from fallow.deployment.labeling_page.pictures import SMALL, sizes
from fallow.deployment.ledger.labeling_tasks import (
    LabelAnswer,
    LabelingTask,
    find_digits,
)
from fallow.deployment.site.rows import ReadableRow
from fallow.deployment.site.settings import LANGUAGES

HERE = Path(__file__).parent
A_PAGE = 50  # labels on one page
QUIET = ("saved", "same", "skipped")
"""Outcomes shown beside the labels, where they do not move the page."""
NOTICES = {  # confirmation messages
    "saved": text_id("Saved: “%(label)s” for example “%(id)s”."),
    "same": text_id("“%(label)s” was already saved for example “%(id)s” and counts once."),
    "changed": text_id(
        "Corrected: example “%(id)s” is now “%(label)s”. If your earlier label is already used "
        "in training, this one replaces it at once."
    ),
    "conflict": text_id(
        "Saved: “%(label)s” for example “%(id)s”. Another annotator chose a different label. "
        "Both labels are kept, and the example is listed under Conflicts."
    ),
    "differs": text_id(
        "Saved: “%(label)s” for example “%(id)s”. The earlier label differs, so the example is "
        "listed under Conflicts."
    ),
    "undone": text_id(
        "Undone: your last label for example “%(id)s” no longer counts. Your previous label does."
    ),
    "resolved": text_id("Decided: “%(label)s” for example “%(id)s”."),
    "skipped": text_id("Skipped: example “%(id)s” comes again after the others."),
    "withdrawn": text_id(
        "Example “%(id)s” is withdrawn permanently from the data of this study."
    ),
}


@cache
def templates() -> Environment:
    """Return the template environment. All text is escaped, and an undefined name is an error."""
    environment = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=["jinja2.ext.i18n"],
    )
    environment.install_gettext_callables(  # type: ignore[attr-defined]  # of the extension
        find_text, find_count_text, newstyle=True
    )
    environment.filters.update(
        clock=texts.format_time, count_of=texts.format_count, capital=texts.capitalize
    )
    environment.globals.update(
        languages=LANGUAGES, script_texts=texts.list_script_texts, language=LANGUAGE.get
    )
    return environment


@final
class Notice(NamedTuple):
    """A message about the last action."""

    sentence: str
    is_quiet: bool


class CycleCounts(TypedDict):
    """Labeling progress of the newest cycle, or None before the first.

    ``summary`` is the progress in texts. ``deadline`` is ISO 8601 in UTC. ``conflicts`` is the number
    of open conflicts over all cycles.
    """

    cycle: int | None
    progress: dict[str, int]
    summary: str
    deadline: str | None
    conflicts: int


class ReadableExample(TypedDict):
    """An example as annotators see it.

    ``pictures``: width, height and number of each image. ``is_small``: they are enlarged. ``is_stack``:
    slices of a case, of which one is shown at a time. ``cells``: of a table.
    """

    pictures: list[tuple[int, int, int]]
    is_small: bool
    is_stack: bool
    cells: ReadableRow | tuple[()]


Context = dict[str, object]
"""Variables of a template."""


@final
@dataclass(frozen=True, eq=False)
class Views:
    """Pages of a labeling queue as HTML.

    ``asks_for_names``: annotators enter a name and may change it.
    """

    queue: LabelQueue
    asks_for_names: bool = True

    def page(
        self, name: str, annotator: str | None, status: int = 200, /, **more: object
    ) -> HTMLResponse:
        """Render a page with the common header: annotator and labeling progress."""
        queue = self.queue
        context: Context = {
            "queue": queue,
            "schema": queue.schema,
            "ids": queue.rows.ids,
            "label": queue.label,
            "annotator": annotator,
            "asks_for_names": self.asks_for_names,
            "alert": None,
            "notice": None,
            "status": status,
            "checks": queue.list_checks(annotator) if annotator else [],
            "sheets": queue.count_sheets(annotator) if annotator else {},
            **self.counts(),
            **more,
        }
        html = templates().get_template(f"{name}.html").render(context)
        return HTMLResponse(html, status)

    def counts(self) -> CycleCounts:
        """Return the progress of the newest cycle and the number of open conflicts."""
        ledger = self.queue.ledger
        cycle = max(ledger.cycles(), default=None)
        deadline = None
        if cycle is not None:
            deadline = ledger.find_deadline(cycle)
        progress = ledger.progress(cycle)
        n_done = progress.answered + progress.declined
        parts = [translate("%(n)s of %(total)s done", n=n_done, total=progress.asked)]
        if progress.conflicts:
            parts.append(translate("%(n)s in conflict", n=progress.conflicts))
        n_withdrawn = ledger.count("withdrawn", cycle) if cycle is not None else 0
        if n_withdrawn:
            parts.append(translate("%(n)s withdrawn", n=n_withdrawn))
        if progress.open or progress.conflicts:
            parts.append(texts.describe_time_left(deadline, datetime.now(UTC)))
        return {
            "cycle": cycle,
            "progress": asdict(progress),
            "summary": ", ".join(parts),
            "deadline": deadline,
            "conflicts": ledger.count("conflict"),
        }

    # -- one example ------------------------------------------------------------------------

    def sample(
        self,
        asked: LabelingTask,
        annotator: str,
        status: int = 200,
        typed: str | None = None,
        shows_guess: bool = False,
        **more: object,
    ) -> HTMLResponse:
        """Render one example with its labels.

        ``typed`` is the field content of a rejected form. ``shows_guess`` shows the model's current
        prediction, which is hidden by default.
        """
        own = find_own_answer(asked, annotator)
        last_answer = self.queue.find_own_last_answer(asked, annotator)
        before, after = self.queue.around(asked.row, annotator)
        if typed is None:
            typed = ""
            if own is not None and own.value is not None:
                typed = write_number(own.value)
        # show labels of others only if they can no longer influence the annotator
        shows_history = last_answer is not None or asked.state in ("declined", *ENDED)
        is_hidden = asked.reasons.get("is_blind", False) and not shows_history
        history: Sequence[LabelAnswer] = []
        if shows_history:
            history = self.queue.ledger.history(asked.row)
        return self.page(
            "sample",
            annotator,
            status,
            asked=asked,
            own=own,
            last_answer=last_answer,
            decided=decision(asked),
            seen=encode_answer(own),
            before=before,
            after=after,
            typed=typed,
            is_open=asked.state not in ENDED,
            state=translate(texts.STATES[asked.state]),
            no_labels=self.queue.plan.no_labels,
            entry=self._describe_entry,
            reasons=texts.list_reasons(
                self.queue.schema,
                asked.reasons,
                position=asked.position,
                of=asked.of,
                is_hidden=is_hidden,
            ),
            is_hidden=is_hidden,
            history=history,
            similar=self._similar(asked.row),
            **self._keys(),
            **self._list_labels([own.value if own else None]),
            likeliest=self._likeliest(asked),
            **self._guess(asked.row, is_shown=shows_guess, is_hidden=is_hidden),
            **self._row(asked.row),
            **self._undo(annotator),
            **more,
        )

    def all_done(self, annotator: str, **more: object) -> HTMLResponse:
        """Render the page for an annotator without open tasks."""
        others = self.queue.ledger.count("open")
        return self.page(
            "done",
            annotator,
            others=others,
            may_decide=self.queue.may_decide(annotator),
            **self._undo(annotator),
            **more,
        )

    def data(self, annotator: str) -> HTMLResponse:
        """Render how the site's files were read."""
        facts = self.queue.data
        summary = ""
        if facts is not None:
            summary = summarize_data(facts)
        return self.page("data", annotator, facts=facts, data_summary=summary)

    def conflict_list(
        self, annotator: str, status: int = 200, **more: object
    ) -> HTMLResponse:
        """Render the open conflicts with the labels of each annotator."""
        conflicts: list[Context] = []
        for asked in self.queue.ledger.tasks(state="conflict"):
            details: Context = {"asked": asked, "seen": encode_answers(asked)}
            details |= self._distinct_answers(asked)
            values = [answer.value for answer in asked.answers]
            details |= self._list_labels(values, has_keys=False)
            conflicts.append(details | self._row(asked.row))
        may_decide = self.queue.may_decide(annotator)
        agreement = ""
        if may_decide:
            agreement = texts.describe_agreement(self.queue.ledger.measure_agreement())
        return self.page(
            "conflicts",
            annotator,
            status,
            open_conflicts=conflicts,
            no_labels=self.queue.plan.no_labels,
            may_decide=may_decide,
            agreement=agreement,
            **more,
        )

    def sheet(
        self,
        annotator: str,
        predicted: int | None,
        status: int = 200,
        saved: int | None = None,
        **more: object,
    ) -> HTMLResponse:
        """Render examples with the same prediction, which the annotator confirms at once.

        ``predicted`` is the class, by default that with the most examples. ``saved`` is the number
        of labels that the last sheet saved.
        """
        counts = self.queue.count_sheets(annotator)
        names = self.queue.schema.classes
        notice = None
        if saved is not None and predicted is not None and predicted < len(names):
            sentence = texts.describe_confirmed(saved, names[predicted])
            notice = Notice(sentence, is_quiet=False)
        if predicted not in counts:
            predicted = next(iter(counts), None)
        examples: list[Context] = []
        if predicted is not None:
            for asked in self.queue.list_sheet(annotator, predicted):
                examples.append({"asked": asked, **self._row(asked.row)})
        return self.page(
            "sheet",
            annotator,
            status,
            examples=examples,
            predicted=predicted,
            classes=[(value, names[value], n) for value, n in counts.items()],
            notice=notice,
            **more,
        )

    def check_list(self, annotator: str) -> HTMLResponse:
        """Render the suspicious labels that the annotator may check."""
        return self.page("suspicious", annotator)

    def own_labels(self, annotator: str, number: int, **more: object) -> HTMLResponse:
        """Render a page of the annotator's labels, newest first. Page numbers start at 1."""
        answered = self.queue.list_answered(annotator)
        n_pages = max(1, math.ceil(len(answered) / A_PAGE))
        number = min(number, n_pages)
        first = (number - 1) * A_PAGE
        return self.page(
            "mine",
            annotator,
            answered=answered[first : first + A_PAGE],
            total=len(answered),
            number=number,
            pages=n_pages,
            states={state: translate(text) for state, text in texts.STATES.items()},
            decision=decision,
            **more,
        )

    def withdrawal(
        self, row: int, annotator: str, status: int = 200, **more: object
    ) -> HTMLResponse:
        """Render the form for withdrawing an example."""
        context: Context = {"why": "", "row": row}
        context |= self._row(row)
        context |= more
        return self.page("withdraw", annotator, status, **context)

    def plain(self, status: int, why: str, *, is_english: bool = False) -> HTMLResponse:
        """Render a message without navigation, for rejected requests and an unreadable ledger.

        ``is_english``: the message is English in every language.
        """
        template = templates().get_template("plain.html")
        return HTMLResponse(template.render(why=why, is_english=is_english), status)

    def live(self, annotator: str, row: int | None) -> Context:
        """Return the state that an open page polls."""
        counts = self.counts()
        progress = counts["progress"]
        asked = None
        if row is not None:
            asked = self.queue.task(row)
        own = None
        state = None
        if asked is not None:
            own = find_own_answer(asked, annotator)
            state = asked.state
        return {
            "summary": counts["summary"],
            "done": progress["answered"] + progress["declined"],
            "asked": progress["asked"],
            "waiting": self.queue.ledger.waiting.count(annotator),
            "state": state,
            "seen": encode_answer(own),
        }

    # -- parts of pages ---------------------------------------------------------------------

    def _similar(self, row: int) -> list[Context]:
        """Return the nearest labeled rows in readable form."""
        result: list[Context] = []
        for other, value in self.queue.list_similar(row):
            shown = self._row(other)
            if shown["is_stack"]:
                middle = (len(shown["pictures"]) - 1) // 2
                shown["pictures"] = shown["pictures"][middle : middle + 1]
            result.append({"row": other, "label": self.queue.label(value), **shown})
        return result

    def _guess(self, row: int, *, is_shown: bool, is_hidden: bool) -> Context:
        """Return the prediction of the site's latest model if it is requested.

        ``is_hidden``: the annotator labels this example without predictions.
        """
        space = None if is_hidden else self.queue.space
        guess = None
        if space is not None and is_shown:
            guess = space.guess(row)
        sentence = None
        if guess is not None:
            sentence = texts.describe_guess(self.queue.schema, "global", *guess)
        return {"can_guess": space is not None and space.has_model, "guess": sentence}

    def _row(self, row: int) -> ReadableExample:
        """Return a row in readable form: images with their sizes, or table cells."""
        pictures: list[tuple[int, int, int]] = []
        for number, (width, height) in enumerate(sizes(self.queue.rows, row)):
            pictures.append((width, height, number))
        return {
            "pictures": pictures,
            "is_small": all(max(in_pixels[:2]) <= SMALL for in_pixels in pictures),
            "is_stack": self.queue.rows.each is not None and len(pictures) > 1,
            "cells": () if pictures else self.queue.describe_row(row),
        }

    def _distinct_answers(self, asked: LabelingTask) -> Context:
        """Return the distinct answers to a task, in words and as the field of a form."""
        pairs = dict.fromkeys((answer.value, answer.reason) for answer in asked.answers)
        choices: list[dict[str, str]] = []
        for value, reason in pairs:
            words = self.queue.label(value, reason)
            choice = {"words": words, "name": WITHOUT, "value": reason or YES}
            if value is not None:
                choice |= {"name": "value", "value": write_number(value)}
            choices.append(choice)
        return {"choices": choices}

    def _keys(self) -> Context:
        """Return the number, name and keyboard key of each class."""
        names = self.queue.schema.classes
        is_guided = self.queue.plan.guided_share > 0
        hot_keys = texts.hot_keys(names, is_guided=is_guided)
        keys = zip(range(len(names)), names, hot_keys, strict=True)
        return {"keys": list(keys)}

    def _list_labels(
        self, values: Sequence[float | None], *, has_keys: bool = True
    ) -> Context:
        """Return the number, name, key and agreed digit of each of several labels.

        The digit is 0 without answers, and None if ``values`` differ.
        """
        names = self.queue.schema.labels
        known = [value for value in values if value is not None]
        digits = find_digits(known or [0.0], len(names))
        keys = texts.hot_keys(names) if has_keys else [""] * len(names)
        return {
            "labels": list(zip(range(len(names)), names, keys, digits, strict=True)),
            "digits": texts.name_digits(),
        }

    def _likeliest(self, asked: LabelingTask) -> list[Context]:
        """Return the likeliest classes that the page shows before a label, with their keys.

        The key is the rank, or that of the class if classes have digits as keys.
        """
        names = self.queue.schema.classes
        hot_keys = texts.hot_keys(names, is_guided=True)
        ranks = [str(rank) for rank in range(1, len(names) + 1)]
        likeliest: list[Context] = []
        pairs = asked.reasons.get("likeliest", [])
        for (value, probability), rank in zip(pairs, ranks, strict=False):
            likeliest.append(
                {
                    "value": value,
                    "name": names[value],
                    "key": hot_keys[value] if "1" in hot_keys else rank,
                    "percent": f"{100 * probability:.0f}",
                }
            )
        return likeliest

    def _describe_entry(self, answer: LabelAnswer) -> str:
        """Describe one line of the history of an example."""
        label = self.queue.label(answer.value, answer.reason)
        if answer.kind not in texts.ENTRIES:
            return label
        return translate(texts.ENTRIES[answer.kind], label=label)

    def _undo(self, annotator: str) -> Context:
        """Return the context of the undo button, or nothing if there is no label to undo."""
        undoable = self.queue.undoable(annotator)
        if undoable is None:
            return {"undo": None}
        asked, answer = undoable
        label = self.queue.label(answer.value, answer.reason)
        n_answers = len(self.queue.ledger.history(asked.row))
        return {"undo": {"row": asked.row, "label": label, "n_answers": n_answers}}

    def describe_outcome(self, query: Mapping[str, str], annotator: str) -> Notice | None:
        """Return the message about the last action, from the address of the redirect."""
        outcome = query.get("outcome", "")
        row = whole_number(query.get("row", ""))
        ids = self.queue.rows.ids
        if outcome not in NOTICES or row is None or row >= len(ids):
            return None
        label = ""
        for answer in self.queue.ledger.history(row):
            if answer.annotator == annotator:
                # the last label counts
                label = self.queue.label(answer.value, answer.reason)
        sentence = translate(NOTICES[outcome], id=ids[row], label=label)
        return Notice(sentence, is_quiet=outcome in QUIET)


def onward(path: str, outcome: str, row: int) -> RedirectResponse:
    """Redirect to a page that reports the action. Reloading that page changes nothing."""
    joint = "?"
    if "?" in path:
        joint = "&"
    address = f"{path}{joint}outcome={quote(outcome)}&row={row}"
    return RedirectResponse(address, status_code=303)
