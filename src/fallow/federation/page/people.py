"""Who is labelling: a name in a cookie.  It tells people apart and is no password."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import quote, unquote

from fastapi import Depends, Request
from fastapi.responses import Response

from fallow.federation.page.forms import name_of

NAME = "fallow-who"
HALF_A_YEAR = 180 * 86400


class Nameless(Exception):
    """Somebody who has not said who they are."""


def person(request: Request) -> str | None:
    """Who is labelling, as the cookie says."""
    try:
        return name_of(unquote(request.cookies.get(NAME, "")))
    except ValueError:
        return None


def require_name(request: Request) -> str:
    """Who is labelling; without a name there are no labels."""
    who = person(request)
    if who is None:
        raise Nameless
    return who


Who = Annotated[str, Depends(require_name)]


def remember(response: Response, name: str) -> None:
    """From now on this browser's labels are of that person."""
    response.set_cookie(NAME, quote(name), HALF_A_YEAR, httponly=True, samesite="strict")
