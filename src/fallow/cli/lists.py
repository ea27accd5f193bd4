"""``fallow settings``, ``methods``, ``models``, ``partitions``, ``encoders``, ``datasets`` and
``recipes``: what there is."""

from __future__ import annotations

import json
from dataclasses import fields
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from fallow.cli import options as opt

if TYPE_CHECKING:
    from fallow.core.contract import Contract

CODE = "code"
"""The kind of a class that does what a public code does."""

Fetch = Annotated[
    str | None,
    typer.Option(
        "--fetch", metavar="NAME", help="Download a published file to the data folder."
    ),
]


def kinds() -> dict[str, ModuleType]:
    """The packages of methods, by what their methods are."""
    from fallow import queries, training
    from fallow.training import personal

    return {"query": queries, "training": training, "personal": personal}


def methods(as_json: opt.Json = False) -> None:
    """Strategies and training methods: what they need and reveal, and their fields."""
    from fallow.core.build import names
    from fallow.core.spelling import spell_class
    from fallow.papers import PAPERS

    known = [
        (spell_class(cls), kind, cls)
        for kind, package in kinds().items()
        for _, cls in sorted(names(package).items())
    ]
    codes = sorted(code for paper in PAPERS for code in paper.codes)
    known += [(code.word, CODE, code.load()) for code in codes]
    rows = [_about(name, kind, cls) for name, kind, cls in known]
    shown = [
        {
            **r,
            "needs": ", ".join(r["needs"]),
            "reveals": "; ".join(dict.fromkeys(r["reveals"].values())),
            **{k: "yes" if r[k] else "no" for k in ("secure_sum", "local_dp")},
            "fields": ", ".join(f"{k}={v}" for k, v in r["fields"].items()),
        }
        for r in rows
    ]
    columns = (
        "name",
        "kind",
        "year",
        "needs",
        "reveals",
        "secure_sum",
        "local_dp",
        "fields",
    )
    _print(rows, [r for r in shown if r["kind"] != CODE], as_json, columns)
    if not as_json:
        opt.console().print("\nAs public codes run them, for reproduction only\n")
        _print([], [r for r in shown if r["kind"] == CODE], as_json, columns)


def _about(name: str, kind: str, cls: type[Any]) -> dict[str, Any]:
    """What the contract of a method says, for a table."""
    contract: Contract = cls.contract
    return {
        "name": name,
        "kind": kind,
        "year": contract.year or None,
        "paper": contract.paper,
        "needs": list(contract.needs),
        "reveals": dict(contract.verbs),
        "smallest_cohort": contract.cohort,
        "secure_sum": contract.secure_sum,
        "local_dp": contract.local_dp,
        "missing_site": contract.missing,
        "simulator_only": contract.simulator_only,
        "aliases": list(contract.aliases),
        "options": list(contract.options),
        "fields": {f.name: str(f.default) for f in fields(cls) if f.name != "plan"},
    }


def datasets(
    as_json: opt.Json = False, name: Fetch = None, data_dir: opt.DataDir = None
) -> None:
    """Data sets by name: bundled ones need nothing, the others --data-dir or FALLOW_DATA."""
    from fallow.data import CATALOGUE, fetch

    if name is not None:
        opt.console().print(str(fetch(name, data_dir)), markup=False, soft_wrap=True)
        return
    rows: list[dict[str, Any]] = [
        {
            "name": e.name,
            "task": e.task,
            "rows": e.rows,
            "shape": list(e.shape),
            "classes": e.classes or None,
            "natural_sites": e.groups or None,
            "source": e.source,
            "files": list(e.files),
            "page": e.published.page if e.published else None,
        }
        for e in CATALOGUE.values()
    ]
    shown = [{**r, "shape": "x".join(map(str, r["shape"]))} for r in rows]
    columns = ("name", "task", "rows", "shape", "classes", "natural_sites", "source")
    _print(rows, shown, as_json, columns)


def recipes(as_json: opt.Json = False) -> None:
    """Recipes by name: a paper's experiments, and forms of them that two cores finish."""
    from fallow.papers import RECIPES

    rows = [
        {
            "name": r.name,
            "title": r.title,
            "data": r.data,
            "partition": str(r.partition),
            "sites": r.sites,
            "model": str(r.model),
            "queries": list(r.queries),
            "seeds": r.seeds,
            "published": r.published.table if r.published else None,
        }
        for r in RECIPES.values()
    ]
    _print(rows, rows, as_json, ("name", "title", "model", "seeds", "published"))


Name = Annotated[
    str | None, typer.Argument(help="A setting, a part such as plan, or its last word: lr.")
]


def settings(name: Name = None, as_json: opt.Json = False) -> None:
    """What --set and .toml files take: each setting with its type, default and meaning.

    With a name: that setting, those of a part such as plan, and the fields of that name that
    strategies, training methods, models and partitions have.
    """
    from dataclasses import asdict

    from fallow.settings.fields import find_all
    from fallow.settings.listing import list_settings

    found = list_settings() if name is None else find_all(name)
    rows = [asdict(setting) for setting in found]
    columns = ("name", "type", "default", "meaning")
    _print(rows, rows, as_json, columns if name is None else (*columns, "source"))
    if not as_json and name is None:
        opt.console().print(
            "\nThe last word is enough where it is one setting's: --set lr=0.1. Fields of classes: "
            "'fallow settings NAME', 'methods', 'models', 'partitions', 'encoders'.",
            markup=False,
            soft_wrap=True,
        )


def models(as_json: opt.Json = False) -> None:
    """Models: what they are, and their fields.  Your own is named module:Class."""
    _print_classes("model", as_json)


def partitions(as_json: opt.Json = False) -> None:
    """Partitions: how rows are dealt to sites, and their fields."""
    _print_classes("partition", as_json)


def encoders(as_json: opt.Json = False) -> None:
    """Encoders: what rows become before they are learned from, and their fields."""
    _print_classes("encoder", as_json)


def _print_classes(part: str, as_json: bool) -> None:
    """The classes that a setting may name, one a line."""
    from fallow.settings.fields import describe_classes

    rows = describe_classes(part)
    shown: list[dict[str, Any]] = []
    for row in rows:
        fields_text = ", ".join(f"{k}={v}" for k, v in row.fields.items())
        shown.append({"name": row.name, "what": row.what, "fields": fields_text})
    plain_rows = [{"name": r.name, "what": r.what, "fields": r.fields} for r in rows]
    _print(plain_rows, shown, as_json, ("name", "what", "fields"))


def _print(
    rows: list[dict[str, Any]],
    shown: list[dict[str, Any]],
    as_json: bool,
    columns: tuple[str, ...],
) -> None:
    if as_json:
        typer.echo(json.dumps(rows, indent=1))
        return
    table = Table(box=None, pad_edge=False)
    for column in columns:
        table.add_column(column.replace("_", " "), no_wrap=column == "name")
    for row in shown:
        table.add_row(*(escape(str(row[column] or "-")) for column in columns))
    opt.console().print(table)
