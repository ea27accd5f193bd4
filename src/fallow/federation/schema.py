"""What the rows of all sites have in common: columns, units, texts, classes."""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import torch
from pydantic import TypeAdapter, ValidationError

from fallow.core.kinds import describe_wrong_value
from fallow.core.missing import Missing, name_marks
from fallow.core.terms import nearest
from fallow.data.dataset import Dataset, Task
from fallow.data.own.archive import read_arrays
from fallow.data.own.cells import number_in
from fallow.data.own.columns import (
    ENOUGH,
    are_dates,
    describe_dates,
    explain_many_texts,
)
from fallow.data.own.labels import TaskChoice, encode_labels
from fallow.data.own.table import EMPTY, read_cells
from fallow.experiment.finished import RowsAbout
from fallow.federation.site.pictures import read_pictures

DataKind = Literal["table", "images", "arrays"]
MOST_NUMBERS = 10**8  # in a row: a whole one is made up to check models with


@dataclass(frozen=True)
class Column:
    """One column of a table.

    values: the agreed texts, each of which becomes a feature of 0 and 1; none: a number.  low,
    high: what a number is expected to lie within; others are said and kept.  may_be_empty: cells
    may lack a value, and the sites fill them in together.
    """

    name: str
    unit: str = ""
    values: tuple[str, ...] = ()
    low: float | None = None
    high: float | None = None
    may_be_empty: bool = False

    def __post_init__(self) -> None:
        if len(set(self.values)) < len(self.values) or "" in self.values:
            raise ValueError(
                f"column {self.name!r} has the values {list(self.values)}; give each text once, "
                "and none that is empty"
            )
        for name, limit in (("low", self.low), ("high", self.high)):
            if limit is not None and math.isnan(limit):
                raise ValueError(f"column {self.name!r} has {name} = nan; give a number")

    @property
    def features(self) -> tuple[str, ...]:
        """What models see of it: itself, or ``name=value`` for each text."""
        return tuple(f"{self.name}={value}" for value in self.values) or (self.name,)

    @property
    def agreed(self) -> tuple[object, ...]:
        """What a digest covers.  Of a column that is never empty it is what it was before there
        were others."""
        if self.may_be_empty:
            return (self.name, self.unit, self.values, "may be empty")
        return (self.name, self.unit, self.values)


@dataclass(frozen=True)
class Schema:
    """What sites agree on before they train one model.

    label: the column of labels of a table.  classes: their names in order; none: numbers to
    predict, in ``unit``.  shape: of one row as models see it.  ids: the column of a table that
    names its rows, and is no feature; sites may go without.
    """

    kind: DataKind
    task: Task
    label: str = "label"
    classes: tuple[str, ...] = ()
    columns: tuple[Column, ...] = ()
    shape: tuple[int, ...] = ()
    ids: str = "id"
    unit: str = ""

    def __post_init__(self) -> None:
        is_class = self.task == "classification"
        if is_class and len(set(self.classes)) < max(2, len(self.classes)):
            raise ValueError(
                f"schema.classes is {list(self.classes)}; name two classes or more, each once"
            )
        if not is_class and self.classes:
            raise ValueError(
                "schema.classes is given and the task is regression; leave one out"
            )
        names = [column.name for column in self.columns]
        times = Counter([*names, self.label, self.ids])
        if double := sorted(name for name, n in times.items() if n > 1):
            raise ValueError(
                f"schema: {double[0]!r} is the name of two columns (features, label and ids "
                "count); rename one"
            )
        if (self.kind == "table") != bool(self.columns):
            raise ValueError(
                f"schema.columns is {names} and schema.kind {self.kind!r}; a table has columns, "
                "and nothing else has"
            )
        if self.kind == "table" and self.shape != (len(self.features),):
            raise ValueError(
                f"schema.shape is {list(self.shape)} and the columns make {len(self.features)} "
                "features; leave the shape of a table out"
            )
        if not self.shape or min(self.shape) < 1:
            raise ValueError(
                f"schema.shape is {list(self.shape)}; give the shape of one row"
            )
        if math.prod(self.shape) > MOST_NUMBERS:
            raise ValueError(
                f"schema.shape is {list(self.shape)}, more than {MOST_NUMBERS:,} numbers in a row"
            )

    @property
    def features(self) -> tuple[str, ...]:
        """The names of a table's features, in the order in which models see them; last come those
        that mark empty cells."""
        return features_of(self.columns)

    @property
    def missing(self) -> Missing | None:
        """How empty cells are filled in; None where no column may have any."""
        if not any(column.may_be_empty for column in self.columns):
            return None
        levels: list[tuple[int, int]] = []
        first = 0
        for column in self.columns:
            end = first + len(column.features)
            if column.values:
                levels.append((first, end))
            first = end
        return Missing(tuple(levels), marks_of(self.columns))

    @property
    def about(self) -> RowsAbout:
        """What predicting needs to know of rows, as it is stored beside a model."""
        details: RowsAbout = {
            "classes": list(self.classes),
            "columns": [],
            "shape": list(self.shape),
            "ids": self.ids,
        }
        if self.kind == "table":
            details["columns"] = list(self.features)
        if self.missing is not None:
            details["marks"] = [list(mark) for mark in self.missing.marks]
        return details

    @property
    def outputs(self) -> int:
        """What a model gives for a row: a number for each class, or one."""
        return len(self.classes) or 1

    @property
    def example(self) -> Dataset:
        """A data set of one made-up row, for checks that ask for the kind of data alone."""
        x = torch.zeros(1, *self.shape)
        y = torch.zeros(1)
        if self.classes:
            y = y.long()
        return Dataset(
            name="the study",
            x=x,
            y=y,
            x_test=x[:0],
            y_test=y[:0],
            classes=self.classes,
            columns=self.features,
            missing=self.missing,
        )

    @property
    def digest(self) -> str:
        """32 hexadecimal digits of everything that sites agree on about rows; limits of columns,
        which refuse nothing, are no part of it."""
        columns = [column.agreed for column in self.columns]
        text = json.dumps({**asdict(self), "columns": columns}, sort_keys=True)
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

    def value(self, text: str, *, with_hint: bool = True) -> float:
        """The number behind a label in words: the id of its class, or the number itself.

        with_hint: an error names the class that was probably meant, for which all are compared.
        Raises ValueError for a class that was not agreed on and for what is no finite number.
        """
        text = text.strip()
        if self.classes:
            known = text
            if text not in self.classes:
                known = _drop_zero_decimals(text)
            if known not in self.classes:
                hint = ""
                if with_hint:
                    hint = nearest(text, list(self.classes))
                raise ValueError(f"label {text!r} is not one of the agreed classes{hint}")
            return float(self.classes.index(known))
        number = number_in(text)
        if number is None or not math.isfinite(number):
            what = "a finite number"
            if self.unit:
                what += f" (in {self.unit})"
            raise ValueError(f"label {text!r} is not {what}")
        return number

    def words(self, value: float) -> str:
        """A label as a person reads it: the name of its class, or the number."""
        if self.classes:
            return self.classes[int(value)]
        return f"{value:g}"


def marks_of(columns: Sequence[Column]) -> tuple[tuple[str, str], ...]:
    """The features that are 1 where a cell is empty, each with the column that it marks."""
    names = _names_of(columns)
    lacking = [column.name for column in columns if column.may_be_empty]
    return name_marks(names, lacking)


def features_of(columns: Sequence[Column]) -> tuple[str, ...]:
    """The names of the features that columns make, those that mark empty cells last."""
    features = _names_of(columns)
    features += [mark for mark, _ in marks_of(columns)]
    return tuple(features)


def _names_of(columns: Sequence[Column]) -> list[str]:
    names: list[str] = []
    for column in columns:
        names.extend(column.features)
    return names


def schema_from(settings: Mapping[str, object]) -> Schema:
    """A schema from plain settings, such as the section of a TOML file; the shape of a table may
    be left out.  Raises ValueError naming the setting."""
    try:
        result = dict(settings)
        if result.get("kind") == "table" and "shape" not in result:
            columns = _read_columns(result.get("columns", ()))
            result["shape"] = (len(features_of(columns)),)
        known = list(Schema.__dataclass_fields__)
        for key in result:
            if key not in known:
                raise ValueError(f"schema.{key} is not a setting{nearest(key, known)}")
        schema: Schema = TypeAdapter(Schema).validate_json(_as_json(result), strict=True)
    except ValidationError as error:
        wrong_value = describe_wrong_value(Schema, error.errors(), whole="schema")
        raise ValueError(wrong_value) from error
    return schema


@dataclass(frozen=True)
class _Columns:
    """The columns of a schema alone, whose shape is not known yet."""

    columns: tuple[Column, ...]


def _read_columns(given: object) -> tuple[Column, ...]:
    """The columns from plain settings.  Raises pydantic's ValidationError."""
    settings = _as_json({"columns": given})
    checked: _Columns = TypeAdapter(_Columns).validate_json(settings, strict=True)
    return checked.columns


def _as_json(settings: Mapping[str, object]) -> str:
    """Plain settings as JSON, of which pydantic's strict mode takes lists and tables; it takes no
    truth for a number, and no text for one."""
    try:
        return json.dumps(settings)
    except TypeError as error:  # TOML has dates and times, too
        raise ValueError(
            "schema: a value is a date or a time; write it in quotes, as a text"
        ) from error


def _say_nothing(sentence: str) -> None:
    """Tell nobody what was left out."""


def schema_of(
    path: str | Path,
    label: str = "label",
    task: TaskChoice = "auto",
    classes: tuple[str, ...] = (),
    ids: str = "id",
    needs_whole: bool = False,
    say: Callable[[str], None] = _say_nothing,
) -> Schema:
    """The schema of an example: a .csv or .parquet table, a .npz file of arrays, or a folder of
    images in ``class/*`` and ``unlabeled/*``.

    A column whose cells are all numbers is a number, any other becomes its texts, sorted; units and
    limits are for people to write down.  One with an empty cell may be empty at the sites, too.
    Columns of dates, of names of rows and of free text are left out, and ``say`` is told so.
    ``classes``: when the example has not a label of each.  needs_whole: no column may be empty,
    because sites leave such rows out, or models cannot take them.
    Raises ValueError for what cannot be a schema.
    """
    file = Path(path)
    if not file.exists():
        raise ValueError(
            f"there is no file or folder {str(path)!r}; give the path of an example"
        )
    if file.is_dir():
        pictures = read_pictures(file)
        values = classes or tuple(sorted(set(pictures.labels) - {""}))
        return Schema(
            kind="images",
            task="classification",
            label=label,
            classes=values,
            shape=pictures.x.shape[1:],
            ids=ids,
        )
    if file.suffix.lower() == ".npz":
        arrays = read_arrays(file)
        if "x" not in arrays or "y" not in arrays or arrays["x"].ndim < 2:
            raise ValueError(f"{file.name} needs the arrays x (rows, ...) and y (rows,)")
        _, values = encode_labels(arrays["y"], task, file.name, classes)
        return Schema(
            kind="arrays",
            task=_choose_task(values),
            label=label,
            classes=values,
            shape=arrays["x"].shape[1:],
            ids=ids,
        )
    return _schema_of_table(
        file, label, task, classes, ids, needs_whole=needs_whole, say=say
    )


def _choose_task(classes: tuple[str, ...]) -> Task:
    """What is predicted: a class where there are names of classes, else a number."""
    if classes:
        return "classification"
    return "regression"


def _schema_of_table(
    file: Path,
    label: str,
    task: TaskChoice,
    classes: tuple[str, ...],
    ids: str,
    *,
    needs_whole: bool,
    say: Callable[[str], None],
) -> Schema:
    import numpy as np

    cells = read_cells(file)
    if label not in cells:
        raise ValueError(
            f"{file.name} has no column {label!r}{nearest(label, list(cells))}"
        )
    _, result = encode_labels(
        np.array(cells.pop(label), dtype=np.str_), task, file.name, classes
    )
    cells.pop(ids, None)
    if not cells:
        raise ValueError(f"{file.name} has no column of features; add one")
    columns: list[Column] = []
    reasons: list[str] = []
    for name, values in cells.items():
        why = explain_left_out(values)
        if why is None:
            column = _describe_column(file, name, values, needs_whole=needs_whole)
            columns.append(column)
        else:
            reasons.append(f"column {name!r} was left out: {why}")
    if not columns:
        raise ValueError(
            f"{file.name} has no column of features ({'; '.join(reasons)}); add one"
        )
    for reason in reasons:
        say(f"{file.name}: {reason}")
    return Schema(
        kind="table",
        task=_choose_task(result),
        label=label,
        classes=result,
        columns=tuple(columns),
        shape=(len(features_of(columns)),),
        ids=ids,
    )


def explain_left_out(cells: Sequence[str], enough: int = ENOUGH) -> str | None:
    """Why a column of a table is no feature, as a study of such a table would leave it out: it holds
    dates, names of rows or free text.  None where it may be one.

    enough: from so many rows on, texts that differ in nearly every row are names.
    """
    given = [cell for cell in cells if cell.lower() not in EMPTY]
    levels = sorted(set(given))
    is_number = all(number_in(level) is not None for level in levels)
    if is_number:  # or empty
        return None
    if are_dates(levels):
        return describe_dates(levels)
    return explain_many_texts(len(levels), len(given), enough)


def holds_dates(cells: Sequence[str]) -> bool:
    """Whether nearly all cells that are not empty are dates or times of day."""
    levels = {cell for cell in cells if cell.lower() not in EMPTY}
    return bool(levels) and are_dates(sorted(levels))


def _describe_column(
    file: Path, name: str, cells: list[str], *, needs_whole: bool
) -> Column:
    value = [cell for cell in cells if cell.lower() not in EMPTY]
    if not value:
        raise ValueError(
            f"{file.name}: column {name!r} is empty; give an example, or leave it out"
        )
    may_be_empty = len(value) < len(cells) and not needs_whole
    if all(number_in(cell) is not None for cell in value):
        return Column(name, may_be_empty=may_be_empty)
    values = tuple(sorted(set(value)))
    return Column(name, values=values, may_be_empty=may_be_empty)


def _drop_zero_decimals(text: str) -> str:
    """As a whole number, "1.0" as "1": how a spreadsheet may write a class."""
    number = number_in(text)
    if number is None or not number.is_integer():
        return text
    return str(int(number))
