"""Labeling tasks of the annotators, their labels, and rules for stale or repeated forms.

The ledger enforces all rules about labels. This module protects against forms that were sent twice
or from an outdated page: they must not duplicate a label or replace a label that the sender did not
see.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import final

from fallow.data.facts import DataFacts
from fallow.deployment.answer_plan import SINGLE, AnswerPlan
from fallow.deployment.labeling_page.languages import Mistake, translate
from fallow.deployment.labeling_page.texts import label_of
from fallow.deployment.ledger import Ledger
from fallow.deployment.ledger.labeling_tasks import LabelAnswer, LabelingTask
from fallow.deployment.schema import Schema
from fallow.deployment.site.feature_space import FeatureSpace
from fallow.deployment.site.rows import ReadableRow, SiteRows

ENDED = ("expired", "withdrawn")
"""States in which a labeling task cannot be labeled."""
NOTHING = ""
"""Form value for a missing label."""
N_SIMILAR = 3
"""Number of nearest labeled examples that are shown."""
A_SHEET = 24
"""Largest number of examples whose predictions are confirmed at once."""
NO_LABEL = "x"
"""Form value before the code of an answer that is no label. All other values are numbers."""


@final
class Outdated(Mistake):
    """Form that no longer matches the ledger. The message states that nothing was changed.

    ``row`` is the example to show if it differs from that of the form.
    """

    def __init__(self, text: str, row: int | None = None, **values: object) -> None:
        super().__init__(text, **values)
        self.row = row


@final
@dataclass(frozen=True, eq=False)
class LabelQueue:
    """Labeling tasks of one site.

    ``study`` and ``site`` are names. ``rows`` are all examples of the site. ``guideline`` is the
    labeling guideline of the study, or None. ``space`` finds similar examples and predictions if
    the study has an encoder. ``describe_data`` reports how the site's files were read and is called
    once, on first use. ``adjudicators`` decide conflicts (default: every annotator).
    ``language`` replaces the preference of the browsers. ``plan`` is the agreed plan of annotations.
    """

    study: str
    site: str
    schema: Schema
    rows: SiteRows
    ledger: Ledger
    guideline: str | None = None
    space: FeatureSpace | None = None
    describe_data: Callable[[], DataFacts] | None = None
    adjudicators: tuple[str, ...] = ()
    language: str | None = None
    plan: AnswerPlan = SINGLE

    @cached_property
    def data(self) -> DataFacts | None:
        """Return how the site's files were read, or None if it is unknown."""
        if self.describe_data is None:
            return None
        return self.describe_data()

    # -- labeling tasks ---------------------------------------------------------------------

    def task(self, row: int) -> LabelingTask | None:
        """Return the newest labeling task of a row, or None if there was none."""
        return self.ledger.load_task(self.ledger.waiting.find_of_row(row))

    def list_checks(self, annotator: str) -> list[LabelingTask]:
        """Return the suspicious labels that an annotator may check, the most suspicious first."""
        return self.ledger.load_tasks(self.ledger.waiting.list_checks(annotator))

    def around(
        self, row: int | None, annotator: str
    ) -> tuple[LabelingTask | None, LabelingTask | None]:
        """Return the previous and the next task of an annotator, cyclically, or None."""
        before, after = self.ledger.waiting.find_neighbors(row, annotator)
        return self.ledger.load_task(before), self.ledger.load_task(after)

    def next_task(self, row: int | None, annotator: str) -> LabelingTask | None:
        """Return the task that an annotator labels after ``row``, or None.

        Tasks that the annotator skipped come last, in the order of skipping, and before them those
        that are similar to examples which no class fits.
        """
        later = self._find_similar_to_none(annotator)
        return self.ledger.load_task(self.ledger.waiting.find_next(row, annotator, later))

    def _find_similar_to_none(self, annotator: str) -> list[int]:
        """Return the waiting rows most of whose nearest answered rows no class fits."""
        none = self.ledger.requests.find_none_of_these()
        if self.space is None or not none:
            return []
        rows = self.ledger.waiting.list_fresh_rows(annotator)
        labeled = set(self._settled_labels())
        return self.space.find_mostly_near(rows, none, labeled - none, N_SIMILAR)

    def count_sheets(self, annotator: str) -> dict[int, int]:
        """Return the number of examples by predicted class that an annotator may confirm."""
        return self.ledger.waiting.count_guided(annotator)

    def list_sheet(self, annotator: str, predicted: int) -> list[LabelingTask]:
        """Return the examples of a predicted class to confirm on a page, the most certain first."""
        tasks = self.ledger.waiting.list_guided(annotator, predicted, A_SHEET)
        loaded = self.ledger.load_tasks(tasks)
        return sorted(loaded, key=lambda asked: -asked.reasons["probability"])

    def list_answered(self, annotator: str) -> list[tuple[LabelingTask, LabelAnswer]]:
        """Return the labels of an annotator, newest first, including overruled ones.

        Labels with an open check are left out, so that the new ones do not depend on them.
        """
        answered: list[tuple[LabelingTask, LabelAnswer]] = []
        hidden = self.ledger.find_rows_in_check()
        for asked in self.ledger.tasks(annotator=annotator):
            if asked.row in hidden:
                continue
            last_answer = self.find_own_last_answer(asked, annotator)
            if last_answer is not None:
                answered.append((asked, last_answer))
        return sorted(answered, key=lambda pair: pair[1].at, reverse=True)

    def find_own_last_answer(
        self, asked: LabelingTask, annotator: str
    ) -> LabelAnswer | None:
        """Return the last label of an annotator, even if a decision has overruled it."""
        own = find_own_answer(asked, annotator)
        if own is None and decision(asked):
            return find_last_answer(self.ledger.history(asked.row, asked.cycle), annotator)
        return own

    def describe_row(self, row: int) -> ReadableRow:
        """Return a row in readable form."""
        return self.rows.describe(row)

    def label(self, value: float | None, reason: str = "") -> str:
        """Return a label in words, or the reason for a missing one."""
        return label_of(self.schema, value, reason)

    def find_annotator(self, annotator: str) -> str:
        """Return an annotator's name as it was written before, if only the case differs."""
        known = [*self.adjudicators, *self.ledger.list_annotators()]
        if annotator in known:
            return annotator
        same = (name for name in known if name.casefold() == annotator.casefold())
        return next(same, annotator)

    # -- predictions and similar examples ---------------------------------------------------

    def list_similar(self, row: int) -> list[tuple[int, float]]:
        """Return the nearest labeled rows of a row and their labels, nearest first."""
        if self.space is None:
            return []
        labels = self._settled_labels()
        nearest = self.space.find_nearest(row, list(labels), N_SIMILAR)
        return [(other, labels[other]) for other in nearest]

    def _settled_labels(self) -> dict[int, float]:
        """Return the labels of rows that are settled.

        Rows with an open task or a conflict are left out so that their labels influence no annotator.
        Withdrawn rows are left out as well.
        """
        entered = self.ledger.store.load_labels(self.site)
        labels = {label.row: label.value for label in entered}
        for asked in self.ledger.tasks(state="answered"):  # the newest task comes last
            if asked.value is not None:
                labels[asked.row] = asked.value
        for row in self.ledger.find_unsettled_rows():
            labels.pop(row, None)
        for row in self.ledger.requests.find_left_rows():
            labels.pop(row, None)
        return labels

    # -- actions of annotators --------------------------------------------------------------

    def answer(
        self, row: int, value: float | None, annotator: str, seen: str, reason: str = ""
    ) -> str:
        """Save a label. ``seen`` is the annotator's own label as the page showed it.

        ``reason`` is the code of an answer that is no label.

        Returns "saved", "changed", "conflict", "differs" for a conflict with the earlier label of a
        check, or "same" if the label was already there. Raises
        Outdated if the annotator has labeled the row since the page was loaded, and ValueError as
        the ledger does.
        """
        with self.ledger.transaction():
            asked = self.task(row)
            own = None
            if asked is not None:
                own = find_own_answer(asked, annotator)
            if asked is not None:
                require_active(asked)
            is_other = own is not None and (own.value, own.reason) != (value, reason)
            if own is not None and is_other and encode_answer(own) != seen:
                raise Outdated(
                    "You have labeled this example '%(own)s' since this page was loaded, and "
                    "'%(label)s' was not saved. To change your label, choose again below.",
                    own=self.label(own.value, own.reason),
                    label=self.label(value, reason),
                )
            now = self.ledger.answer(row, value, annotator, reason=reason)
        if own is not None and not is_other:
            return "same"
        if now.state == "conflict":
            return "differs" if now.is_check else "conflict"
        if own is None:
            return "saved"
        return "changed"

    def confirm(
        self, value: int, right: Sequence[int], wrong: Sequence[int], annotator: str
    ) -> int:
        """Save a predicted class as the label of several rows, and return their number.

        Rows with a ``wrong`` prediction are labeled one by one. Rows that were labeled since the
        page was loaded do not change. Raises Outdated if none of the rows is open any more.
        """
        with self.ledger.transaction():
            is_open = any(
                self.ledger.waiting.has_row(row, annotator) for row in (*right, *wrong)
            )
            if not is_open:
                raise Outdated("These examples are no longer open. Nothing was changed.")
            return len(self.ledger.confirm(value, right, wrong, annotator))

    def skip(self, row: int, annotator: str) -> None:
        """Postpone a task of an annotator. Raises Outdated if it is not open for them."""
        with self.ledger.transaction():
            if not self.ledger.waiting.has_row(row, annotator):
                raise Outdated("This example is no longer open. Nothing was skipped.")
            self.ledger.skip(row, annotator)

    def take_back(self, row: int, annotator: str, answer: str) -> LabelingTask:
        """Undo the annotator's latest label, which the page showed for ``row``.

        ``answer`` is the length of the row's history on the page, so that a second click has no
        effect.
        """
        with self.ledger.transaction():
            if str(len(self.ledger.history(row))) != answer:
                raise Outdated(
                    "The labels of this example have changed. Nothing was undone."
                )
            undone = self.ledger.take_back(annotator)
            if undone is None:
                raise Outdated(
                    "There is nothing to undo: your labels are already used in "
                    "training. You can correct a label under My labels. The "
                    "correction counts from the next cycle."
                )
            if undone.row != row:
                raise Outdated(
                    "Your latest label is that of example '%(id)s'; nothing was undone yet. "
                    "You can undo it here.",
                    undone.row,
                    id=self.rows.ids[undone.row],
                )
        return undone

    def may_decide(self, annotator: str) -> bool:
        """Return whether an annotator decides conflicts and sees the names of other annotators."""
        return not self.adjudicators or annotator in self.adjudicators

    def name_author(self, answer: LabelAnswer, annotator: str) -> str:
        """Return the author of a label as an annotator sees it."""
        if answer.kind == "earlier":
            return translate("Earlier label")
        if answer.annotator == annotator or self.may_decide(annotator):
            return answer.annotator
        return translate("Another annotator")

    def resolve(
        self,
        row: int,
        value: float | None,
        annotator: str,
        seen: str,
        reason: str = "",
    ) -> LabelingTask:
        """Resolve a conflict. ``seen`` are the labels that the page showed."""
        if not self.may_decide(annotator):
            raise Outdated(
                "Conflicts are decided by %(names)s. Nothing was changed.",
                names=", ".join(self.adjudicators),
            )
        with self.ledger.transaction():
            asked = self.task(row)
            if asked is None or asked.state != "conflict":
                raise Outdated("This conflict is already resolved. Nothing was changed.")
            if encode_answers(asked) != seen:
                raise Outdated(
                    "Another annotator has labeled this example. Nothing was changed. Check "
                    "again."
                )
            return self.ledger.resolve(row, value, annotator, reason)

    def undoable(self, annotator: str) -> tuple[LabelingTask, LabelAnswer] | None:
        """Return the latest label of an annotator that can be undone."""
        asked = self.ledger.undoable(annotator)
        if asked is None:
            return None
        own_answer = find_own_answer(asked, annotator)
        if own_answer is None:
            return None
        return asked, own_answer


def find_own_answer(asked: LabelingTask, annotator: str) -> LabelAnswer | None:
    """Return the current label of one annotator."""
    for answer in asked.answers:
        if answer.annotator == annotator:
            return answer
    return None


def require_active(asked: LabelingTask) -> None:
    """Raise Outdated for a labeling task that accepts no more labels."""
    if asked.state == "withdrawn":
        raise Outdated(
            "This example was withdrawn and accepts no more labels: nothing was changed."
        )
    if asked.state == "expired":
        raise Outdated(
            "This labeling task expired at the end of cycle %(cycle)s: nothing was changed. The "
            "example may be selected again in a later cycle.",
            cycle=asked.cycle,
        )


def decision(asked: LabelingTask) -> LabelAnswer | None:
    """Return the decision of a conflict and who made it, or None."""
    for answer in asked.answers:
        if answer.kind == "resolved":
            return answer
    return None


def find_last_answer(history: Sequence[LabelAnswer], annotator: str) -> LabelAnswer | None:
    """Return the last label of an annotator in a history that was not undone."""
    last_answer: list[LabelAnswer] = []
    for value in history:
        if value.annotator != annotator:
            continue
        # an undo applies to the last label that was not undone
        if value.kind == "taken back":
            last_answer.pop()
        else:
            last_answer.append(value)
    if not last_answer:
        return None
    return last_answer[-1]


def encode_answer(answer: LabelAnswer | None) -> str:
    """Encode a label for a form."""
    if answer is None:
        return NOTHING
    if answer.value is None:
        return f"{NO_LABEL}{answer.reason}"
    return repr(answer.value)


def encode_answers(asked: LabelingTask) -> str:
    """Encode the labels of a task, so that a form can detect changes."""
    output = [f"{answer.annotator}={encode_answer(answer)}" for answer in asked.answers]
    return "; ".join(output)
