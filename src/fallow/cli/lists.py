"""Commands that list settings, algorithms, models, partitions, encoders and datasets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from fallow.cli import options as opt
from fallow.core.wording import join_disclosures

if TYPE_CHECKING:
    from pathlib import Path

    from rich.progress import TaskID

    from fallow.catalog import CatalogEntry
    from fallow.cli.dataset_rows import DatasetRow
    from fallow.settings.fields import AlgorithmRow

CODE = "code"
"""Kind of the classes that reproduce published code."""

DatasetName = Annotated[str | None, typer.Argument(help="Name of a dataset, e.g. mnist")]
Fetch = Annotated[
    bool,
    typer.Option("--fetch", help="Download the files to the data folder and verify them"),
]


Codes = Annotated[
    bool,
    typer.Option(
        "--codes", help="List variants of published code, for reproduction only, instead"
    ),
]


@opt.shows("fallow.settings.fields:AlgorithmRow", is_list=True)
def algorithms(codes: Codes = False, as_json: opt.Json = False) -> None:
    """List query strategies and training algorithms, what they disclose, and their parameters.

    ``--codes`` lists the public code in papers of installed distributions, such as fallow-papers.
    """
    from fallow.settings.fields import list_algorithms

    listed = _list_codes() if codes else list_algorithms()
    _print(listed, as_json, ALGORITHM_COLUMNS)


def _list_codes() -> list[AlgorithmRow]:
    """Describe the published code in papers of installed distributions, which imports it."""
    from fallow.configs.papers import load_papers
    from fallow.settings.fields import describe_algorithm

    codes = sorted(chain.from_iterable(paper.codes for paper in load_papers()))
    return [describe_algorithm(code.word, CODE, code.load()) for code in codes]


ALGORITHM_COLUMNS = (
    "name",
    "kind",
    "year",
    "needs",
    "reveals",
    "secure_sum",
    "local_dp",
    "parameters",
)


@opt.shows("fallow.cli.dataset_rows:DatasetRow", is_list=True)
def datasets(
    name: DatasetName = None,
    fetch: Fetch = False,
    as_json: opt.Json = False,
    data_dir: opt.DataDir = None,
) -> None:
    """List public datasets; with a name, show its files, their source and its license."""
    from fallow.catalog import find_entry, list_entries

    if name is None:
        if fetch:
            raise ValueError(
                "--fetch needs the name of a dataset; 'fallow datasets' lists them"
            )
        entries = list_entries()
        if as_json:
            opt.print_json([_describe_dataset(entry, data_dir) for entry in entries])
        else:
            _print_table(entries, DATASET_COLUMNS)
        return
    entry = find_entry(name)
    if fetch:
        if as_json:
            raise ValueError("--fetch prints the paths of the files; omit --json")
        _fetch(name, data_dir)
        return
    if as_json:
        opt.print_json([_describe_dataset(entry, data_dir)])
    else:
        _print_dataset(entry, data_dir)


DATASET_COLUMNS = ("name", "task", "rows", "shape", "classes", "sites", "license")


def _describe_dataset(entry: CatalogEntry, data_dir: Path | None) -> DatasetRow:
    from fallow.catalog.folder import data_folder, has_file
    from fallow.cli.dataset_rows import DatasetFile, DatasetRow

    folder = data_folder(data_dir)
    files = []
    for file in entry.files:
        row = DatasetFile(
            name=file.name,
            size=file.size,
            members=file.members,
            checksum=file.checksum or None,
            url=file.url or None,
            required=not file.is_optional,
            present=has_file(folder, file),
        )
        files.append(row)
    return DatasetRow(
        name=entry.name,
        task=entry.task,
        rows=entry.rows,
        shape=entry.shape,
        classes=entry.classes or None,
        site=entry.sites or None,
        source=entry.source,
        license=entry.license,
        citation=entry.citation or None,
        page=entry.page or None,
        files=tuple(files),
    )


def _print_dataset(entry: CatalogEntry, data_dir: Path | None) -> None:
    """Print one dataset, and the files of its first edition."""
    from fallow.catalog.folder import data_folder, has_file

    console = opt.console()
    shape = _cell("shape", entry.shape)
    console.print(
        f"{entry.name}: {entry.rows:,} examples of {shape}, {entry.task}", markup=False
    )
    classes = ""
    if entry.classes:
        classes = ", ".join(entry.class_names or (str(entry.classes),))
    facts = {
        "classes": classes,
        "natural sites": entry.sites,
        "license": entry.license,
        "citation": entry.citation,
        "page": entry.page,
    }
    for title, fact in facts.items():
        if fact:
            console.print(f"{title}: {fact}", markup=False, soft_wrap=True)
    if not entry.files:
        console.print("No file is needed.")
        return
    folder = data_folder(data_dir)
    present = {file.name for file in entry.files if has_file(folder, file)}
    for file in entry.files:
        console.print(f"\n{file.name}", markup=False, soft_wrap=True)
        state = "present" if file.name in present else "missing"
        if file.is_optional:
            state += ", optional"
        size = "unknown size" if file.size is None else f"{file.size:,} bytes"
        members = ""
        if file.members:
            members = f"with {', '.join(file.members)} (also unpacked in the data folder)"
        lines = [f"{state}, {size}", file.checksum, file.url, members]
        for line in filter(None, lines):
            console.print(f"  {line}", markup=False, soft_wrap=True)
    others = [file.name for edition in entry.editions[1:] for file in edition.files]
    if others:
        console.print(f"\nAlso read: {', '.join(others)}", markup=False, soft_wrap=True)
    if entry.can_fetch and len(present) < len(entry.files):
        console.print(
            f"\nDownload: fallow datasets {entry.name} --fetch --data-dir FOLDER",
            markup=False,
            soft_wrap=True,
        )


def _fetch(name: str, data_dir: Path | None) -> None:
    """Download a dataset with a progress bar, and print the paths of its files."""
    from rich.console import Console
    from rich.progress import DownloadColumn, Progress, TextColumn

    from fallow.catalog.download import fetch

    columns = (TextColumn("{task.description}"), DownloadColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        tasks: dict[str, TaskID] = {}

        def show(file: str, done: int, total: int | None) -> None:
            if file not in tasks:
                tasks[file] = progress.add_task(escape(file), total=total)
            progress.update(tasks[file], completed=done)

        paths = fetch(name, data_dir, show)
    for path in paths:
        opt.console().print(str(path), markup=False, soft_wrap=True)


@opt.shows("fallow.cli.objects:ConfigRow", is_list=True)
def configs(as_json: opt.Json = False) -> None:
    """List experiment configurations, including those of papers if fallow-papers is installed."""
    from fallow.cli.objects import ConfigRow
    from fallow.configs.find import load_configs

    rows = []
    for config in load_configs().values():
        row = ConfigRow(
            name=config.name,
            title=config.title,
            data=config.data,
            partition=str(config.partition),
            sites=config.sites,
            model=str(config.model),
            strategies=config.strategies,
            seeds=config.seeds,
            published=None if config.published is None else config.published.table,
        )
        rows.append(row)
    _print(rows, as_json, ("name", "title", "model", "seeds", "published"))


Name = Annotated[
    str | None,
    typer.Argument(help="Name of a setting or of a part, e.g. lr"),
]


@opt.shows("fallow.settings.listing:Setting", is_list=True)
def settings(name: Name = None, as_json: opt.Json = False) -> None:
    """List the settings of --set and .toml files, with type, default and meaning.

    With a name: list that setting, the settings of a part such as training configuration, and the
    parameters with that name of strategies, training algorithms, models and partitions.
    """
    from fallow.settings.fields import find_all
    from fallow.settings.listing import list_settings

    columns = ["name", "type", "default", "meaning"]
    if name is None:
        result = list(list_settings())
    else:
        result = find_all(name)
        columns.append("source")
    _print(result, as_json, columns)
    if not as_json and name is None:
        opt.console().print(
            "\nThe last part of a name suffices if it is unique: --set lr=0.1. For parameters, see "
            "'fallow settings NAME', 'algorithms', 'models', 'partitions', 'encoders'.",
            markup=False,
            soft_wrap=True,
        )


@opt.shows("fallow.settings.fields:NamedClass", is_list=True)
def models(as_json: opt.Json = False) -> None:
    """List models and their parameters; a custom model is module:Class."""
    _print_classes("model", as_json)


@opt.shows("fallow.settings.fields:NamedClass", is_list=True)
def partitions(as_json: opt.Json = False) -> None:
    """List partitions, which distribute examples over sites, and their parameters."""
    _print_classes("partition", as_json)


@opt.shows("fallow.settings.fields:NamedClass", is_list=True)
def encoders(as_json: opt.Json = False) -> None:
    """List encoders, which compute features once before training, and their parameters."""
    _print_classes("encoder", as_json)


def _print_classes(part: str, as_json: bool) -> None:
    """Print the components that a setting can name, one per line."""
    from fallow.settings.fields import describe_classes

    _print(describe_classes(part), as_json, ("name", "summary", "parameters"))


def _print(rows: Sequence[object], as_json: bool, columns: Sequence[str]) -> None:
    """Print rows as JSON or as a table."""
    if as_json:
        opt.print_json(rows)
    else:
        _print_table(rows, columns)


def _print_table(rows: Sequence[object], columns: Sequence[str]) -> None:
    table = Table(box=None, pad_edge=False)
    for column in columns:
        table.add_column(
            column.replace("_", " "), no_wrap=column == "name", overflow="fold"
        )
    for row in rows:
        cells = [escape(_cell(column, getattr(row, column))) for column in columns]
        table.add_row(*cells)
    opt.console().print(table)


def _cell(column: str, value: object) -> str:
    """Return a field of a row as a cell.

    >>> _cell("shape", (8, 8)), _cell("parameters", {"k": "3"}), _cell("secure_sum", False)
    ('8x8', 'k=3', 'no')
    """
    match value:
        case bool():
            return "yes" if value else "no"
        case tuple() if column == "shape":
            return "x".join(str(size) for size in value)
        case Mapping() if column == "reveals":
            text = join_disclosures(value)
        case Mapping():
            from fallow.settings.fields import list_parameters

            text = ", ".join(list_parameters(value))
        case tuple():
            text = ", ".join(value)
        case _:
            text = str(value or "")
    return text or "-"
