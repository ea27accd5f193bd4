"""Options shared by several commands."""

from __future__ import annotations

import functools
import inspect
import json
import math
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    TypeVar,
    cast,
    get_args,
    get_type_hints,
)

import typer
from rich.console import Console

from fallow.cli.completion import complete_config, complete_setting, complete_strategies
from fallow.cli.log_lines import LogFormat
from fallow.cli.terminal import print_lines
from fallow.core.load_options import DEFAULTS, FORMS, OPTIONS, flag_of
from fallow.deployment.descriptions import as_help
from fallow.settings.descriptions import MEANINGS
from fallow.settings.spec import split_strategies
from fallow.storage.errors import Stopped
from fallow.storage.plain import printable

if TYPE_CHECKING:
    from fallow.settings.config import ExperimentConfig

ConfigName = Annotated[
    str,
    typer.Argument(
        help="Experiment configuration ('fallow configs'), .toml file, data file, or dataset",
        autocompletion=complete_config,
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        "-s",
        metavar="KEY=VALUE",
        help="Change a setting, e.g. cycles=3 (list: 'fallow settings'); repeatable",
        autocompletion=complete_setting,
    ),
]
Budget = Annotated[
    str | None,
    typer.Option("--budget", metavar="LABELS", help=as_help(MEANINGS["budget"])),
]
Data = Annotated[
    str | None,
    typer.Option("--data", help=as_help(MEANINGS["data"])),
]


def refuse_options(value: str | None) -> str | None:
    """Return the value of ``-q``, which elsewhere is often an option without a value.

    Raises typer.BadParameter for an option.
    """
    if value is not None and value.startswith("-"):
        raise typer.BadParameter(
            f"{value!r} is an option and not a strategy; --quiet suppresses output"
        )
    return value


Query = Annotated[
    str | None,
    typer.Option(
        "--strategy",
        "-q",
        callback=refuse_options,
        help="Query strategy, e.g. entropy:model=global (list: 'fallow algorithms')",
        autocompletion=complete_strategies,
    ),
]
Queries = Annotated[
    str | None,
    typer.Option(
        "--strategy",
        "-q",
        callback=refuse_options,
        help="Query strategies, e.g. random,entropy:model=global (list: 'fallow algorithms')",
        autocompletion=complete_strategies,
    ),
]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Random seed")]
FirstSeed = Annotated[int, typer.Option("--first-seed", min=0, help="First random seed")]
Seeds = Annotated[
    int | None,
    typer.Option("--seeds", min=1, help=as_help(MEANINGS["seeds"])),
]
Out = Annotated[Path | None, typer.Option("--out", "-o", help="Output folder")]
Resume = Annotated[
    bool, typer.Option("--resume", help="Resume the study in the output folder")
]
DryRun = Annotated[
    bool,
    typer.Option("--dry-run", help="Estimate examples, time and bytes without running"),
]
DataDir = Annotated[
    Path | None,
    typer.Option("--data-dir", envvar="FALLOW_DATA", help="Folder with data files"),
]
Jobs = Annotated[
    int | None,
    typer.Option("--jobs", "-j", min=1, help="Number of processes (default: one per core)"),
]
Cluster = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        metavar="ADDRESS",
        help="Run on a Dask cluster, e.g. tcp://host:8786",
    ),
]
Track = Annotated[
    list[str] | None,
    typer.Option(
        "--track",
        metavar="TRACKER",
        help="Also log to mlflow, wandb or tensorboard; repeatable",
    ),
]
Threads = Annotated[
    int, typer.Option("--threads", min=1, help="Number of threads per process")
]
Json = Annotated[bool, typer.Option("--json", help="Print a JSON array instead of a table")]
AsObject = Annotated[
    bool, typer.Option("--json", help="Print a JSON object instead of text")
]
AsLines = Annotated[
    bool,
    typer.Option(
        "--json",
        help="Print one JSON object per event, with time, event and text",
    ),
]
LogForm = Annotated[
    LogFormat | None,
    typer.Option(
        "--log-format",
        help="Write log lines with date, level, study and party, as text or JSON",
    ),
]
OwnCode = Annotated[
    bool,
    typer.Option(
        "--own-code",
        help="Import classes that the study names as module:Class; this runs their code",
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", help="Suppress all output except errors")]


Command = TypeVar("Command", bound=Callable[..., None])
Loading = dict[str, Any]  # Any: values of options by the name of their setting
"""Options of loading that are given."""


def reads_data(
    names: Sequence[str] = tuple(OPTIONS), meanings: Mapping[str, str] = MEANINGS
) -> Callable[[Command], Command]:
    """Replace the parameter ``loading`` of a command by an option for each of some `LoadOptions`."""

    def list_given(chosen: Loading) -> Loading:
        return {name: value for name, value in chosen.items() if value not in (None, False)}

    options = [_declare_option(name, as_help(meanings[name])) for name in names]
    return _replace_parameter("loading", options, list_given)


def takes_settings(
    parameter: str, kind: type, meanings: Mapping[str, str]
) -> Callable[[Command], Command]:
    """Replace a parameter of a command by an option for each field of its dataclass.

    Parameters
    ----------
    parameter : str
        Parameter of the command, an instance of the dataclass.
    kind : type
        The dataclass; all its fields have defaults.
    meanings : mapping
        Descriptions of the fields.
    """
    hints = get_type_hints(kind)
    options: list[inspect.Parameter] = []
    for field in fields(kind):
        option = typer.Option(flag_of(field.name), help=as_help(meanings[field.name]))
        options.append(
            inspect.Parameter(
                field.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=field.default,
                annotation=Annotated[hints[field.name], option],
            )
        )
    return _replace_parameter(parameter, options, lambda chosen: kind(**chosen))


def _replace_parameter(
    replaced: str, options: Sequence[inspect.Parameter], build: Callable[[Loading], Any]
) -> Callable[[Command], Command]:
    """Replace a parameter of a command by options, from whose values ``build`` builds its value."""

    def declare(command: Command) -> Command:
        signature = inspect.signature(command, eval_str=True)
        shown = [p.replace(kind=p.KEYWORD_ONLY) for p in signature.parameters.values()]
        at = [parameter.name for parameter in shown].index(replaced)
        shown[at : at + 1] = options

        @functools.wraps(command)
        def read(**values: Any) -> None:  # Any: values of all parameters, from typer
            chosen = {option.name: values.pop(option.name) for option in options}
            command(**{replaced: build(chosen)}, **values)

        read.__signature__ = signature.replace(parameters=shown)  # type: ignore[attr-defined]
        read.__annotations__ = {p.name: p.annotation for p in shown}
        return cast(Command, read)

    return declare


def _declare_option(name: str, meaning: str) -> inspect.Parameter:
    """Return the parameter of a command for an option of loading."""
    usual = getattr(DEFAULTS, name)
    details: dict[str, Any] = {"help": meaning}
    annotation: Any = str | None
    default = None
    if isinstance(usual, bool):
        annotation = bool
        default = False
    elif name == "header_row":
        annotation = int | None
        details["min"] = 1
    elif isinstance(usual, tuple):
        details["metavar"] = "A,B"
    elif isinstance(usual, str):
        details["metavar"] = "|".join(get_args(FORMS[name]))
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=default,
        annotation=Annotated[annotation, typer.Option(flag_of(name), **details)],
    )


def as_settings(loading: Loading) -> dict[str, str]:
    """Return options of loading as texts of settings.

    >>> as_settings({"merge": True, "header_row": 3})
    {'merge': 'true', 'header_row': '3'}
    """
    settings = {name: str(value) for name, value in loading.items()}
    flags = {name: "true" for name, value in loading.items() if value is True}
    return settings | flags


@dataclass(frozen=True)
class Results:
    """Types of what a command prints with ``--json``, as ``module:Name``.

    They are imported on demand, because pydantic takes a tenth of a second.
    """

    kinds: tuple[str, ...]
    is_list: bool = False


def shows(*kinds: str, is_list: bool = False) -> Callable[[Command], Command]:
    """Declare what a command prints with ``--json``: one of these types, or a list of them."""

    def declare(command: Command) -> Command:
        command.__results__ = Results(kinds, is_list)  # type: ignore[attr-defined]
        return command

    return declare


class Screen(Console):
    """Console that removes control and bidirectional characters from untrusted text."""

    def print(self, *objects: Any, **options: Any) -> None:  # signature of rich
        shown = []
        for item in objects:
            if isinstance(item, str):
                item = printable(item)
            shown.append(item)
        super().print(*shown, **options)


def check_log(form: LogFormat | None, *, as_json: bool) -> None:
    """Raise ValueError if two output formats are requested."""
    if form is not None and as_json:
        raise ValueError(
            "--json and --log-format are mutually exclusive; --log-format json also includes "
            "the level and the study"
        )


def named_config(config: str, data: str | None) -> tuple[str | None, str | None]:
    """Return the name of the configuration and the data, if data take the place of the name.

    The configuration is then None: the defaults of `fallow.run` and `fallow.compare`.  A folder
    with a study is not data: a study may have been written to a folder named ``demo``.

    >>> named_config("patients.csv", None), named_config("digits", None)
    ((None, 'patients.csv'), (None, 'digits'))
    """
    from fallow.cli.arguments import is_dataset
    from fallow.storage.table_suffixes import TABLES

    path = Path(config)
    is_folder = path.is_dir() and not (path / "study.json").exists()
    is_data = is_folder or path.suffix.lower() in (*TABLES, ".npz")
    if data is None and (is_data or is_dataset(config)):
        return None, config
    return config, data


def read_config(
    name: str | None, settings: Mapping[str, str], strategies: Iterable[str] = ()
) -> tuple[ExperimentConfig, dict[str, str]]:
    """Read the configuration of a command, and the ``settings`` with their full names.

    In a file without a training algorithm, the settings and ``strategies`` must be compatible with the
    default one.  Without a name, the configuration is that of `fallow.compare`.

    >>> read_config("demo", {"lr": "0.1"})[1]
    {'training_config.optimizer.lr': '0.1'}
    """
    from fallow.configs.defaults import default_config
    from fallow.configs.find import find_config
    from fallow.settings.fields import expand

    if name is None:
        changes = expand(default_config(settings), settings)
        return default_config(changes, strategies), changes
    changes = expand(find_config(name, settings), settings)  # full names
    config = find_config(name, changes, strategies)
    return config, expand(config, settings)


def specified_settings(
    name: str | None, changes: Mapping[str, str], strategies: Sequence[str] | None
) -> dict[str, object]:
    """Return the settings of a command and, if it uses them unchanged, of its file.

    Other strategies or another training algorithm may not use what the file specifies.
    """
    from fallow.storage.received import read_toml

    others = strategies or {"training", "strategy", "strategies"} & {*changes}
    if name is None or not name.endswith(".toml") or others:
        return {**changes}
    return {**read_toml(Path(name)), **changes}


def check_resume(out: Path | None, resume: bool, what: str) -> None:
    """Raise ValueError for ``--resume`` without the folder of what is resumed."""
    if out is None and resume:
        raise ValueError(f"--resume requires the folder of the {what}: add --out FOLDER")


@contextmanager
def stoppable(out: Path) -> Iterator[None]:
    """Report after Ctrl-C how the work in a folder is resumed."""
    try:
        yield
    except KeyboardInterrupt as error:
        raise Stopped(
            f"stopped; finished runs are in {out}: repeat the command with --resume "
            f"--out {out} to resume"
        ) from error


def named_strategies(text: str | None, option: str = "--strategy") -> list[str] | None:
    """Parse the comma-separated strategies of an option; None without the option.

    >>> named_strategies("random, margin"), named_strategies(None)
    (['random', 'margin'], None)
    >>> named_strategies("random@budget=[2,4],margin")
    ['random@budget=[2,4]', 'margin']
    """
    if text is None:
        return None
    result = split_strategies(text)
    if not result:
        raise ValueError(
            f"{option} is empty; omit it for the default strategies, or choose from "
            "'fallow algorithms'"
        )
    return result


def strategies_set(pairs: Iterable[str] | None) -> list[str]:
    """Return the query strategies among ``KEY=VALUE`` pairs.

    >>> strategies_set(["cycles=2", "strategy=margin"])
    ['margin']
    """
    result = []
    for pair in pairs or []:
        key, _, value = pair.partition("=")
        # other forms are checked when they are parsed
        is_name = not value.startswith(("[", "{"))
        if key == "strategy" and is_name:
            result.append(value)
        elif key == "strategies" and is_name:
            result += split_strategies(value)
    return result


def console(*, quiet: bool = False) -> Console:
    """Return the console; tables in a pipe are not limited to the terminal width.

    ``quiet`` suppresses all output.
    """
    width = None  # that of the terminal
    if not sys.stdout.isatty():
        width = 160
    return Screen(width=width, highlight=False, emoji=False, quiet=quiet)


def split_names(text: str) -> tuple[str, ...]:
    """Split a comma-separated list of names.

    >>> split_names("a, b,")
    ('a', 'b')
    """
    names = [word.strip() for word in text.split(",")]
    return tuple(name for name in names if name)


def print_json(result: object) -> None:
    """Print the result of a command as JSON; numbers that are not finite become null."""
    typer.echo(json.dumps(_plain(result), indent=1))


def _plain(value: Any) -> object:  # Any: fields of results
    """Return a result as values of JSON."""
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def warn(text: str) -> None:
    """Print a warning."""
    typer.echo(printable(f"warning: {text}"), err=True)


def as_text(value: Path | int | None) -> str | None:
    """Return a path or a number as a setting or a result."""
    return None if value is None else str(value)


def tell(lines: Iterable[str], result: object, *, quiet: bool, as_json: bool) -> None:
    """Print the result of a command as lines that describe it, as JSON, or not at all."""
    if as_json:
        print_json(result)
    elif not quiet:
        print_lines(console(), lines)


def restrict_permissions() -> None:
    """Restrict the permissions of all files of this process to the owner."""
    from fallow.storage.files import OTHERS

    os.umask(OTHERS)


def settings(
    pairs: list[str] | None,
    data: str | None,
    loading: Loading,
    budget: str | None = None,
) -> dict[str, str]:
    """Combine ``KEY=VALUE`` pairs and the data options into a dictionary.

    ``loading`` has the options of loading by the name of their setting.  A site column implies the
    natural partition with all its sites, unless the pairs override it.  Raises ValueError for a pair
    without ``=``, and for a setting with two values.
    """
    words: dict[str, str] = {}
    for pair in pairs or []:
        key, equals, value = pair.partition("=")
        if not equals:
            raise ValueError(f"--set {pair!r} is not of the form key=value")
        if words.get(key, value) != value:
            raise ValueError(
                f"--set {key} is given twice, as {words[key]!r} and {value!r}; omit one of them"
            )
        words[key] = value
    details = {}
    options = {"data": data, **as_settings(loading), "budget": budget}
    for key, option in options.items():
        if option is None:
            continue
        if words.get(key, option) != option:
            raise ValueError(
                f"{flag_of(key)} is {option!r} and --set {key} is {words[key]!r}; "
                "omit one of them"
            )
        details[key] = option
    values = details | words
    if "site" not in values:
        return values
    return {"partition": "natural", "sites": "0"} | values
