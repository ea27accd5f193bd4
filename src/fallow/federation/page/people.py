"""Who is labeling: a name in a cookie, or the one that a login gives."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import quote

from fastapi import Depends, Request
from fastapi.responses import Response

from fallow.federation.page.door import NAME, Entrance

HALF_A_YEAR = 180 * 86400


class Nameless(Exception):
    """Somebody who has not said who they are."""


def person(request: Request) -> str | None:
    """Who is labeling, as whatever lets the request in says."""
    door: Entrance = request.app.state.door
    return door.find_name(request.headers, request.cookies)


def require_name(request: Request) -> str:
    """Who is labeling; without a name there are no labels."""
    who = person(request)
    if who is None:
        raise Nameless
    return who


Who = Annotated[str, Depends(require_name)]


def remember(response: Response, name: str) -> None:
    """From now on this browser's labels are of that person."""
    response.set_cookie(NAME, quote(name), HALF_A_YEAR, httponly=True, samesite="strict")
