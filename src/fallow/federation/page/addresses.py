"""Addresses that are looked at: they change nothing but cookies."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Request
from fastapi.responses import JSONResponse, Response

from fallow.federation.page.door import ENTRANCE, Door
from fallow.federation.page.forms import row_of, whole_number
from fallow.federation.page.people import Who, person, remember
from fallow.federation.page.pictures import picture, placeholder
from fallow.federation.page.views import HERE, Views

STATIC = {
    "label.css": "text/css",
    "label.js": "text/javascript",
    "look.css": "text/css",
    "look.js": "text/javascript",
}
router = APIRouter()


def views_of(request: Request) -> Views:
    """The views of the page that a request is to."""
    views: Views = request.app.state.views
    return views


def row_in(request: Request, row: str) -> int:
    """The row that an address names."""
    return row_of(row, len(views_of(request).desk.rows.ids))


Page = Annotated[Views, Depends(views_of)]
Row = Annotated[int, Depends(row_in)]


@router.get(ENTRANCE)
def enter(request: Request, views: Page, token: str = "") -> Response:
    """The entrance: who has the token is given the cookie."""
    door: Door = request.app.state.door
    if not door.opens(token):
        return views.plain(
            403, "This address is not the one that 'fallow label' printed last."
        )
    # A page that leads on, and no redirect: browsers do not send strict cookies along with the
    # latter when somebody follows a link from elsewhere.
    response = views.page("enter", None)
    response.set_cookie(door.cookie, door.key, httponly=True, samesite="strict")
    if request.app.state.who is not None:
        remember(response, request.app.state.who)
    return response


@router.get("/name")
def name(request: Request, views: Page) -> Response:
    """Who is labeling?"""
    return views.page("name", person(request), typed="")


@router.get("/")
def first(request: Request, who: Who, views: Page, row: str = "") -> Response:
    """What comes after ``row`` for this person, or that nothing waits."""
    notice = views.describe_outcome(request.query_params, who)
    _, asked = views.desk.around(whole_number(row), who)
    if asked is None:  # the row itself may be the only one that waits
        asked = next(iter(views.desk.waiting(who)), None)
    if asked is None:
        return views.all_done(who, notice=notice)
    return views.sample(asked, who, notice=notice)


@router.get("/sample/{row}")
def sample(request: Request, who: Who, views: Page, row: Row, guess: str = "") -> Response:
    """One sample, also one that has an answer; guess: "yes" to see what the model guesses now."""
    asked = views.desk.question(row)
    if asked is None:
        raise ValueError("This sample was never asked, so it takes no label here.")
    return views.sample(
        asked,
        who,
        shows_guess=guess == "yes",
        notice=views.describe_outcome(request.query_params, who),
    )


@router.get("/conflicts")
def conflicts(request: Request, who: Who, views: Page) -> Response:
    """The samples on which people disagree."""
    return views.conflict_list(
        who, notice=views.describe_outcome(request.query_params, who)
    )


@router.get("/mine")
def mine(request: Request, who: Who, views: Page, page: str = "1") -> Response:
    """What this person has answered."""
    return views.own_labels(who, max(1, whole_number(page) or 1))


@router.get("/data")
def data(who: Who, views: Page) -> Response:
    """How the site's own files were read."""
    return views.data(who)


@router.get("/withdraw/{row}")
def withdrawal(who: Who, views: Page, row: Row) -> Response:
    """The form by which a sample leaves."""
    return views.withdrawal(row, who)


@router.get("/picture/{row}")
@router.get("/picture/{row}/{view}")
def image(views: Page, row: Row, view: str = "0") -> Response:
    """A picture of a sample, or a placeholder that says why it cannot be shown; view: which of
    several, from 0."""
    number = whole_number(view)
    try:
        result = None if number is None else picture(views.desk.rows, row, number)
    except ValueError as error:
        shown = placeholder(str(error))
        return Response(shown.content, 400, media_type=shown.media_type)
    if result is None:
        return views.plain(404, "This sample is no picture: its page shows what it has.")
    return Response(result.content, media_type=result.media_type)


@router.get("/state")
def state(who: Who, views: Page, row: str = "") -> Response:
    """What a page that stays open asks for."""
    return JSONResponse(views.live(who, whole_number(row)))


@router.get("/static/{file}")
def static(file: str) -> Response:
    """Style and script of the page."""
    if file not in STATIC:
        return Response(status_code=404)
    return Response((HERE / "static" / file).read_bytes(), media_type=STATIC[file])


@router.get("/favicon.ico")
def icon() -> Response:
    """None; browsers ask for one."""
    return Response(status_code=204)
