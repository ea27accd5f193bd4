"""What lies before the people who label: samples, questions, and what was said about them.

Every rule about labels is the ledger's.  What is here decides what a person means: a form that was
sent twice, or from a page that is older than the ledger, must neither double a label nor replace
one that its sender did not see.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import final

from fallow.data.facts import DataFacts
from fallow.federation.ledger import Ledger
from fallow.federation.ledger.questions import LabelAnswer, Question
from fallow.federation.page.words import label_of
from fallow.federation.schema import Schema
from fallow.federation.site.feature_space import FeatureSpace
from fallow.federation.site.rows import ReadableRow, SiteRows

ENDED = ("expired", "withdrawn")
"""States in which a question takes no answer any more."""
NOTHING = ""
"""How a form says that there is no answer."""
N_SIMILAR = 3
"""Labeled rows that are shown beside one that is like them."""
CANNOT_TELL = "x"
"""How a form says that somebody cannot tell; every other answer is a number."""


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
    """``study`` and ``site`` are names; ``rows`` are all rows of the site; ``guideline``: how people
    are to label, as the study says, None where it does not.  ``space``: where the study has an
    encoder, what tells which rows are alike and what the model guesses.  ``describe_data``: how the
    site's files were read; called once, when somebody first wants to see it."""

    study: str
    site: str
    schema: Schema
    rows: SiteRows
    ledger: Ledger
    guideline: str | None = None
    space: FeatureSpace | None = None
    describe_data: Callable[[], DataFacts] | None = None

    @cached_property
    def data(self) -> DataFacts | None:
        """How the site's files were read, for its people alone; None where nobody says."""
        if self.describe_data is None:
            return None
        return self.describe_data()

    # -- questions --------------------------------------------------------------------------

    def question(self, row: int) -> Question | None:
        """The newest question about a row; None: it was never asked."""
        newest = None
        for asked in self.ledger.questions():
            if asked.row == row:
                newest = asked
        return newest

    def waiting(self, who: str) -> list[Question]:
        """What this person has still to answer, as it was chosen."""
        waiting: list[Question] = []
        for asked in self.ledger.questions(state="open"):
            if find_own_answer(asked, who) is None:
                waiting.append(asked)
        return waiting

    def around(self, row: int | None, who: str) -> tuple[Question | None, Question | None]:
        """What comes before and after a row for this person, in a circle; None: nothing else."""
        rows = [asked.row for asked in self.ledger.questions()]  # as they were chosen
        here = -1  # before all others
        if row is not None and row in rows:
            here = rows.index(row)
        waiting = {asked.row: asked for asked in self.waiting(who)}
        if row is not None:
            waiting.pop(row, None)
        if not waiting:
            return None, None
        circle = rows[here + 1 :] + rows[: max(here, 0)]
        others = [other for other in circle if other in waiting]
        return waiting[others[-1]], waiting[others[0]]

    def list_answered(self, who: str) -> list[tuple[Question, LabelAnswer]]:
        """What this person has answered, newest first, also where it was decided otherwise."""
        answered: list[tuple[Question, LabelAnswer]] = []
        for asked in self.ledger.questions():
            last_said = self.find_last_said(asked, who)
            if last_said is not None:
                answered.append((asked, last_said))
        return sorted(answered, key=lambda pair: pair[1].at, reverse=True)

    def find_last_said(self, asked: Question, who: str) -> LabelAnswer | None:
        """What one person has said last, whether or not it counts since a conflict was decided."""
        own = find_own_answer(asked, who)
        if own is None and decision(asked):
            return find_last_answer(self.ledger.history(asked.row, asked.cycle), who)
        return own

    def describe_row(self, row: int) -> ReadableRow:
        """A row as a person reads it."""
        return self.rows.describe(row)

    def label(self, value: float | None) -> str:
        """A label in words."""
        return label_of(self.schema, value)

    # -- what the model knows ---------------------------------------------------------------

    def list_similar(self, row: int) -> list[tuple[int, float]]:
        """The labeled rows that are most like a row, the nearest first, each with its label."""
        if self.space is None:
            return []
        labels = self._settled_labels()
        nearest = self.space.find_nearest(row, list(labels), N_SIMILAR)
        return [(other, labels[other]) for other in nearest]

    def _settled_labels(self) -> dict[int, float]:
        """The label of every row of which people are not to think anew: none is shown for a row that
        still waits for somebody, on which people disagree, or that has left."""
        entered = self.ledger.store.load_labels(self.site)
        labels = {label.row: label.value for label in entered}
        for asked in self.ledger.questions():  # the newest question about a row comes last
            if asked.state == "answered" and asked.value is not None:
                labels[asked.row] = asked.value
            elif asked.state in ("open", "conflict"):
                labels.pop(asked.row, None)
        for row in self.ledger.purchases.find_left_rows():
            labels.pop(row, None)
        return labels

    # -- what people do ---------------------------------------------------------------------

    def answer(self, row: int, value: float | None, who: str, seen: str) -> str:
        """Keep an answer; ``seen``: what the page showed as this person's answer so far.

        Returns what became of it: "saved", "changed", "conflict", or "same" where it was there
        already.  Raises Outdated where this person has said something else since the page was made,
        and ValueError as the ledger does.
        """
        with self.ledger.transaction():
            asked = self.question(row)
            own = None
            if asked is not None:
                own = find_own_answer(asked, who)
            is_other = own is not None and own.value != value
            if own is not None and is_other and encode_answer(own) != seen:
                raise Outdated(
                    f"You have answered {self.label(own.value)!r} for this sample since this page "
                    f"was made, and {self.label(value)!r} was not saved. To change your answer, "
                    "choose again below."
                )
            now = self.ledger.answer(row, value, who)
        if own is not None and not is_other:
            return "same"
        if now.state == "conflict":
            return "conflict"
        if own is None:
            return "saved"
        return "changed"

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
            if encode_answers(asked) != seen:
                raise Outdated(
                    "Somebody has answered meanwhile; nothing was changed. Look again."
                )
            return self.ledger.resolve(row, value, who)

    def undoable(self, who: str) -> tuple[Question, LabelAnswer] | None:
        """The latest answer of this person that can be undone."""
        asked = self.ledger.undoable(who)
        if asked is None:
            return None
        own_answer = find_own_answer(asked, who)
        if own_answer is None:
            return None
        return asked, own_answer


def find_own_answer(asked: Question, who: str) -> LabelAnswer | None:
    """The current answer of one person."""
    for answer in asked.answers:
        if answer.who == who:
            return answer
    return None


def decision(asked: Question) -> LabelAnswer | None:
    """How a conflict was decided, and by whom; None where none was."""
    for answer in asked.answers:
        if answer.kind == "resolved":
            return answer
    return None


def find_last_answer(history: Sequence[LabelAnswer], who: str) -> LabelAnswer | None:
    """The last answer of one person that was not taken back, of the history of a question."""
    last_answer: list[LabelAnswer] = []
    for value in history:
        if value.who != who:
            continue
        if value.kind == "taken back":  # always the last one that was not
            last_answer.pop()
        else:
            last_answer.append(value)
    if not last_answer:
        return None
    return last_answer[-1]


def encode_answer(given: LabelAnswer | None) -> str:
    """An answer as forms carry it."""
    if given is None:
        return NOTHING
    if given.value is None:
        return CANNOT_TELL
    return repr(given.value)


def encode_answers(asked: Question) -> str:
    """What people have said, so that a form can tell whether it has changed."""
    output = [f"{answer.who}={encode_answer(answer)}" for answer in asked.answers]
    return "; ".join(output)
