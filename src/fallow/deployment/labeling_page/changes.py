"""POST routes of the labeling page. Each redirects to a page that is safe to reload."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Request
from fastapi.responses import RedirectResponse, Response

from fallow.deployment.labeling_page.addresses import (
    Annotator,
    Page,
    person,
    remember,
    views_of,
)
from fallow.deployment.labeling_page.forms import (
    code_of,
    field,
    form,
    name_of,
    reason_of,
    row_of,
    rows_of,
    value_of,
)
from fallow.deployment.labeling_page.label_queue import Outdated
from fallow.deployment.labeling_page.languages import Mistake
from fallow.deployment.labeling_page.views import onward

router = APIRouter()
Form = Annotated[dict[str, str], Depends(form)]


def row_in(request: Request, form: Form) -> int:
    """Return the row number in a form."""
    return row_of(field(form, "row"), len(views_of(request).queue.rows.ids))


Row = Annotated[int, Depends(row_in)]


@router.post("/name")
def rename(request: Request, form: Form, views: Page) -> Response:
    """Change the annotator's name."""
    try:
        chosen = name_of(field(form, "name"))
    except ValueError as error:
        typed = form.get("name", "")
        return views.page("name", person(request), 400, alert=str(error), typed=typed)
    response = RedirectResponse("/", status_code=303)
    remember(response, chosen)
    return response


@router.post("/answer")
def answer(annotator: Annotator, form: Form, views: Page, row: Row) -> Response:
    """Save a label, or an answer that is no label."""
    asked = views.queue.task(row)
    if asked is None:
        raise Mistake("This example was not selected for labeling. Nothing was saved.")
    seen = field(form, "seen")
    try:
        value = value_of(form, views.queue.schema, views.queue.rows.marks.decimal)
        reason = code_of(form, views.queue.plan.no_labels)
        outcome = views.queue.answer(row, value, annotator, seen, reason)
    except ValueError as error:
        now = views.queue.task(row) or asked
        typed = form.get("value", "")
        return views.sample(now, annotator, 409, alert=str(error), typed=typed)
    return onward("/", outcome, row)


@router.post("/confirm")
def confirm(annotator: Annotator, form: Form, views: Page) -> Response:
    """Save the predictions of a sheet as labels, except for the examples that are marked."""
    queue = views.queue
    rows = rows_of(field(form, "rows"), len(queue.rows.ids))
    value = value_of({"value": field(form, "value")}, queue.schema)
    if value is None or not queue.schema.classes:
        raise Mistake("Only predictions of classes can be confirmed. Nothing was saved.")
    right = [row for row in rows if f"wrong-{row}" not in form]
    wrong = [row for row in rows if f"wrong-{row}" in form]
    try:
        n_saved = queue.confirm(int(value), right, wrong, annotator)
    except ValueError as error:
        return views.sheet(annotator, int(value), 409, alert=str(error))
    address = f"/sheet?predicted={int(value)}&saved={n_saved}"
    return RedirectResponse(address, status_code=303)


@router.post("/skip")
def skip(annotator: Annotator, views: Page, row: Row) -> Response:
    """Postpone a labeling task: it comes after all others of the annotator."""
    try:
        views.queue.skip(row, annotator)
    except Outdated as error:
        asked = views.queue.task(row)
        if asked is None:
            raise
        return views.sample(asked, annotator, 409, alert=str(error))
    return onward("/", "skipped", row)


@router.post("/undo")
def undo(annotator: Annotator, form: Form, views: Page, row: Row) -> Response:
    """Undo the annotator's latest label."""
    try:
        views.queue.take_back(row, annotator, field(form, "n_answers"))
    except Outdated as error:
        details = row
        if error.row is not None:
            details = error.row
        asked = views.queue.task(details)
        if asked is None:
            raise
        return views.sample(asked, annotator, 409, alert=str(error))
    return onward(f"/sample/{row}", "undone", row)


@router.post("/resolve")
def resolve(annotator: Annotator, form: Form, views: Page, row: Row) -> Response:
    """Resolve a conflict."""
    seen = field(form, "seen")
    try:
        value = value_of(form, views.queue.schema, views.queue.rows.marks.decimal)
        reason = code_of(form, views.queue.plan.no_labels)
        views.queue.resolve(row, value, annotator, seen, reason)
    except ValueError as error:
        return views.conflict_list(annotator, 409, alert=str(error))
    return onward("/conflicts", "resolved", row)


@router.post("/withdraw")
def withdraw(annotator: Annotator, form: Form, views: Page, row: Row) -> Response:
    """Withdraw an example permanently."""
    try:
        why = reason_of(form)
    except ValueError as error:
        return views.withdrawal(
            row, annotator, 400, alert=str(error), why=form.get("why", "")
        )
    views.queue.ledger.withdraw(row, annotator, why)
    return onward("/", "withdrawn", row)
