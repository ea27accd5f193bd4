"""Writes the lists of public classes from the packages: ``python scripts/index.py``.

A query strategy, training algorithm, encoder or partition is a file in its package, a model a class
of `fallow.models.architectures` beside the network of this name.  Their exports, the public names of
`fallow`, the list of names for type checkers, the overview in ``help(fallow)``, and the parameters
that the command line lists are written from the classes.  ``--check`` writes nothing and fails where
a file is out of date.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import inspect
import json
import pkgutil
import re
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, is_dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

if TYPE_CHECKING:
    from fallow.catalog import CatalogEntry

SOURCE = Path(__file__).resolve().parents[1] / "src" / "fallow"
WIDTH = 100  # characters of a line of the overview
COLUMN = 24  # where summaries begin


@dataclass(frozen=True)
class Listing:
    """A package of classes that are found by scanning it.

    ``module`` exports them; ``attributes``: what a class needs to be listed; ``private``: exported
    classes without a public name; ``title``: heading in the overview.
    """

    module: str
    package: str
    attributes: tuple[str, ...]
    title: str
    private: tuple[str, ...] = ()
    also: tuple[str, ...] = ()  # packages whose classes are exported as well
    base: str = ""  # "module.Class": only its subclasses
    without: tuple[str, ...] = ()  # classes that are not exported
    more: tuple[tuple[str, str], ...] = ()  # other exports: module and name, not listed

    @property
    def path(self) -> Path:
        """The file with the exports."""
        relative = SOURCE.parent / self.module.replace(".", "/")
        if relative.is_dir():
            return relative / "__init__.py"
        return relative.with_suffix(".py")


LISTINGS = (
    Listing(
        "fallow.data.partition.partitions",
        "fallow.data.partition",
        ("split",),
        "Partitions",
    ),
    Listing(
        "fallow.strategies", "fallow.strategies", ("contract", "query"), "Query strategies"
    ),
    Listing(
        "fallow.training",
        "fallow.training",
        ("contract", "round", "deploy"),
        "Training algorithms for a global model",
        also=("fallow.training.personal",),
    ),
    Listing(
        "fallow.training.personal",
        "fallow.training.personal",
        ("contract", "round", "deploy"),
        "Training algorithms for personalized models",
    ),
    Listing(
        "fallow.encoders",
        "fallow.encoders",
        ("contract", "fit", "encode"),
        "Encoders",
        private=("Auto",),
    ),
    Listing(
        "fallow.models",
        "fallow.models",
        (),
        "Models",
        base="fallow.models.architectures.Architecture",
        more=(
            ("fallow.models.base", "EmbeddingModel"),
            ("fallow.models.base", "check_model"),
            ("fallow.models.build", "build_model"),
            ("fallow.models.build", "outline_model"),
        ),
    ),
)

FOUND_BY_NAME = (
    Listing(
        "fallow.models.networks",
        "fallow.models",
        (),
        "Networks",
        base="torch.nn.Module",
        without=("CustomModel",),
    ),
    Listing(
        "fallow.data.partition.before_tail",
        "fallow.data.partition",
        ("split",),
        "Partitions inside another one",
        without=("LongTail",),
    ),
    Listing(
        "fallow.measurements.named",
        "fallow.measurements",
        ("title", "fold"),
        "Measurements",
    ),
)
"""Modules of classes that settings name, and that have no public names of their own."""


def find_classes(listing: Listing) -> list[type[Any]]:
    """Return the concrete classes of a package with the attributes of its kind, by name."""
    package = importlib.import_module(listing.package)
    classes = [
        cls
        for module in pkgutil.iter_modules(package.__path__)
        if not module.ispkg
        for cls in _classes_of(importlib.import_module(f"{listing.package}.{module.name}"))
        if _is_listed(cls, listing)
    ]
    return sorted(classes, key=lambda cls: cls.__name__)


def _classes_of(module: Any) -> Iterator[type[Any]]:
    """Yield the public classes that a module defines."""
    for name, value in vars(module).items():
        is_own = inspect.isclass(value) and value.__module__ == module.__name__
        if is_own and not name.startswith("_"):
            yield value


def _is_listed(cls: type[Any], listing: Listing) -> bool:
    if inspect.isabstract(cls) or getattr(cls, "_is_protocol", False):
        return False
    if cls.__name__ in listing.without:
        return False
    if listing.base:
        module, _, name = listing.base.rpartition(".")
        base = getattr(importlib.import_module(module), name)
        return cls is not base and issubclass(cls, base)
    return all(hasattr(cls, attribute) for attribute in listing.attributes)


def public_classes(listing: Listing) -> list[type[Any]]:
    """Return the classes of a package that have a public name."""
    return [cls for cls in find_classes(listing) if cls.__name__ not in listing.private]


def public_names(listing: Listing) -> list[str]:
    """Return the names that `fallow` has of a package."""
    return [cls.__name__ for cls in public_classes(listing)]


# -- the files that are written -------------------------------------------------------------------


def write_exports(listing: Listing) -> str:
    """Return the module that exports the classes of a package.

    A class is imported when it is first used, so that a process has only those that it needs.
    """
    old = listing.path.read_text(encoding="utf-8")
    summary = ast.get_docstring(ast.parse(old), clean=False)
    modules = {cls.__name__: cls.__module__ for cls in find_classes(listing)}
    for other in LISTINGS:
        if other.module in listing.also:
            modules |= {cls.__name__: cls.__module__ for cls in public_classes(other)}
    hidden = [*listing.private, *(name for _, name in listing.more)]
    modules |= {name: module for module, name in listing.more}
    imports = [f"    from {modules[name]} import {name} as {name}" for name in modules]
    rows = [f"    {name!r}: {modules[name]!r}," for name in sorted(modules)]
    arguments = "__name__, MODULES"
    if hidden:
        arguments += f", hidden={hidden}"
    lines = [
        f'"""{summary}"""',
        "",
        "from typing import TYPE_CHECKING",
        "",
        "from fallow.core.exports import import_when_used",
        "",
        "if TYPE_CHECKING:",
        *imports,
        "",
        "MODULES = {",
        *rows,
        "}",
        '"""Class -> the module that defines it."""',
        "__all__ = [*MODULES]",
        "",
        "if not TYPE_CHECKING:",
        f"    __getattr__, __dir__ = import_when_used({arguments})",
        "",
    ]
    return "\n".join(lines)


def write_index() -> str:
    """Return the module with the names of all packages."""
    lines = [
        '"""Public classes by package.  Written by ``scripts/index.py``."""',
        "",
        "CLASSES: dict[str, tuple[str, ...]] = {",
    ]
    for listing in LISTINGS:
        names = "".join(f"        {name!r},\n" for name in public_names(listing))
        lines.append(f"    {listing.module!r}: (\n{names}    ),")
    return "\n".join([*lines, "}", ""])


def write_stub() -> str:
    """Return the list of public names for type checkers and editors."""
    from fallow._names import NAMESPACES, PARTS

    where = {
        name: module
        for parts in PARTS.values()
        for module, names in parts
        for name in names
    }
    for listing in LISTINGS:
        where |= dict.fromkeys(public_names(listing), listing.module)

    lines = [
        '"""Public names, for type checkers and editors.  Written by ``scripts/index.py``."""',
        "",
        "from fallow.core.version import __version__ as __version__",
    ]
    for name, module in NAMESPACES.items():
        package, _, last = module.rpartition(".")
        lines.append(f"from {package} import {last} as {name}")
    for name, module in where.items():
        lines.append(f"from {module} import {name} as {name}")
    return "\n".join([*lines, ""])


def write_overview() -> str:
    """Return ``fallow/__init__.py`` with the overview of all public names."""
    from fallow._names import PARTS

    text = (SOURCE / "__init__.py").read_text(encoding="utf-8")
    opening, _, rest = text.partition(START)
    code = rest[rest.index('"""') :]
    sections = [
        _section(
            title,
            [
                getattr(importlib.import_module(module), name)
                for module, names in parts
                for name in names
            ],
        )
        for title, parts in PARTS.items()
    ]
    for listing in LISTINGS:
        sections.append(_section(listing.title, public_classes(listing)))
    sections.append(NAMESPACE_SECTION)
    return opening + START + "\n\n".join(sections) + "\n" + code


START = "references and an example.\n\n"
"""End of the hand-written part of the overview."""
NAMESPACE_SECTION = """Namespaces
----------
strategies, training, partitions, encoders, models    The classes above, by kind."""


def _section(title: str, values: Sequence[Any]) -> str:
    from fallow.core.names import summarize

    lines = [title, "-" * len(title)]
    for value in values:
        lines += textwrap.wrap(
            f"{value.__name__:<{COLUMN}}{summarize(value)}",
            WIDTH,
            subsequent_indent=" " * COLUMN,
            break_long_words=False,
        )
    return "\n".join(lines)


ALGORITHMS = {
    "fallow.strategies": "strategy",
    "fallow.training": "training",
    "fallow.training.personal": "personal",
}
"""Package -> kind of its algorithms."""


def write_components() -> str:
    """Return the file with names, parameters and disclosures of all components."""
    from fallow.catalog.entries import ENTRIES
    from fallow.settings.classes import PARTS, classes_of
    from fallow.settings.components import SAME

    rows = []
    for part in PARTS:
        if part in SAME:
            continue
        for cls in classes_of(part).values():
            rows.append(_describe_component(part, cls))
    rows += [_describe_dataset(entry) for entry in ENTRIES]
    return json.dumps(rows, indent=1, ensure_ascii=False) + "\n"


def _describe_dataset(entry: CatalogEntry) -> dict[str, object]:
    """Return the fields of `fallow.settings.components.Component` for a named dataset."""
    return {
        "part": "data",
        "name": entry.name,
        "aliases": (),
        "source": f"fallow.data.{entry.name}",
        "summary": f"{entry.rows} examples for {entry.task}.",
        "parameters": (),
        "algorithm": None,
    }


def _describe_component(part: str, cls: type[Any]) -> dict[str, object]:
    """Return the fields of `fallow.settings.components.Component`."""
    from fallow.core.names import spell_class
    from fallow.settings.fields import describe_algorithm

    algorithm = None
    kind = ALGORITHMS.get(cls.__module__.rpartition(".")[0])
    if kind is not None:
        algorithm = asdict(describe_algorithm(spell_class(cls), kind, cls))
        for name in ("name", "aliases", "parameters"):  # fields of every component
            del algorithm[name]
    contract = getattr(cls, "contract", None)
    return {
        "part": part,
        "name": spell_class(cls),
        "aliases": getattr(contract, "aliases", ()),
        "source": f"{cls.__module__}.{cls.__name__}",
        "summary": _first_sentence(cls).replace("``", "`"),
        "parameters": _describe_parameters(cls),
        "algorithm": algorithm,
    }


def _describe_parameters(cls: type[Any]) -> list[dict[str, str]]:
    from fallow.core.kinds import describe_kind
    from fallow.settings.classes import defaults_of
    from fallow.settings.fields import describe_default

    if is_dataclass(cls):
        hints = get_type_hints(cls, include_extras=True)
    else:
        hints = get_type_hints(cls.__init__)
    meanings = _meanings_of(cls)
    return [
        {
            "name": name,
            "type": describe_kind(hints[name]),
            "default": describe_default(value),
            "meaning": meanings[name],
        }
        for name, value in defaults_of(cls).items()
    ]


def _meanings_of(cls: type[Any]) -> Mapping[str, str]:
    """Return the first sentence about each parameter in the docstring of a class."""
    _, _, rest = (inspect.getdoc(cls) or "").partition("Parameters\n----------\n")
    meanings: dict[str, str] = {}
    for entry in ENTRY.finditer(rest.split("\n\n")[0]):
        text = " ".join(entry["text"].split()).replace("``", "`")
        end = re.search(r"\.(?=\s\D|$)", text)  # not that of "Eq. 2"
        if end is not None:
            text = text[: end.start() + 1]
        meanings |= dict.fromkeys(entry["names"].split(", "), text)
    return meanings


ENTRY = re.compile(r"^(?P<names>\w+(, \w+)*)( : .+)?\n(?P<text>(^ +.*\n?)+)", re.MULTILINE)
"""Entry of the section of parameters in a docstring."""


def _first_sentence(cls: type[Any]) -> str:
    """Return the first sentence of the docstring of a class, on one line."""
    text = " ".join((inspect.getdoc(cls) or "").split("\n\n")[0].split())
    end = re.search(r"[a-z)]\.\s", text)
    if end is None:
        return text
    return text[: end.start() + 2]


def written_files() -> dict[Path, Callable[[], str]]:
    """Return each written file with the function that returns its text, in order."""
    return {**exporting_files(), **describing_files()}


def exporting_files() -> dict[Path, Callable[[], str]]:
    """Return the modules that export classes."""
    return {
        listing.path: partial(write_exports, listing)
        for listing in (*LISTINGS, *FOUND_BY_NAME)
    }


def describing_files() -> dict[Path, Callable[[], str]]:
    """Return the files about exported classes."""
    return {
        SOURCE / "_index.py": write_index,
        SOURCE / "settings" / "components.json": write_components,
        SOURCE / "__init__.pyi": write_stub,
        SOURCE / "__init__.py": write_overview,
    }


def format_all(texts: Mapping[Path, str]) -> dict[Path, str]:
    """Return the texts of the files as the formatter writes them, with sorted imports."""
    settings = SOURCE.parents[1] / "pyproject.toml"
    ruff = [sys.executable, "-m", "ruff"]
    with tempfile.TemporaryDirectory() as folder:
        copies = {path: Path(folder) / path.relative_to(SOURCE) for path in texts}
        for path, copy in copies.items():
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_text(texts[path], encoding="utf-8")
        options = ["-q", "--config", str(settings), folder]
        subprocess.run([*ruff, "check", "--fix-only", *options], check=True)
        subprocess.run([*ruff, "format", *options], check=True)
        return {path: copy.read_text(encoding="utf-8") for path, copy in copies.items()}


def update(files: Mapping[Path, Callable[[], str]], *, is_check: bool) -> list[str]:
    """Write the files whose text changes, or only return their names."""
    texts = format_all({path: write() for path, write in files.items()})
    outdated = []
    for path, text in texts.items():
        if text == path.read_text(encoding="utf-8"):
            continue
        outdated.append(path.relative_to(SOURCE.parents[1]).as_posix())
        if not is_check:
            path.write_text(text, encoding="utf-8")
    return outdated


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Write the lists of public classes.")
    parser.add_argument(
        "--check", action="store_true", help="write nothing; fail if outdated"
    )
    options = parser.parse_args(arguments)
    outdated = update(exporting_files(), is_check=options.check)
    if outdated and not options.check:
        for listing in (*LISTINGS, *FOUND_BY_NAME):  # the other files are about them
            importlib.reload(importlib.import_module(listing.module))
    outdated += update(describing_files(), is_check=options.check)
    if options.check and outdated:
        print(f"out of date: {', '.join(outdated)}; run python scripts/index.py")
        return 1
    for name in outdated:
        print(f"wrote {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
