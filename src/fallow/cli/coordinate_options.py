"""Options of ``fallow coordinate init``: study and time limits."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from fallow.deployment.descriptions import FEDERATION, as_help

FolderToCreate = Annotated[Path, typer.Argument(metavar="DIR", help="Folder to create")]
ExperimentConfig = Annotated[
    str,
    typer.Option(
        help="Experiment configuration or .toml file with model, training and query strategy"
    ),
]
Sites = Annotated[
    str, typer.Option(help=as_help(FEDERATION["sites"], "e.g. basel,bern,chur"))
]
Example = Annotated[
    Path,
    typer.Option(
        help="Examples in the format of the sites, real or invented; not stored",
    ),
]
Label = Annotated[str, typer.Option(help="Column with the labels")]
Task = Annotated[
    Literal["auto", "classification", "regression"],
    typer.Option(help="Type of task (auto: inferred from the labels)"),
]
Classes = Annotated[
    str, typer.Option(help="All classes, e.g. no,yes, if the example lacks some")
]
Ids = Annotated[str, typer.Option(help="Column with the row ID")]
Texts = Annotated[
    str,
    typer.Option("--text", metavar="A,B", help="Columns of free text to use as features"),
]
Name = Annotated[
    str | None,
    typer.Option(help=as_help(FEDERATION["name"], "default: that of the folder")),
]
Seed = Annotated[
    int,
    typer.Option(min=0, help=as_help(FEDERATION["seed"])),
]
HowSums = Annotated[
    Literal["exact", "noisy"] | None,
    typer.Option(
        "--sums",
        help="Exact, from which rows can be computed, or noisy (differential privacy) "
        "(default: asks)",
    ),
]
Address = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT",
        help="Address to listen on (default: that of the transport; https: 0.0.0.0:9092)",
    ),
]
Hosts = Annotated[
    list[str] | None,
    typer.Option(
        help="Host name or IP address at which sites reach this machine; repeatable"
    ),
]
Transport = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help=as_help(FEDERATION["transport"]),
    ),
]
Certificate = Annotated[
    Path | None,
    typer.Option(
        help="Server certificate for --transport https (PEM) (default: creates one)"
    ),
]
CertificateKey = Annotated[
    Path | None, typer.Option(help="Private key of --certificate (PEM), without a password")
]
CertificateAuthority = Annotated[
    Path | None,
    typer.Option(
        "--ca",
        help="The only CA that sites trust for --certificate (default: their system's)",
    ),
]
Clients = Annotated[
    Path | None,
    typer.Option(
        help="CA (PEM) of the certificates that sites must present (mutual TLS, https)"
    ),
]
BehindProxy = Annotated[
    bool,
    typer.Option(
        "--behind-proxy",
        help="A reverse proxy on this machine terminates TLS: listen on 127.0.0.1 without TLS",
    ),
]
Quorum = Annotated[int | None, typer.Option(help=as_help(FEDERATION["quorum"]))]
Timeout = Annotated[str, typer.Option(help=as_help(FEDERATION["timeout"]))]
Patience = Annotated[str, typer.Option(help=as_help(FEDERATION["patience"]))]
Deadline = Annotated[str, typer.Option(help=as_help(FEDERATION["deadline"]))]
Guideline = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help=as_help(FEDERATION["guideline"], "part of the study agreement"),
    ),
]
