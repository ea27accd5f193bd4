"""Options of loading data: the one declaration of all that `fallow.load`, settings and CLI take."""

from __future__ import annotations

import inspect
import re
import shlex
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal, ParamSpec, TypedDict, TypeVar, Unpack, final
from typing import get_type_hints as hints_of

from fallow.core.limits import PositiveInt, check_limits
from fallow.core.suggestions import require_known
from fallow.core.wording import add_parameters, compose, join_words

P = ParamSpec("P")
R = TypeVar("R")

Kind = Literal["table", "workbook", "frame", "images", "arrays", "named"]
KINDS: dict[Kind, str] = {
    "table": "a text, Parquet or Feather file",
    "workbook": "an Excel file",
    "frame": "a data frame",
    "images": "a folder of images",
    "arrays": "a file of arrays",
    "named": "a named dataset",
}
"""Kinds of data, and nouns for them."""
TABLES: tuple[Kind, ...] = ("table", "workbook", "frame")


Pages = Literal["refuse", "each"]
"""Use of a file of several images: refused, or each image is an example."""
DecimalMark = Literal["auto", ".", ","]
"""Decimal mark of numbers in text; "auto" if it is not known."""


@final
@dataclass(frozen=True)
class KnownMarks:
    """Marks of the numbers in a file, by which further files of its source are read.

    points: columns with a decimal point beside columns with decimal commas.
    """

    decimal: DecimalMark = "auto"
    points: tuple[str, ...] = ()


UNKNOWN_MARKS = KnownMarks()
"""Marks of a file in which no number has one."""


@final
@dataclass(frozen=True)
class Option:
    """Description of an option in its annotation.

    Attributes
    ----------
    meaning : str
        Description for ``help``, the settings reference and the command line.
    kinds : tuple of str
        Kinds of data to which the option applies.
    """

    meaning: str
    kinds: tuple[Kind, ...] = TABLES


COLUMNS = ("label", "site", "group", "id")
"""Options that name one column."""
COLUMN_LISTS = ("labels", "drop", "columns")
"""Options that name several columns."""


@dataclass(frozen=True, kw_only=True)
class LoadOptions:
    """Options that determine, with the files, which examples are read.

    An experiment configuration has these fields among its settings.
    """

    label: Annotated[
        str | None,
        Option("Column with the labels, also of a list of images.", (*TABLES, "images")),
    ] = None
    labels: Annotated[
        tuple[str, ...],
        Option(
            "Labels of which an example may have several: columns with 0, 1 or nothing for unknown, "
            "or the names that cells of the column label list, such as a;b.",
            (*TABLES, "arrays"),
        ),
    ] = ()
    site: Annotated[str | None, Option("Column with the site ID.")] = None
    group: Annotated[
        str | None,
        Option(
            "Column with the group, such as the patient, or PatientID or SeriesInstanceUID of DICOM "
            "images; no split divides a group.",
            (*TABLES, "images"),
        ),
    ] = None
    id: Annotated[str | None, Option("Column with the example ID.")] = None
    drop: Annotated[tuple[str, ...], Option("Columns to ignore.")] = ()
    columns: Annotated[
        tuple[str, ...], Option("Columns to use as features (default: all others).")
    ] = ()
    task: Annotated[
        Literal["auto", "classification", "regression"],
        Option("Type of the labels of a table; auto: detected from their values."),
    ] = "auto"
    classes: Annotated[
        tuple[str, ...],
        Option(
            "Class names in order; none: those of the labels, sorted.",
            (*TABLES, "images", "arrays"),
        ),
    ] = ()
    drop_rows: Annotated[
        bool,
        Option(
            "Drop examples of your own data with missing or infinite features.",
            (*TABLES, "arrays"),
        ),
    ] = False
    merge: Annotated[
        bool,
        Option(
            "Make one name of names in your own table that differ only in their writing."
        ),
    ] = False
    decimal: Annotated[
        DecimalMark,
        Option(
            "Decimal mark of numbers in text; the other mark separates thousands; auto: from "
            "the cells of the file."
        ),
    ] = "auto"
    sheet: Annotated[
        str | None, Option("Sheet of your own Excel file; none: the first.", ("workbook",))
    ] = None
    header_row: Annotated[
        PositiveInt | None,
        Option(
            "Row of your own Excel file with the names of the columns; none: the first.",
            ("workbook",),
        ),
    ] = None
    physical_range: Annotated[
        tuple[float, ...],
        Option(
            "Physical values of DICOM images, such as HU, that are black and white; none: "
            "quantiles over all sites.",
            ("images",),
        ),
    ] = ()
    pages: Annotated[
        Pages,
        Option(
            "Files with several pages or frames: refused, or each page is one example.",
            ("images",),
        ),
    ] = "refuse"
    channels: Annotated[
        Literal["auto", "first", "last"],
        Option(
            "Position of the channel dimension of images in an .npz file; auto: from the shape.",
            ("arrays",),
        ),
    ] = "auto"

    def __post_init__(self) -> None:
        if self.labels and (self.classes or self.task != "auto"):
            raise ValueError(
                "labels names several labels of an example, which have neither classes nor another "
                "task; omit classes and task, or labels"
            )
        for name in (*COLUMNS, *COLUMN_LISTS):  # as tables have them
            value = getattr(self, name)
            if isinstance(value, str):
                object.__setattr__(self, name, compose(value))
            elif isinstance(value, tuple):
                names = [compose(item) if isinstance(item, str) else item for item in value]
                object.__setattr__(self, name, tuple(names))


class LoadKeywords(TypedDict, total=False):
    """Fields of `LoadOptions` as keywords, for editors and type checkers."""

    label: str | Sequence[str] | None
    labels: Sequence[str]
    site: str | None
    group: str | None
    id: str | None
    drop: Sequence[str]
    columns: Sequence[str]
    task: Literal["auto", "classification", "regression"]
    classes: Sequence[str]
    drop_rows: bool
    merge: bool
    decimal: DecimalMark
    sheet: str | None
    header_row: int | None
    physical_range: Sequence[float]
    pages: Pages
    channels: Literal["auto", "first", "last"]


NAMES = tuple(field.name for field in fields(LoadOptions))
DEFAULTS = LoadOptions()
HINTS = hints_of(LoadOptions, include_extras=True)


def _read_option(name: str) -> Option:
    """Return the description in the annotation of an option."""
    (option,) = (part for part in HINTS[name].__metadata__ if isinstance(part, Option))
    return option


FORMS = hints_of(LoadOptions)
"""Type of each option."""
OPTIONS = {name: _read_option(name) for name in NAMES}


def build_options(**keywords: Unpack[LoadKeywords]) -> LoadOptions:
    """Return checked options; lists become tuples, and names of columns become texts.

    A list of columns as ``label`` is the option ``labels``.

    >>> build_options(label="sick", drop=["ward"]).drop
    ('ward',)
    >>> build_options(label=["oedema", "effusion"]).labels
    ('oedema', 'effusion')
    """
    values: dict[str, Any] = dict(keywords)
    if isinstance(values.get("label"), list | tuple):
        if "labels" in values:
            raise ValueError(
                f"label is {values['label']!r}, and labels are given too; omit one of them"
            )
        values["labels"] = values.pop("label")
    for name, value in values.items():
        if isinstance(getattr(DEFAULTS, name), tuple):
            values[name] = _list_values(name, value)
        elif name in COLUMNS and value is not None:
            values[name] = _name_column(value)
    options = LoadOptions(**values)
    check_limits(options)
    return options


def _name_column(value: object) -> str:
    """Return the name of a column of a frame as text."""
    if not isinstance(value, Hashable):
        raise ValueError(
            f"{value!r} is a {type(value).__name__}; give the name of a column"
        )
    return str(value)


def _list_values(name: str, values: object) -> tuple[Any, ...]:
    """Return the values of an option that takes several; a text would be a list of letters."""
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise ValueError(f"{name} is {values!r}; give a list, such as {name}=[{values!r}]")
    if name == "physical_range":
        return tuple(values)
    return tuple(map(str, values))


def list_given(options: LoadOptions) -> dict[str, Any]:
    """Return the options that are not the default, by name."""
    values = {name: getattr(options, name) for name in NAMES}
    return {
        name: value for name, value in values.items() if value != getattr(DEFAULTS, name)
    }


def check_applies(source: object, kind: Kind, options: LoadOptions) -> None:
    """Raise ValueError for options that do not apply to a kind of data.

    >>> check_applies("iris", "named", LoadOptions(label="species"))
    Traceback (most recent call last):
    ValueError: iris is a named dataset: label='species' does not apply to it; omit --label (label=)
    """
    useless = {
        name: value
        for name, value in list_given(options).items()
        if kind not in OPTIONS[name].kinds
    }
    if not useless:
        return
    shown = join_words([f"{name}={value!r}" for name, value in useless.items()])
    predicate = "does" if len(useless) == 1 else "do"
    raise ValueError(
        f"{source} is {KINDS[kind]}: {shown} {predicate} not apply to it; omit "
        f"{join_words([f'{flag_of(name)} ({name}=)' for name in useless])}"
    )


OF_FILES = ("sheet", "header_row", "pages", "merge")
"""Options by which files of new examples are read as those of training."""
FileOptions = Mapping[str, str | int | bool]
"""Options in `OF_FILES` that are not the default, by name."""


def list_of_files(options: LoadOptions) -> FileOptions:
    """Return the options in `OF_FILES` that are not the default."""
    return {name: value for name, value in list_given(options).items() if name in OF_FILES}


def read_options(files: Mapping[str, Any]) -> LoadOptions:
    """Return the options in a model file.

    >>> read_options({"header_row": 3}).header_row
    3
    >>> read_options({"label": "sick"})
    Traceback (most recent call last):
    ValueError: 'label' is no option of files; known: header_row, merge, pages, sheet
    """
    for name in files:
        require_known(name, OF_FILES, f"{name!r} is no option of files")
    sheet = files.get("sheet", "")
    if not isinstance(sheet, str):
        raise ValueError(f"sheet is {sheet!r}; it must be the name of a sheet")
    return build_options(**files)


def flag_of(name: str) -> str:
    """Return the option of the command line for a setting.

    >>> flag_of("header_row")
    '--header-row'
    """
    return f"--{name.replace('_', '-')}"


def require_label(source: object, options: LoadOptions) -> None:
    """Raise ValueError if the column of labels of a table is unknown."""
    if options.label is None and not options.labels:
        raise ValueError(
            f"{source} is a table; set its column of labels with --label (label=)"
        )


ASSIGNED = re.compile(
    r"""\b(\w+)=(\[(?:'[^']*'|"[^"]*"|[^]'"])*\]|\([^)]*\)|'[^']*'|[\w.]+)"""
)
"""Setting with its value in Python."""


def as_flags(fix: str) -> str:
    """Return settings as they are given on the command line.

    >>> as_flags("drop=['dose [mg]'], or id='dose [mg]' for an identifier")
    "--drop 'dose [mg]', or --id 'dose [mg]' for an identifier"
    >>> (
    ...     as_flags("drop_rows=True"),
    ...     as_flags("columns=[..., 'age']"),
    ...     as_flags("validation=0.1"),
    ... )
    ('--drop-rows', '--columns ...,age', '--set validation=0.1')
    """
    return ASSIGNED.sub(_write_flag, fix)


def _write_flag(match: re.Match[str]) -> str:
    name, text = match.groups()
    if name not in OPTIONS:
        return f"--set {name}={text}"
    flag = flag_of(name)
    if text in ("True", "False"):
        return flag if text == "True" else f"no {flag}"
    value = text.strip("[]()") if text[0] in "[(" else text
    words = [word.strip(" '\"") for word in value.split(",")]
    return f"{flag} {shlex.quote(','.join(words))}"


def takes_options(function: Callable[P, R]) -> Callable[P, R]:
    """Show the options, instead of ``**options``, in the signature and docstring of a function."""
    signature = inspect.signature(function)
    own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
    keywords = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=getattr(DEFAULTS, name),
            annotation=LoadKeywords.__annotations__[name].__forward_arg__,
        )
        for name in NAMES
    ]
    shown: Any = function
    shown.__signature__ = signature.replace(parameters=[*own, *keywords])
    entries = [
        f"    {name}\n        {option.meaning}\n" for name, option in OPTIONS.items()
    ]
    shown.__doc__ = add_parameters(function.__doc__ or "", "".join(entries))
    return function
