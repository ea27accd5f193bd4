"""Name of the annotator, from a cookie or from a login."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import quote

from fastapi import Depends, Request
from fastapi.responses import Response

from fallow.deployment.labeling_page.access import NAME, AccessControl
from fallow.deployment.labeling_page.label_queue import LabelQueue

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
    queue: LabelQueue = request.app.state.views.queue
    return queue.find_annotator(annotator)


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
