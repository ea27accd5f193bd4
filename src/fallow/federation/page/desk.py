"""What lies before the people who label: samples, questions, and what was said about them.

Every rule about labels is the ledger's.  What is here decides what a person means: a form that was
sent twice, or from a page that is older than the ledger, must neither double a label nor replace
one that its sender did not see.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from fallow.federation.ledger import Ledger
from fallow.federation.ledger.questions import LabelAnswer, Question
from fallow.federation.page.words import label_of
from fallow.federation.schema import Schema
from fallow.federation.site.rows import Shown, SiteRows

ENDED = ("expired", "withdrawn")
NOTHING, CANNOT_TELL = "", "x"  # in forms; everything else is a number


@final
class Outdated(Exception):
    """A form that does not fit the ledger any more; the sentence says what was done: nothing.

    ``row``: the sample to show, where it is another than the form's.
    """

    def __init__(self, sentence: str, row: int | None = None) -> None:
        super().__init__(sentence)
        self.row = row


@final
@dataclass(frozen=True, eq=False)
class LabelQueue:
    """``study`` and ``site`` are names; ``rows`` are all rows of the site."""

    study: str
    site: str
    schema: Schema
    rows: SiteRows
    ledger: Ledger

    # -- questions --------------------------------------------------------------------------

    def question(self, row: int) -> Question | None:
        """The newest question about a row; None: it was never asked."""
        found = [asked for asked in self.ledger.questions() if asked.row == row]
        return found[-1] if found else None

    def waiting(self, who: str) -> list[Question]:
        """What this person has still to answer, as it was chosen."""
        return [
            asked for asked in self.ledger.questions(state="open") if not mine(asked, who)
        ]

    def around(self, row: int | None, who: str) -> tuple[Question | None, Question | None]:
        """What comes before and after a row for this person, in a circle; None: nothing else."""
        order = [asked.row for asked in self.ledger.questions()]
        here = order.index(row) if row in order else -1
        others = {asked.row: asked for asked in self.waiting(who) if asked.row != row}
        if not others:
            return None, None
        circle = [r for r in [*order[here + 1 :], *order[: max(here, 0)]] if r in others]
        return others[circle[-1]], others[circle[0]]

    def answered(self, who: str) -> list[tuple[Question, LabelAnswer]]:
        """What this person has answered, newest first, also where it was decided otherwise."""
        found = [
            (q, given) for q in self.ledger.questions() if (given := self.said(q, who))
        ]
        return sorted(found, key=lambda pair: pair[1].at, reverse=True)

    def said(self, asked: Question, who: str) -> LabelAnswer | None:
        """What one person has said last, whether or not it counts since a conflict was decided."""
        found = mine(asked, who)
        if found is None and decision(asked):
            return last_said(self.ledger.history(asked.row, asked.cycle), who)
        return found

    def shown(self, row: int) -> Shown:
        return self.rows.shown(row)

    def label(self, value: float | None) -> str:
        return label_of(self.schema, value)

    # -- what people do ---------------------------------------------------------------------

    def answer(self, row: int, value: float | None, who: str, seen: str) -> str:
        """Keep an answer; ``seen``: what the page showed as this person's answer so far.

        Returns what became of it: "saved", "changed", "conflict", or "same" where it was there
        already.  Raises Outdated where this person has said something else since the page was made,
        and ValueError as the ledger does.
        """
        with self.ledger.transaction():
            asked = self.question(row)
            own = mine(asked, who) if asked else None
            if own and own.value != value and sent(own) != seen:
                raise Outdated(
                    f"You have answered {self.label(own.value)!r} for this sample since this page "
                    f"was made, and {self.label(value)!r} was not saved. To change your answer, "
                    "choose again below."
                )
            now = self.ledger.answer(row, value, who)
        if own and own.value == value:
            return "same"
        return "conflict" if now.state == "conflict" else "changed" if own else "saved"

    def take_back(self, row: int, who: str, said: str) -> Question:
        """Undo this person's latest answer, which the page said was about ``row``.

        said: how many lines the history of that row had; a second click finds one more.
        """
        if str(len(self.ledger.history(row))) != said:
            raise Outdated(
                "Something was said about this sample meanwhile; nothing was undone."
            )
        with self.ledger.transaction():
            undone = self.ledger.take_back(who)
            if undone is None:
                raise Outdated(
                    "There is nothing to undo: your labels are in training already. Correct one in "
                    "the list of your labels; it is used from the next cycle on."
                )
            if undone.row != row:
                raise Outdated(
                    f"Your latest answer is the one for sample {self.rows.ids[undone.row]!r}; "
                    "nothing was undone yet. Undo it here if you want to.",
                    undone.row,
                )
        return undone

    def resolve(self, row: int, value: float | None, who: str, seen: str) -> Question:
        """Decide a conflict; ``seen``: what people had said when the page was made."""
        with self.ledger.transaction():
            asked = self.question(row)
            if asked is None or asked.state != "conflict":
                raise Outdated("This conflict is settled already; nothing was changed.")
            if spoken(asked) != seen:
                raise Outdated(
                    "Somebody has answered meanwhile; nothing was changed. Look again."
                )
            return self.ledger.resolve(row, value, who)

    def undoable(self, who: str) -> tuple[Question, LabelAnswer] | None:
        """The latest answer of this person that can be undone."""
        asked = self.ledger.undoable(who)
        given = mine(asked, who) if asked else None
        return (asked, given) if asked and given else None


def mine(asked: Question, who: str) -> LabelAnswer | None:
    """The current answer of one person."""
    return next((given for given in asked.answers if given.who == who), None)


def decision(asked: Question) -> LabelAnswer | None:
    """How a conflict was decided, and by whom; None where none was."""
    return next((given for given in asked.answers if given.kind == "resolved"), None)


def last_said(history: Sequence[LabelAnswer], who: str) -> LabelAnswer | None:
    """The last answer of one person that was not taken back, of the history of a question."""
    said: list[LabelAnswer] = []
    for given in history:
        if given.who == who and given.kind == "taken back":
            said.pop()
        elif given.who == who:
            said.append(given)
    return said[-1] if said else None


def sent(given: LabelAnswer | None) -> str:
    """An answer as forms carry it."""
    if given is None:
        return NOTHING
    return CANNOT_TELL if given.value is None else repr(given.value)


def spoken(asked: Question) -> str:
    """What people have said, so that a form can tell whether it has changed."""
    return "; ".join(f"{given.who}={sent(given)}" for given in asked.answers)
