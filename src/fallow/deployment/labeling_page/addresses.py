"""Names of annotators, and GET routes of the labeling page, which change only cookies."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Depends, Request
from fastapi.responses import JSONResponse, Response

from fallow.deployment.labeling_page.access import ENTRANCE, NAME, TokenAccess
from fallow.deployment.labeling_page.forms import row_of, whole_number
from fallow.deployment.labeling_page.languages import Mistake, translate
from fallow.deployment.labeling_page.login import AccessControl
from fallow.deployment.labeling_page.pictures import picture, placeholder
from fallow.deployment.labeling_page.views import HERE, Views

STATIC = {
    "label.css": "text/css",
    "label.js": "text/javascript",
    "look.css": "text/css",
    "look.js": "text/javascript",
}
router = APIRouter()
HALF_A_YEAR = 180 * 86400


class Nameless(Exception):
    """Raised if the annotator has not entered a name."""


def person(request: Request) -> str | None:
    """Return the annotator's name, as access control determines it.

    Without a login, names that differ in case only are one annotator.
    """
    access: AccessControl = request.app.state.access
    annotator = access.find_name(request.headers, request.cookies)
    if annotator is None or not access.asks_for_names:
        return annotator
    return views_of(request).queue.find_annotator(annotator)


def require_name(request: Request) -> str:
    """Return the annotator's name, without which no label can be saved."""
    annotator = person(request)
    if annotator is None:
        raise Nameless
    return annotator


Annotator = Annotated[str, Depends(require_name)]


def remember(response: Response, choice: str, cookie: str = NAME) -> None:
    """Store a choice of the annotator in a cookie, by default their name."""
    response.set_cookie(
        cookie, quote(choice), HALF_A_YEAR, httponly=True, samesite="strict"
    )


def views_of(request: Request) -> Views:
    """Return the views of the page that a request addresses."""
    views: Views = request.app.state.views
    return views


def row_in(request: Request, row: str) -> int:
    """Return the row number in an address."""
    return row_of(row, len(views_of(request).queue.rows.ids))


Page = Annotated[Views, Depends(views_of)]
Row = Annotated[int, Depends(row_in)]


@router.get(ENTRANCE)
def enter(request: Request, views: Page, token: str = "") -> Response:
    """Set the cookie for a browser that presents the token."""
    access: TokenAccess = request.app.state.access
    if not access.opens(token):
        return views.plain(
            403,
            translate("This address is not the latest one that 'fallow label' printed."),
        )
    # Send a page that forwards the browser instead of a redirect: after a link from another site,
    # browsers do not send strict cookies with a redirect.
    response = views.page("enter", None)
    response.set_cookie(access.cookie, access.key, httponly=True, samesite="strict")
    if request.app.state.annotator is not None:
        remember(response, request.app.state.annotator)
    return response


@router.get("/name")
def name(request: Request, views: Page) -> Response:
    """Ask the annotator for a name."""
    return views.page("name", person(request), typed="")


@router.get("/")
def first(request: Request, annotator: Annotator, views: Page, row: str = "") -> Response:
    """Show the annotator's next labeling task after ``row``, or report that none is open."""
    notice = views.describe_outcome(request.query_params, annotator)
    asked = views.queue.next_task(whole_number(row), annotator)
    if asked is None:
        return views.all_done(annotator, notice=notice)
    return views.sample(asked, annotator, notice=notice)


@router.get("/sample/{row}")
def sample(
    request: Request, annotator: Annotator, views: Page, row: Row, guess: str = ""
) -> Response:
    """Show one example, labeled or not. ``guess="yes"`` shows the model's prediction."""
    asked = views.queue.task(row)
    if asked is None:
        raise Mistake("This example was not selected for labeling.")
    return views.sample(
        asked,
        annotator,
        shows_guess=guess == "yes",
        notice=views.describe_outcome(request.query_params, annotator),
    )


@router.get("/conflicts")
def conflicts(request: Request, annotator: Annotator, views: Page) -> Response:
    """Show the examples with conflicting labels."""
    return views.conflict_list(
        annotator, notice=views.describe_outcome(request.query_params, annotator)
    )


@router.get("/suspicious")
def suspicious(annotator: Annotator, views: Page) -> Response:
    """Show the examples whose labels are suspicious, without the labels."""
    return views.check_list(annotator)


@router.get("/sheet")
def sheet(
    annotator: Annotator, views: Page, predicted: str = "", saved: str = ""
) -> Response:
    """Show examples with the same predicted class, by default of the class with the most."""
    return views.sheet(annotator, whole_number(predicted), saved=whole_number(saved))


@router.get("/mine")
def mine(request: Request, annotator: Annotator, views: Page, page: str = "1") -> Response:
    """Show the annotator's own labels."""
    return views.own_labels(annotator, max(1, whole_number(page) or 1))


@router.get("/data")
def data(annotator: Annotator, views: Page) -> Response:
    """Show how the site's files were read."""
    return views.data(annotator)


@router.get("/withdraw/{row}")
def withdrawal(annotator: Annotator, views: Page, row: Row) -> Response:
    """Show the form for withdrawing an example."""
    return views.withdrawal(row, annotator)


@router.get("/picture/{row}")
@router.get("/picture/{row}/{view}")
def image(views: Page, row: Row, view: str = "0") -> Response:
    """Return an image of an example, or a placeholder that explains why it is missing.

    ``view`` is the index of the image, from 0.
    """
    number = whole_number(view)
    try:
        result = None if number is None else picture(views.queue.rows, row, number)
    except ValueError as error:
        shown = placeholder(str(error))
        return Response(shown.content, 400, media_type=shown.media_type)
    if result is None:
        return views.plain(
            404,
            translate("This example has no image. Open its page to see its values."),
        )
    return Response(result.content, media_type=result.media_type)


@router.get("/state")
def state(annotator: Annotator, views: Page, row: str = "") -> Response:
    """Return the state that an open page polls."""
    return JSONResponse(views.live(annotator, whole_number(row)))


@router.get("/static/{file}")
def static(file: str) -> Response:
    """Return the style sheet or a script of the page."""
    if file not in STATIC:
        return Response(status_code=404)
    return Response((HERE / "static" / file).read_bytes(), media_type=STATIC[file])


@router.get("/favicon.ico")
def icon() -> Response:
    """Return an empty icon, because browsers request one."""
    return Response(status_code=204)
