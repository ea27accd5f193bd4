"""Labeling page as an application: access control of all routes, and error pages."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from fastapi import FastAPI, Request
from fastapi.responses import RedirectResponse, Response

from fallow.deployment.labeling_page import addresses, changes
from fallow.deployment.labeling_page.access import HEADERS
from fallow.deployment.labeling_page.addresses import Nameless, person, remember
from fallow.deployment.labeling_page.forms import name_of
from fallow.deployment.labeling_page.label_queue import LabelQueue
from fallow.deployment.labeling_page.languages import (
    LANGUAGE,
    LANGUAGE_COOKIE,
    choose_language,
    translate,
)
from fallow.deployment.labeling_page.login import AccessControl
from fallow.deployment.labeling_page.views import Views
from fallow.deployment.site.settings import LANGUAGES
from fallow.storage.errors import StorageError


def create_app(
    queue: LabelQueue, access: AccessControl, annotator: str | None = None
) -> FastAPI:
    """Create the application of one site.

    ``annotator`` is the annotator's name until another one is entered. Raises ValueError for an invalid
    name.
    """
    routes = addresses.router.routes + changes.router.routes
    app = FastAPI(routes=routes, docs_url=None, redoc_url=None, openapi_url=None)
    views = Views(queue, access.asks_for_names)
    app.state.views = views
    app.state.access = access
    app.state.annotator = None
    if annotator is not None:
        app.state.annotator = name_of(annotator)

    @app.middleware("http")
    async def gate(
        request: Request, call_next: Callable[[Request], Awaitable[Response]]
    ) -> Response:
        wanted = request.query_params.get("language")
        LANGUAGE.set(
            choose_language(
                wanted,
                request.cookies.get(LANGUAGE_COOKIE),
                queue.language,
                accepted=request.headers.get("accept-language", ""),
            )
        )
        peer = ""
        if request.client is not None:
            peer = request.client.host
        refusal = access.refuses(
            request.method,
            request.scope["path"],  # the path used for routing
            headers=request.headers,
            cookies=request.cookies,
            peer=peer,
        )
        if refusal is None:
            response = await call_next(request)
            if wanted in LANGUAGES:
                remember(response, wanted, LANGUAGE_COOKIE)
        else:
            status, why = refusal
            response = views.plain(status, why)
        response.headers.update(HEADERS)
        return response

    @app.exception_handler(Nameless)
    def ask_for_name(request: Request, error: Nameless) -> Response:
        return RedirectResponse("/name", status_code=303)

    @app.exception_handler(404)
    def show_no_page(request: Request, error: Exception) -> Response:
        return views.plain(
            404, translate("There is no page at this address. Open / to label examples.")
        )

    @app.exception_handler(ValueError)
    def show_mistake(request: Request, error: ValueError) -> Response:
        return views.page("message", person(request), 400, alert=str(error))

    @app.exception_handler(StorageError)
    def show_failure(request: Request, error: StorageError) -> Response:
        return views.plain(503, str(error), is_english=True)

    return app
