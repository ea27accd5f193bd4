"""Write the reference pages: public names, algorithms, commands and terms, from their sources."""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import click
from typer.main import get_command

from fallow._index import CLASSES
from fallow._names import PARTS
from fallow.cli.app import build_app
from fallow.configs.papers import load_papers
from fallow.core.client import declared
from fallow.core.names import spell_class
from fallow.settings.classes import classes_of
from fallow.settings.components import list_components
from fallow.settings.fields import AlgorithmRow, list_algorithms

HERE = Path(__file__).resolve().parent

TITLES = {
    "fallow.strategies": ("Query strategies", "Select the examples to label next."),
    "fallow.training": ("Training algorithms", "Train one global model."),
    "fallow.training.personal": (
        "Personalized training algorithms",
        "Train one model per site.",
    ),
    "fallow.data.partition.partitions": (
        "Partitions",
        "Partition examples over simulated sites.",
    ),
    "fallow.encoders": ("Encoders", "Compute features of examples without labels."),
    "fallow.models": ("Models", "Networks of the package."),
}
SUMMARIES = {
    "Datasets": "Load, describe and distribute examples.",
    "Experiments": "Run and compare query strategies, and read the results.",
    "Experiment configuration": "Settings of experiments, as objects.",
    "Selection from arrays": "Select examples without a run.",
    "Custom algorithms": "Base classes of your own algorithms, and what they declare.",
}
"""Summary of each section of public names (`fallow._names.PARTS`)."""

KINDS = {
    "strategy": "Query strategies",
    "training": "Training algorithms (one global model)",
    "personal": "Personalized training algorithms (one model per site)",
}


def write_reference(folder: Path) -> None:
    """Write ``index.rst`` and all reference pages; leave unchanged files alone."""
    folder.mkdir(exist_ok=True)
    pages = {}
    public = []
    for title, parts in PARTS.items():
        listed = [name for _, names in parts for name in names]
        pages[title.lower().replace(" ", "-")] = _page(title, SUMMARIES[title], listed)
        public += listed
    for module, listed in CLASSES.items():
        title, summary = TITLES[module]
        pages[module.rpartition(".")[2]] = _page(title, summary, listed)
    entries = "\n".join(f"   {page}" for page in pages)
    pages["index"] = (
        f"{_title('Python API')}\n\nAll public names of ``import fallow as fl``.\n\n"
        f".. toctree::\n   :maxdepth: 2\n\n{entries}\n"
    )
    pages["algorithms"] = algorithms_page()
    pages["disclosures"] = disclosures_page()
    pages["commands"] = commands_page()
    pages["glossary"] = glossary_page()
    for page, text in pages.items():
        file = folder / f"{page}.rst"
        if not file.exists() or file.read_text(encoding="utf-8") != text:
            file.write_text(text, encoding="utf-8")
    remove_others(folder, pages)
    public += [name for listed in CLASSES.values() for name in listed]
    remove_others(folder / "names", [f"fallow.{name}" for name in public])


def remove_others(folder: Path, stems: Collection[str]) -> None:
    """Remove pages of names that were renamed since the last build."""
    for file in folder.glob("*.rst"):
        if file.stem not in stems:
            file.unlink()


def _page(title: str, summary: str, listed: Sequence[str]) -> str:
    entries = "\n".join(f"   {name}" for name in sorted(listed, key=str.lower))
    return (
        f"{_title(title)}\n\n{summary}\n\n"
        f".. currentmodule:: fallow\n\n.. autosummary::\n   :toctree: names\n\n{entries}\n"
    )


# -- algorithms


def algorithms_page() -> str:
    """Return a table of each kind of algorithm."""
    parts = [
        _title("Algorithms"),
        "All query strategies and training algorithms, with the names that TOML files and "
        "commands take. *Noise*: supports differential privacy of counts "
        "(``privacy.epsilon``). *Secure aggregation*: supports ``privacy.secure_sum``.",
    ]
    summaries = {}
    for component in list_components():
        if component.algorithm is not None:
            summaries[component.name] = component.summary
    for kind, title in KINDS.items():
        rows = []
        for algorithm in sorted(list_algorithms(), key=lambda item: item.name):
            if algorithm.kind == kind:
                rows.append(_describe(algorithm, summaries[algorithm.name]))
        parts += [_heading(title), _table(HEADS, rows)]
    codes = sorted(code for paper in load_papers() for code in paper.codes)
    rows = [[f"``{code.word}``", _rst(code.load().contract.title)] for code in codes]
    parts += [
        _heading("Public code that differs from its paper"),
        "These names run what the public code of a paper runs, for reproduction only.",
        _table(("name", "algorithm"), rows),
    ]
    return "\n\n".join(parts) + "\n"


HEADS = ("name", "what it does", "paper", "noise", "secure aggregation")


def _describe(algorithm: AlgorithmRow, summary: str) -> list[str]:
    paper = "–"
    if algorithm.year:
        paper = f"{algorithm.paper} ({algorithm.year})"
    flags = [algorithm.local_dp, algorithm.secure_sum]
    supported = ["yes" if flag else "no" for flag in flags]
    return [f"``{algorithm.name}``", _rst(summary), _rst(paper), *supported]


# -- disclosures

GROUPS = {
    "counts": "Counts",
    "aggregates": "Aggregates and other numbers",
    "models": "Models",
    "status": "Status of a site",
}


def disclosures_page() -> str:
    """Return what the algorithms disclose, by the kinds of the fields that they declare."""
    named: dict[tuple[str, str], list[str]] = {}
    for part in ("strategy", "training"):
        for cls in sorted(classes_of(part).values(), key=spell_class):
            for function in declared(cls()).values():
                line = (function.group, function.discloses)
                algorithms = named.setdefault(line, [])
                if spell_class(cls) not in algorithms:
                    algorithms.append(spell_class(cls))
    parts = [
        _title("Disclosures"),
        "Data that query strategies and training algorithms may send with their default "
        "settings. The group follows from the kinds of the fields that a client function "
        "declares.",
    ]
    for group, title in GROUPS.items():
        rows = []
        for (of_group, discloses), algorithms in named.items():
            if of_group == group and discloses != "nothing":
                rows.append([_rst(discloses), ", ".join(algorithms)])
        parts += [_heading(title), _table(("data", "algorithms"), sorted(rows))]
    return "\n\n".join(parts) + "\n"


# -- commands


def commands_page() -> str:
    """Return the commands with their arguments and options."""
    parts = [
        _title("Command line"),
        "``fallow --help`` lists the commands, and ``fallow COMMAND --help`` shows one of them. "
        "Run ``fallow`` without arguments for next steps.",
    ]
    for path, command in walk_commands(get_command(build_app()), "fallow"):
        parts += [_heading(path), _rst(_paragraphs(command.help or ""))]
        rows = [_parameter(parameter) for parameter in command.params]
        if rows:
            parts.append(_table(("argument or option", "meaning"), rows))
    return "\n\n".join(parts) + "\n"


def walk_commands(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    """Yield every command that does something, with its words."""
    if isinstance(command, click.Group):
        for name, child in command.commands.items():
            if not child.hidden:
                yield from walk_commands(child, f"{path} {name}")
    else:
        yield path, command


def _parameter(parameter: click.Parameter) -> list[str]:
    meaning = " ".join((getattr(parameter, "help", None) or "").split())
    if isinstance(parameter, click.Argument):
        return [
            f"``{parameter.make_metavar(click.Context(click.Command('')))}``",
            _rst(meaning),
        ]
    flags = ", ".join(f"``{flag}``" for flag in parameter.opts)
    return [flags, _rst(meaning)]


def _paragraphs(text: str) -> str:
    """Return the text with one line per paragraph."""
    blocks = text.replace("\b\n", "").split("\n\n")
    return "\n\n".join(" ".join(block.split()) for block in blocks)


# -- terms


def glossary_page() -> str:
    """Return the terms in alphabetical order."""
    terms = tomllib.loads((HERE / "terms.toml").read_text(encoding="utf-8"))
    parts = [
        _title("Glossary"),
        "Fallow uses each term in one sense, the standard one where the field has it.",
    ]
    for term, meaning in sorted(terms.items(), key=lambda entry: entry[0].lower()):
        parts.append(f"{term}\n   {_rst(meaning)}")
    return "\n\n".join(parts) + "\n"


# -- pieces of reStructuredText


def _title(text: str) -> str:
    return f"{text}\n{'=' * len(text)}"


def _heading(text: str) -> str:
    return f"{text}\n{'-' * len(text)}"


def _rst(text: str) -> str:
    """Return Markdown of one line as reStructuredText."""
    escaped = text.replace("*", r"\*").replace("|", r"\|").replace("``", "`")
    return "``".join(escaped.split("`"))


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [".. list-table::", "   :header-rows: 1", ""]
    for row in [heads, *rows]:
        for at, cell in enumerate(row):
            start = "   * - " if at == 0 else "     - "
            lines.append(f"{start}{cell}".rstrip())
    return "\n".join(lines)
