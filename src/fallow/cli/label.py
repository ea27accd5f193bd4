"""``fallow label``: labeling page for the annotators of a site."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from fallow.cli import options as opt
from fallow.deployment.folders import check_site

Site = Annotated[
    Path,
    typer.Argument(
        metavar="SITE",
        help="Site folder, as created by 'fallow site init'",
        callback=check_site,
    ),
]
PORT = 8601
"""Default port of the page."""
Port = Annotated[
    int | None,
    typer.Option(
        min=0,
        max=65535,
        help=f"Port of the page (default: {PORT}; 0: any free port)",
        show_default=False,
    ),
]
Annotator = Annotated[
    str | None, typer.Option(help="Name of the annotator (default: the page asks)")
]
Open = Annotated[
    bool, typer.Option("--open/--no-open", help="Open the page in the browser")
]


BehindProxy = Annotated[
    bool,
    typer.Option(
        "--behind-proxy",
        help="Take the annotator's name from the login of a reverse proxy (table page of site.toml)",
    ),
]
InContainer = Annotated[
    bool,
    typer.Option(
        "--in-container",
        help="Listen on all addresses of this container; publish its port only on "
        "127.0.0.1",
    ),
]


@opt.shows("fallow.cli.objects:LabelingPage")
def label(
    site: Site,
    port: Port = None,
    annotator: Annotator = None,
    open_: Open = True,
    behind_proxy: BehindProxy = False,
    in_container: InContainer = False,
    as_json: opt.AsObject = False,
) -> None:
    """Open the labeling page of a site in the browser.

    Only this machine can open the page, at the address that is printed. Stop it with Ctrl-C. Labels
    are stored even if the site is not running, and count when it runs again.
    """
    from fallow.core.optional import import_optional

    opt.restrict_permissions()
    if behind_proxy and (port is not None or annotator is not None):
        raise ValueError(
            "behind a reverse proxy, its login identifies annotators, and site.toml sets "
            "the address: omit --port and --annotator"
        )
    if behind_proxy and in_container:
        raise ValueError(
            "behind a reverse proxy, site.toml sets the address of the page: set listen "
            'under [page], such as listen = "0.0.0.0:8123", and omit --in-container'
        )
    if in_container and port == 0:
        raise ValueError("a container publishes one port: give its number with --port")
    for package in ("fastapi", "jinja2", "uvicorn"):
        import_optional(package, "fallow-core[deploy]", "the labeling page")
    from fallow.cli.objects import LabelingPage
    from fallow.deployment.labeling_page import (
        LabelQueue,
        open_proxy_access,
        serve,
        serve_behind_proxy,
    )
    from fallow.deployment.labeling_page.local_server import EVERYWHERE, HOME
    from fallow.deployment.labeling_page.login import SECRET
    from fallow.deployment.site.feature_space import open_feature_space
    from fallow.deployment.site.folder import SiteFolder
    from fallow.deployment.site.own_data import describe_own_data

    if port is None:
        port = PORT
    folder = SiteFolder.open(site)
    login = folder.settings.login
    access = None
    if behind_proxy:
        access = open_proxy_access(folder.path, login)
    agreement = folder.agreement
    rows = folder.rows
    ledger = folder.open_ledger()
    console = opt.console(quiet=as_json)

    def notify(address: str) -> None:
        page = LabelingPage(folder.name, address)
        if as_json:
            opt.print_json(page)
        line = f"Labeling page of {page.site}: {page.address}"
        console.print(line, markup=False, soft_wrap=True)
        advice = "Keep the address secret."
        if access is not None:
            advice = (
                "Only the proxy can open the page. It sends the secret in "
                f"{folder.path / SECRET}."
            )
        if in_container:
            advice += f" Publish the port on this machine only: 127.0.0.1:{port}:{port}."
        console.print(
            f"{advice} Ctrl-C stops the page; labels are stored.",
            markup=False,
            soft_wrap=True,
        )

    try:
        with suppress(KeyboardInterrupt):
            queue = LabelQueue(
                study=agreement.name,
                site=folder.name,
                schema=agreement.schema,
                rows=rows,
                ledger=ledger,
                guideline=agreement.guideline,
                space=open_feature_space(folder, ledger),
                describe_data=partial(describe_own_data, folder),
                adjudicators=folder.settings.adjudicators,
                language=folder.settings.language,
                plan=agreement.plan,
            )
            if access is not None and login is not None:
                serve_behind_proxy(queue, notify, access, login.listen)
            else:
                opened_from = None
                if open_:
                    opened_from = folder.path
                host = HOME
                if in_container:
                    host = EVERYWHERE
                serve(queue, notify, port, annotator, opened_from, host=host)
        console.print("The page has stopped. All labels are stored.")
    finally:
        ledger.close()
