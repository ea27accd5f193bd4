"""``fallow audit``: signed audit log of labels, disclosures and privacy budget."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fallow.cli import options as opt
from fallow.storage.errors import StorageError

KEYS = {"site": "join.json", "coordinator": "study.toml"}
"""File with the public key of a party."""
audit = typer.Typer(
    name="audit",
    help="Write or verify the signed audit log of a site or coordinator.",
    no_args_is_help=True,
)


@audit.command()
@opt.shows("fallow.deployment.audit_log.signed:WrittenAudit")
def write(
    folder: Annotated[
        Path,
        typer.Argument(metavar="DIR", help="Folder of a site or a coordinator"),
    ],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Output folder (default: DIR/audit)"),
    ] = None,
    quiet: opt.Quiet = False,
    as_json: opt.AsObject = False,
) -> None:
    """Write the signed audit log of a site or coordinator as a page and a table.

    You can write it at any time, also while the study runs. It contains the names of annotators, but
    no example, no label and no name of an example.

    For example:

    fallow audit write basel-site
    """
    from fallow.deployment.audit_log.entries import name_party
    from fallow.deployment.audit_log.files import PAGE
    from fallow.deployment.audit_log.signed import write_audit

    opt.restrict_permissions()
    path = out or folder / "audit"
    result = write_audit(folder, path)
    entries = "1 entry" if result["entries"] == 1 else f"{result['entries']} entries"
    party = name_party(result["role"], result["party"])
    lines = [
        f"Wrote {entries} of {party}: {path / PAGE}",
        f"To verify it elsewhere, send the folder {path} and run: "
        f"fallow audit verify {path.name} --key {KEYS[result['role']]}",
    ]
    opt.tell(lines, result, quiet=quiet, as_json=as_json)


@audit.command()
@opt.shows("fallow.deployment.audit_log.signed:AuditSummary")
def verify(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Folder that 'fallow audit write' created")
    ],
    key: Annotated[
        Path,
        typer.Option(
            help="File with the public key of the party: the join.json of a site, or "
            "study.toml, which has the key of the coordinator"
        ),
    ],
    quiet: opt.Quiet = False,
    as_json: opt.AsObject = False,
) -> None:
    """Verify the signature of an audit log, and name the files that differ.

    The exit code is 0 if the audit log is valid. You need the public key, which you must
    receive through another channel than the audit log.

    For example:

    fallow audit verify audit --key join.json
    """
    from fallow.deployment.audit_log.entries import name_party
    from fallow.deployment.audit_log.signed import read_key, verify_audit

    checked = verify_audit(folder, read_key(key))
    if checked.faults:
        raise StorageError(
            f"{folder} was changed after it was signed: {'; '.join(checked.faults)}"
        )
    result = checked.summary
    party = name_party(result["role"], result["party"])
    line = (
        f"{folder} is unchanged since {party} signed it on {result['made']}, for study "
        f"{result['study']} (digest {result['digest']})"
    )
    opt.tell([line], result, quiet=quiet, as_json=as_json)
