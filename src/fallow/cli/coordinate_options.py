"""Options of ``fallow coordinate init``: what a study is, and how long everybody waits."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

NewFolder = Annotated[Path, typer.Argument(metavar="DIR", help="A folder to make.")]
Recipe = Annotated[
    str, typer.Option(help="Model, training and strategy: a recipe's name or a .toml file.")
]
Sites = Annotated[str, typer.Option(help="Names of the sites, e.g. basel,bern,chur.")]
Example = Annotated[
    Path,
    typer.Option(
        help="A few rows as sites have them, made up or not: a table, an .npz file or a folder of "
        "images. Columns, texts and classes are taken from it; the rows are not kept."
    ),
]
Label = Annotated[str, typer.Option(help="The column of labels of a table.")]
Task = Annotated[
    Literal["auto", "classification", "regression"],
    typer.Option(help="Classes or numbers to predict; auto: as the labels look."),
]
Classes = Annotated[
    str, typer.Option(help="All classes, e.g. no,yes, if the example lacks some.")
]
Ids = Annotated[str, typer.Option(help="The column of a table that names rows.")]
Name = Annotated[
    str | None, typer.Option(help="The study's name; by default the folder's.")
]
Seed = Annotated[
    int, typer.Option(min=0, help="Of first weights and of every draw that is no secret.")
]
Address = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT",
        help="Where this machine listens; by default 0.0.0.0:9092, which is everywhere, and for "
        "--link nvflare 127.0.0.1:9092.",
    ),
]
Hosts = Annotated[
    list[str] | None,
    typer.Option(
        help="The name or IP address by which sites reach this machine; its certificate holds it. "
        "May be given again."
    ),
]
Link = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="What carries messages: https alone; flower; or nvflare, by a job that is submitted to "
        "it. Over all, sites call this machine.",
    ),
]
Certificate = Annotated[
    Path | None,
    typer.Option(
        help="This machine's certificate for --link https (PEM), where it has one; by default one "
        "is made."
    ),
]
CertificateKey = Annotated[
    Path | None, typer.Option(help="The key of --certificate (PEM), without a password.")
]
CertificateAuthority = Annotated[
    Path | None,
    typer.Option(
        "--ca",
        help="The authority of --certificate, by which alone sites know this machine; by default "
        "those that each site's system trusts.",
    ),
]
Clients = Annotated[
    Path | None,
    typer.Option(
        help="The authority (PEM) of certificates that sites have to show (mutual TLS), for --link "
        "https."
    ),
]
BehindProxy = Annotated[
    bool,
    typer.Option(
        "--behind-proxy",
        help="HTTPS ends at a reverse proxy of this machine: listen on 127.0.0.1, without TLS.",
    ),
]
Quorum = Annotated[
    int | None, typer.Option(help="How many sites must answer; by default all.")
]
Timeout = Annotated[
    str, typer.Option(help="How long an exchange waits for all sites (s, m, h, d, w).")
]
Patience = Annotated[
    str, typer.Option(help="How long it waits for the quorum before the coordinator stops.")
]
Deadline = Annotated[
    str, typer.Option(help="How long people have for the labels of a cycle.")
]
Guideline = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="How samples are to be labeled: a text file, which becomes part of the agreement. Sites "
        "read it before they join, people beside each sample.",
    ),
]
Smallest = Annotated[
    int, typer.Option(help="A site with fewer test rows than this tells no score.")
]
