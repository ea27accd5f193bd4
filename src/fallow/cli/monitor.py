"""``fallow monitor``: health checks and metrics of a site or a coordinator."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from fallow.cli import options as opt

Folder = Annotated[
    Path, typer.Argument(metavar="DIR", help="Folder of a site or a coordinator")
]
Port = Annotated[
    int, typer.Option(min=0, max=65535, help="Port on localhost (0: any free port)")
]
Check = Annotated[
    bool,
    typer.Option("--check", help="Exit with code 0 if the process is healthy, else 1"),
]
Once = Annotated[
    bool,
    typer.Option("--once", help="Print the metrics once and exit, for a file collector"),
]


def monitor(
    folder: Folder, port: Port = 9464, check: Check = False, once: Once = False
) -> None:
    """Serve /healthz and /metrics (Prometheus) of a site or coordinator on localhost.

    It only reads the folder, and can be started and stopped at any time.

    For example:

    fallow monitor heart --check
    """
    from fallow.core.optional import import_optional
    from fallow.deployment.monitoring import create_app, metrics_text, watch
    from fallow.storage.errors import StorageError

    opt.restrict_permissions()
    watched = watch(folder)
    if check:
        health = watched.check()
        if not health.is_well:
            raise StorageError(health.reason)
        typer.echo(health.reason)
        return
    import_optional("prometheus_client", "fallow-core[deploy]", "fallow monitor")
    if once:
        typer.echo(metrics_text(watched).decode(), nl=False)
        return
    for package in ("starlette", "uvicorn"):
        import_optional(package, "fallow-core[deploy]", "fallow monitor")
    from fallow.deployment.labeling_page.local_server import build_server, listen

    with listen(port) as listener:
        bound_port = listener.getsockname()[1]
        server = build_server(create_app(watched, bound_port))
        typer.echo(
            f"Health and metrics: http://127.0.0.1:{bound_port}/healthz and /metrics"
        )
        typer.echo("Ctrl-C stops the monitor; the study continues.")
        with suppress(KeyboardInterrupt):
            server.run(sockets=[listener])
