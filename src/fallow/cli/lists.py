"""Commands that list settings, algorithms, models, partitions, encoders and datasets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from itertools import chain
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any, TypedDict

import typer
from rich.markup import escape
from rich.table import Table

from fallow.cli import options as opt

if TYPE_CHECKING:
    from fallow.core.contract import Contract

CODE = "code"
"""Kind of the classes that reproduce published code."""

Fetch = Annotated[
    str | None,
    typer.Option(
        "--fetch", metavar="NAME", help="Download a public dataset to the data folder"
    ),
]


def kinds() -> dict[str, ModuleType]:
    """Return the packages of algorithms, by kind."""
    from fallow import strategies, training
    from fallow.training import personal

    return {"strategy": strategies, "training": training, "personal": personal}


def algorithms(as_json: opt.Json = False) -> None:
    """List query strategies and training algorithms, what they disclose, and their parameters."""
    from fallow.core.build import names
    from fallow.core.spelling import spell_class
    from fallow.recipes.papers import load_papers

    rows = []
    for kind, package in kinds().items():
        for _, cls in sorted(names(package).items()):
            rows.append(_describe_method(spell_class(cls), kind, cls))
    of_fallow = len(rows)
    codes = sorted(chain.from_iterable(paper.codes for paper in load_papers()))
    for code in codes:
        rows.append(_describe_method(code.word, CODE, code.load()))
    if as_json:
        opt.print_json(rows)
        return
    _print_table([_shorten(row) for row in rows[:of_fallow]], METHOD_COLUMNS)
    opt.console().print("\nVariants of published code, for reproduction only\n")
    _print_table([_shorten(row) for row in rows[of_fallow:]], METHOD_COLUMNS)


class MethodRow(TypedDict):
    """Content of the disclosure declaration of an algorithm."""

    name: str
    kind: str
    year: int | None
    paper: str
    needs: list[str]
    reveals: dict[str, str]
    smallest_cohort: int
    secure_sum: bool
    local_dp: bool
    missing_site: str
    simulator_only: bool
    aliases: list[str]
    options: list[str]
    fields: dict[str, str]


METHOD_COLUMNS = (
    "name",
    "kind",
    "year",
    "needs",
    "reveals",
    "secure_sum",
    "local_dp",
    "fields",
)


def _shorten(row: MethodRow) -> dict[str, object]:
    """Return an algorithm as a row of a table."""
    return {
        "name": row["name"],
        "kind": row["kind"],
        "year": row["year"],
        "needs": ", ".join(row["needs"]),
        "reveals": "; ".join(dict.fromkeys(row["reveals"].values())),
        "secure_sum": _yes_or_no(row["secure_sum"]),
        "local_dp": _yes_or_no(row["local_dp"]),
        "fields": _join_fields(row["fields"]),
    }


def _yes_or_no(value: bool) -> str:
    if value:
        return "yes"
    return "no"


def _join_fields(fields: Mapping[str, str]) -> str:
    return ", ".join(f"{name}={value}" for name, value in fields.items())


def _describe_method(name: str, kind: str, cls: type[Any]) -> MethodRow:
    """Describe an algorithm by its disclosure declaration."""
    contract: Contract = cls.contract
    defaults = {item.name: str(item.default) for item in fields(cls)}
    defaults.pop("training_config", None)  # a setting of the recipe
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
        "fields": defaults,
    }


def datasets(
    as_json: opt.Json = False, name: Fetch = None, data_dir: opt.DataDir = None
) -> None:
    """List datasets; those that are not bundled need --data-dir or FALLOW_DATA."""
    from fallow.data import CATALOG, fetch

    if name is not None:
        opt.console().print(str(fetch(name, data_dir)), markup=False, soft_wrap=True)
        return
    rows: list[dict[str, object]] = []
    shown: list[dict[str, object]] = []
    for entry in CATALOG.values():
        row: dict[str, object] = {
            "name": entry.name,
            "task": entry.task,
            "rows": entry.rows,
            "shape": list(entry.shape),
            "classes": entry.classes or None,
            "natural_sites": entry.groups or None,
            "source": entry.source,
            "files": list(entry.files),
            "page": None,
        }
        if entry.published is not None:
            row["page"] = entry.published.page
        rows.append(row)
        shown.append({**row, "shape": "x".join(str(size) for size in entry.shape)})
    columns = ("name", "task", "rows", "shape", "classes", "natural_sites", "source")
    _print(rows, shown, as_json, columns)


def recipes(as_json: opt.Json = False) -> None:
    """List recipes: the demo, the benchmark, and those of papers if fallow-papers is installed."""
    from fallow.recipes.papers import load_recipes

    rows = []
    for recipe in load_recipes().values():
        row: dict[str, object] = {
            "name": recipe.name,
            "title": recipe.title,
            "data": recipe.data,
            "partition": str(recipe.partition),
            "sites": recipe.sites,
            "model": str(recipe.model),
            "strategies": list(recipe.strategies),
            "seeds": recipe.seeds,
            "published": None,
        }
        if recipe.published is not None:
            row["published"] = recipe.published.table
        rows.append(row)
    _print(rows, rows, as_json, ("name", "title", "model", "seeds", "published"))


Name = Annotated[
    str | None,
    typer.Argument(help="Name of a setting or of a part, e.g. lr"),
]


def settings(name: Name = None, as_json: opt.Json = False) -> None:
    """List the settings of --set and .toml files, with type, default and meaning.

    With a name: list that setting, the settings of a part such as training configuration, and the
    parameters with that name of strategies, training algorithms, models and partitions.
    """
    from dataclasses import asdict

    from fallow.settings.fields import find_all
    from fallow.settings.listing import list_settings

    columns = ["name", "type", "default", "meaning"]
    if name is None:
        result = list_settings()
    else:
        result = find_all(name)
        columns.append("source")
    rows = [asdict(setting) for setting in result]
    _print(rows, rows, as_json, columns)
    if not as_json and name is None:
        opt.console().print(
            "\nThe last part of a name suffices if it is unique: --set lr=0.1. For parameters, see "
            "'fallow settings NAME', 'algorithms', 'models', 'partitions', 'encoders'.",
            markup=False,
            soft_wrap=True,
        )


def models(as_json: opt.Json = False) -> None:
    """List models and their parameters; a custom model is module:Class."""
    _print_classes("model", as_json)


def partitions(as_json: opt.Json = False) -> None:
    """List partitions, which distribute examples over sites, and their parameters."""
    _print_classes("partition", as_json)


def encoders(as_json: opt.Json = False) -> None:
    """List encoders, which compute features once before training, and their parameters."""
    _print_classes("encoder", as_json)


def _print_classes(part: str, as_json: bool) -> None:
    """Print the components that a setting can name, one per line."""
    from fallow.settings.fields import describe_classes

    rows: list[dict[str, object]] = []
    shown: list[dict[str, object]] = []
    for named in describe_classes(part):
        fields_text = _join_fields(named.fields)
        rows.append({"name": named.name, "what": named.what, "fields": named.fields})
        shown.append({"name": named.name, "what": named.what, "fields": fields_text})
    _print(rows, shown, as_json, ("name", "what", "fields"))


def _print(
    rows: Sequence[Mapping[str, object]],
    shown: Sequence[Mapping[str, object]],
    as_json: bool,
    columns: Sequence[str],
) -> None:
    """Print ``rows`` as JSON, or ``shown`` as a table."""
    if as_json:
        opt.print_json(rows)
    else:
        _print_table(shown, columns)


def _print_table(rows: Sequence[Mapping[str, object]], columns: Sequence[str]) -> None:
    table = Table(box=None, pad_edge=False)
    for column in columns:
        table.add_column(column.replace("_", " "), no_wrap=column == "name")
    for row in rows:
        cells = [escape(str(row[column] or "-")) for column in columns]
        table.add_row(*cells)
    opt.console().print(table)
