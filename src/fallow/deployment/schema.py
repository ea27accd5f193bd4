"""Schema of the examples at all sites: columns, units, texts and classes."""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import torch
from pydantic import Field, ValidationError, with_config

from fallow.core.kinds import show_value
from fallow.core.load_options import DEFAULTS, LoadOptions
from fallow.core.missing import Missing, name_buckets, name_marks
from fallow.core.multilabel import BASE, NO_ANSWER, name_answers
from fallow.core.suggestions import nearest, require_known
from fallow.core.wrong_values import describe_wrong_value
from fallow.data.dataset import DONE, UNLABELED, Dataset, Task
from fallow.data.example_spec import ExampleSpec
from fallow.data.loaders.answers import NOTHING, check_label_names, read_list
from fallow.data.loaders.archive import read_arrays
from fallow.data.loaders.labels import TaskChoice, encode_labels
from fallow.data.loaders.text_rules import normal_name, number_in, split_unit
from fallow.data.predictions import is_prediction
from fallow.data.reading import DIFFERENT_TEXTS, Kind
from fallow.deployment.site.pictures import read_pictures
from fallow.storage.files import find_existing
from fallow.storage.validation import STRICT, adapter_of

DataKind = Literal["table", "images", "arrays"]
LIMITS_OF_COLUMN = ("low", "high")
"""Settings of a column that are not part of the agreement."""
MOST_NUMBERS = 10**8  # limit for a row, because a synthetic one is built to check models
MOST_TEXT_COLUMNS = 200  # a short line in study.toml makes thousands of features
LARGEST = torch.finfo(torch.float32).max
"""Largest absolute value of a feature or a label, which models compute in float32."""


@dataclass(frozen=True)
class Column:
    """One column of a table."""

    name: Annotated[str, Field(description="name of the column", examples=["age"])]
    unit: Annotated[str, Field(description="unit of the numbers", examples=["years"])] = ""
    values: Annotated[
        tuple[str, ...],
        Field(
            description="agreed texts, each of which becomes a binary feature; empty for a numeric "
            "column",
            examples=[["no", "yes"]],
        ),
    ] = ()
    low: Annotated[
        float | None,
        Field(description="smallest expected number; others are reported and kept"),
    ] = None
    high: Annotated[
        float | None,
        Field(description="largest expected number; others are reported and kept"),
    ] = None
    offset: Annotated[
        float | None,
        Field(
            description="number that every site subtracts from the cells, so that float32 keeps "
            "their digits"
        ),
    ] = None
    may_be_empty: Annotated[
        bool,
        Field(description="whether cells may be empty; the sites impute them jointly"),
    ] = False
    text: Annotated[
        bool,
        Field(
            description="whether the column has free text, which becomes hashed n-grams; an empty "
            "cell is an empty text"
        ),
    ] = False

    def __post_init__(self) -> None:
        limits = (self.low, self.high)
        is_number = not self.values and not self.text
        if self.offset is not None and not (is_number and math.isfinite(self.offset)):
            raise ValueError(
                f"column {self.name!r} has offset = {self.offset}; give a finite number, and only "
                "for a column of numbers"
            )
        if self.text and (self.values or self.may_be_empty or limits != (None, None)):
            raise ValueError(
                f"column {self.name!r} has text = true, and values, low, high or may_be_empty, which "
                "free text does not have; leave these out"
            )
        if len(set(self.values)) < len(self.values) or "" in self.values:
            raise ValueError(
                f"column {self.name!r} has the values {show_value(list(self.values))}; give each "
                "text once, and none that is empty"
            )
        for name, limit in (("low", self.low), ("high", self.high)):
            if limit is not None and math.isnan(limit):
                raise ValueError(f"column {self.name!r} has {name} = nan; give a number")

    @property
    def kind(self) -> Kind:
        """Return how the column is read: as text, as categories if values are agreed, or as numbers."""
        if self.text:
            return "text"
        if self.values:
            return "category"
        return "number"

    @property
    def features(self) -> tuple[str, ...]:
        """Return the features of the column: its name, ``name=value`` for each text, or n-grams."""
        if self.text:
            return name_buckets(self.name)
        return tuple(f"{self.name}={value}" for value in self.values) or (self.name,)


@with_config(STRICT)
@dataclass(frozen=True)
class Schema:
    """Schema that sites agree on before they train a joint model."""

    kind: Annotated[DataKind, Field(description="form of the examples")]
    task: Annotated[Task, Field(description="type of the labels")]
    label: Annotated[str, Field(description="label column of a table")] = "label"
    classes: Annotated[
        tuple[str, ...], Field(description="class names in order; empty for other tasks")
    ] = ()
    columns: Annotated[
        tuple[Column, ...], Field(description="columns of a table that are features")
    ] = ()
    shape: Annotated[
        tuple[int, ...],
        Field(
            description="shape of one example, as the model takes it; that of a table follows from "
            "its columns"
        ),
    ] = ()
    ids: Annotated[
        str,
        Field(
            description="column with the names of examples, which is not a feature and may be "
            "missing at a site"
        ),
    ] = "id"
    unit: Annotated[str, Field(description="unit of the regression targets")] = ""
    physical_range: Annotated[
        tuple[float, ...],
        Field(
            description="physical values of DICOM images that are black and white, such as "
            "[-1000.0, 400.0] in HU; empty for images without units"
        ),
    ] = ()
    physical_unit: Annotated[
        str,
        Field(
            description="modality and unit of these values, which the images of all sites have",
            examples=["CT in HU"],
        ),
    ] = ""
    labels: Annotated[
        tuple[str, ...],
        Field(
            description="names of several labels, each of which an example has or not; empty for "
            "other tasks",
            examples=[["oedema", "effusion"]],
        ),
    ] = ()

    def __post_init__(self) -> None:
        self._check_physical_range()
        is_class = self.task == "classification"
        fewest = 1 if self.is_done_only else 2
        if is_class and len(set(self.classes)) < max(fewest, len(self.classes)):
            raise ValueError(
                f"schema.classes is {show_value(list(self.classes))}; name two classes or "
                "more, each once"
            )
        if not is_class and self.classes:
            raise ValueError(
                f"schema.classes is given and the task is {self.task}; leave one out"
            )
        if bool(self.labels) != (self.task == "multilabel"):
            raise ValueError(
                f"schema.labels is {show_value(list(self.labels))}, and the task is {self.task}; "
                "give both for several labels of an example, or neither"
            )
        if self.labels:
            check_label_names(self.labels, "schema.labels")
        names = [column.name for column in self.columns]
        times = Counter([*names, self.label, self.ids, *self.labels])
        if double := sorted(name for name, n in times.items() if n > 1):
            raise ValueError(
                f"schema: {double[0]!r} is the name of two columns (features, label and ids "
                "count); rename one"
            )
        if (self.kind == "table") != bool(self.columns):
            raise ValueError(
                f"schema.columns is {show_value(names)} but schema.kind is {self.kind!r}; give "
                "columns for a table, and only for a table"
            )
        n_texts = sum(column.text for column in self.columns)
        if n_texts > MOST_TEXT_COLUMNS:
            raise ValueError(
                f"schema.columns has {n_texts} columns of free text, more than "
                f"{MOST_TEXT_COLUMNS}; join or leave out some"
            )
        if self.kind == "table" and not self.shape:
            object.__setattr__(self, "shape", (len(self.features),))
        if self.kind == "table" and self.shape != (len(self.features),):
            raise ValueError(
                f"schema.shape is {list(self.shape)} but the columns make "
                f"{len(self.features)} features; leave the shape of a table out"
            )
        if not self.shape or min(self.shape) < 1:
            raise ValueError(
                f"schema.shape is {list(self.shape)}; give the shape of one example"
            )
        if math.prod(self.shape) > MOST_NUMBERS:
            raise ValueError(
                f"schema.shape is {list(self.shape)}, more than {MOST_NUMBERS:,} "
                "numbers per example"
            )

    @property
    def is_done_only(self) -> bool:
        """Return whether labels only note that an example was annotated elsewhere."""
        return self.classes == (DONE,)

    def _check_physical_range(self) -> None:
        if not self.physical_range and self.physical_unit:
            raise ValueError(
                f"schema.physical_unit is {self.physical_unit!r}, and there is no physical_range; "
                "give both"
            )
        if not self.physical_range:
            return
        shown = f"schema.physical_range is {list(self.physical_range)}"
        if self.kind != "images":
            raise ValueError(f"{shown}, and schema.kind is {self.kind!r}; leave it out")
        is_range = (
            len(self.physical_range) == 2
            and self.physical_range[0] < self.physical_range[1]
        )
        if not is_range or not all(map(math.isfinite, self.physical_range)):
            raise ValueError(
                f"{shown}; give two numbers, the value that is black and the larger one that "
                "is white"
            )

    @property
    def black_and_white(self) -> tuple[float, float] | None:
        """Return the agreed range of physical values, or None for images without units."""
        if not self.physical_range:
            return None
        black, white = self.physical_range
        return black, white

    @property
    def features(self) -> tuple[str, ...]:
        """Return the features of a table: columns, then missing-value indicators, then texts."""
        texts: list[str] = []
        for column in self.columns:
            if column.text:
                texts.extend(column.features)
        marks = [mark for mark, _ in self.marks]
        return (*self._plain_features, *marks, *texts)

    @property
    def _plain_features(self) -> list[str]:
        """Return the features of columns that are not free text."""
        names: list[str] = []
        for column in self.columns:
            if not column.text:
                names.extend(column.features)
        return names

    @property
    def marks(self) -> tuple[tuple[str, str], ...]:
        """Return the missing-value indicators and the columns that they belong to."""
        lacking = [column.name for column in self.columns if column.may_be_empty]
        return name_marks(self._plain_features, lacking)

    @property
    def missing(self) -> Missing | None:
        """Return how empty cells are imputed, or None if no column may be empty."""
        if not any(column.may_be_empty for column in self.columns):
            return None
        levels: list[tuple[int, int]] = []
        first = 0
        for column in self.columns:
            if column.text:  # their features are the last
                continue
            end = first + len(column.features)
            if column.values:
                levels.append((first, end))
            first = end
        return Missing(tuple(levels), self.marks)

    def read_ranges(self) -> tuple[tuple[float, float], ...]:
        """Return the agreed range of each feature of a table; 0 to 1 for each text of a column.

        Raises ValueError for a column of numbers without a range, and without columns.
        """
        if not self.columns:
            raise ValueError("the examples have no columns")
        ranges: list[tuple[float, float]] = []
        for column in self.columns:
            if column.text or column.may_be_empty:
                state = "free text" if column.text else "empty cells"
                raise ValueError(f"column {column.name!r} has {state}")
            if column.values:
                ranges += [(0.0, 1.0)] * len(column.values)
                continue
            low = math.nan if column.low is None else column.low
            high = math.nan if column.high is None else column.high
            if not 0 < high - low < math.inf:
                raise ValueError(f"column {column.name!r} has no finite low below high")
            offset = column.offset or 0.0
            ranges.append((low - offset, high - offset))
        return tuple(ranges)

    @property
    def offsets(self) -> tuple[float, ...]:
        """Return the number that is subtracted from each feature."""
        offset_of = {column.name: column.offset or 0.0 for column in self.columns}
        return tuple(offset_of.get(feature, 0.0) for feature in self.features)

    @property
    def example_spec(self) -> ExampleSpec:
        """Return the information for prediction that is stored beside a model."""
        details: ExampleSpec = {
            "classes": list(self.classes),
            "columns": [],
            "shape": list(self.shape),
            "ids": self.ids,
        }
        if self.labels:
            details["labels"] = list(self.labels)
        if self.kind == "table":
            details["columns"] = list(self.features)
        if self.kind == "images":
            details["range"] = (0.0, 1.0)
        if self.physical_range:
            low, high = self.physical_range
            details["physical_range"] = (low, high)
            if self.physical_unit:
                details["physical_unit"] = self.physical_unit
        if self.missing is not None:
            details["marks"] = [list(mark) for mark in self.missing.marks]
        if any(self.offsets):
            details["offsets"] = list(self.offsets)
        units = {column.name: column.unit for column in self.columns if column.unit}
        if units:
            details["units"] = units
        return details

    @property
    def outputs(self) -> int:
        """Return the number of model outputs: one per class or label, or one."""
        return len(self.labels) or len(self.classes) or 1

    @property
    def n_answers(self) -> int:
        """Return the number of different labels of an example; 0 for numbers."""
        if self.labels:
            n_lists: int = BASE ** len(self.labels)
            return n_lists - 1  # without that of no answer
        return len(self.classes)

    @property
    def outcomes(self) -> tuple[str, ...]:
        """Return the names of the classes, or of several labels; empty for regression."""
        return self.classes or self.labels

    @property
    def filled(self) -> frozenset[str]:
        """Return the texts that are labels, also if they look like those of an empty cell."""
        if self.labels:
            return frozenset({NOTHING})
        return frozenset(self.classes)

    @property
    def example(self) -> Dataset:
        """Return a data set of one synthetic row, for checks of the data type."""
        x = torch.zeros(1, *self.shape)
        y = torch.zeros(1)
        if self.outcomes:
            y = torch.full((1,), UNLABELED)
        return Dataset(
            name="the study",
            x=x,
            y=y,
            x_test=x[:0],
            y_test=y[:0],
            classes=self.classes,
            labels=self.labels,
            columns=self.features,
            missing=self.missing,
        )

    @property
    def digest(self) -> str:
        """Return a hash (32 hexadecimal digits) of the agreed schema.

        Column limits are not included, because they reject nothing.
        """
        agreed = asdict(self)
        if not self.labels:  # as earlier versions, which had none
            del agreed["labels"]
        for column in agreed["columns"]:
            for name in LIMITS_OF_COLUMN:
                del column[name]
        text = json.dumps(agreed, sort_keys=True)
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

    def value(self, text: str, *, with_hint: bool = True) -> float:
        """Return the number of a label in words: a class ID, the number itself, or several answers.

        With ``with_hint``, an error suggests the closest class name. Raises ValueError for an
        unknown class and for a number that is not finite.
        """
        text = normal_name(text)
        if self.labels:
            number = read_list(text, self.labels, with_hint=with_hint)
            if number == NO_ANSWER:
                raise ValueError(
                    f"label {text!r} answers none of {', '.join(self.labels)}; answer one at least"
                )
            return float(number)
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
        target = number_in(text)
        if target is None or not abs(target) <= LARGEST:
            what = "a finite number"
            if self.unit:
                what += f" (in {self.unit})"
            raise ValueError(f"label {text!r} is not {what}")
        return target

    def words(self, value: float) -> str:
        """Return a label in words: the class name, the number, or the answers."""
        if self.labels:
            return name_answers(int(value), self.labels)
        if self.classes:
            return self.classes[int(value)]
        return f"{value:g}"


def schema_from(settings: Mapping[str, object]) -> Schema:
    """Build a schema from plain settings, such as a TOML section.

    The shape of a table is optional. Raises ValueError naming the setting.
    """
    # In JSON, strict mode accepts lists and tables, but no Booleans as numbers and no numbers as
    # texts.
    try:
        in_json = json.dumps(settings)
    except TypeError as error:  # TOML dates and times
        raise ValueError(
            "schema: a value is a date or a time; write it in quotes, as a text"
        ) from error
    try:
        schema: Schema = adapter_of(Schema).validate_json(in_json)
    except ValidationError as error:
        wrong_value = describe_wrong_value(Schema, error.errors(), whole="schema")
        raise ValueError(wrong_value) from error
    return schema


def _say_nothing(sentence: str) -> None:
    """Discard the message about columns that were left out."""


def schema_of(
    path: str | Path,
    label: str = "label",
    task: TaskChoice = "auto",
    classes: tuple[str, ...] = (),
    ids: str = "id",
    needs_whole: bool = False,
    texts: Sequence[str] = (),
    trains: bool = True,
    notify: Callable[[str], None] = _say_nothing,
    options: LoadOptions = DEFAULTS,
) -> Schema:
    """Infer the schema of example data.

    The data is a .csv or .parquet table, a .npz file of arrays, or a folder of images in
    ``class/*`` and ``unlabeled/*``, or with a table that lists them. A column with numbers only is
    numeric. Any other column is categorical with its sorted texts. Add units and limits by hand. A
    column with an empty cell may be empty at the sites too. Columns of dates, row names and free
    text are left out and reported with ``notify``, except ``texts``, which become text columns.

    ``classes`` lists the class names if some have no example. With ``needs_whole``, no column may
    be empty, because sites drop incomplete rows or models cannot use them. With ``trains`` false,
    columns of given predictions are no features, and examples without labels have the class
    "done". ``options``: ``group``, a column that is no feature, ``labels`` of examples with several,
    and ``pages`` of images. Raises ValueError if no schema can be inferred.
    """
    file = find_existing(path)
    several = options.labels
    if file.is_dir():
        pictures = read_pictures(file, options=options, label=label)
        names = {*pictures.labels, *pictures.empty_classes} - {""}
        values = classes or tuple(sorted(names))
        findings = [*pictures.findings]
        if pictures.table and names:
            chosen: TaskChoice = task
            if pictures.targets is not None:
                chosen = "regression"
            listed = np.array(pictures.labels)
            encoded = encode_labels(listed, chosen, pictures.table, classes, labels=several)
            values = encoded.classes
            findings += encoded.findings
        if several:
            values = ()
        elif not names and not classes and not trains:
            values = (DONE,)
        for finding in findings:
            notify(f"{file.name}: {finding.sentence}")
        kind_of_labels: Task = "classification"
        if pictures.table or several:
            kind_of_labels = _choose_task(values, several)
        return Schema(
            kind="images",
            task=kind_of_labels,
            label=label,
            classes=values,
            labels=several,
            shape=pictures.x.shape[1:],
            ids=ids,
            physical_range=pictures.physical_range or (),
            physical_unit=pictures.unit,
        )
    if file.suffix.lower() == ".npz":
        arrays = read_arrays(file)
        is_bare = not trains and "y" not in arrays
        if "x" not in arrays or ("y" not in arrays and not is_bare) or arrays["x"].ndim < 2:
            raise ValueError(f"{file.name} needs the arrays x (rows, ...) and y (rows,)")
        values = classes or (DONE,)
        if not is_bare:
            coded = encode_labels(arrays["y"], task, file.name, classes, labels=several)
            values = coded.classes
        return Schema(
            kind="arrays",
            task=_choose_task(values, several),
            label=label,
            classes=values,
            labels=several,
            shape=arrays["x"].shape[1:],
            ids=ids,
        )
    return _schema_of_table(
        file,
        label,
        task,
        classes,
        ids,
        needs_whole=needs_whole,
        texts=texts,
        trains=trains,
        group=options.group,
        several=several,
        notify=notify,
    )


def _choose_task(classes: tuple[str, ...], labels: tuple[str, ...]) -> Task:
    """Return the task: by names of several labels or of classes, otherwise regression."""
    if labels:
        return "multilabel"
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
    texts: Sequence[str],
    trains: bool,
    group: str | None,
    several: tuple[str, ...],
    notify: Callable[[str], None],
) -> Schema:
    from fallow.data.loaders.cells import labels_of
    from fallow.data.loaders.columns import Setting, recognize_column
    from fallow.data.loaders.table_files import read_file

    table = read_file(file)
    is_bare = not trains and label not in table.columns
    labels_in = [label]
    if several and label not in table.columns:
        labels_in = [*several]
    named = [*texts] if is_bare else [*labels_in, *texts]
    if group is not None:
        named.append(group)
    for name in named:
        require_known(name, table.columns, f"{file.name} has no column {name!r}")
    for name in texts:
        if name in (label, ids):
            raise ValueError(
                f"column {name!r} is the label or the row name, and also a text "
                "column; choose one"
            )
    result = classes or (DONE,)
    unit = ""
    findings = [*table.findings]
    if not is_bare:
        if several:
            texts_of_labels = [np.array(table.texts(column)) for column in labels_in]
            cells_of_labels = texts_of_labels[0]
            if label not in table.columns:
                cells_of_labels = np.stack(texts_of_labels, axis=1)
        else:
            cells_of_labels = labels_of(table.columns[label], table.marks.of(label))
        labels = encode_labels(cells_of_labels, task, file.name, classes, labels=several)
        result = labels.classes
        unit = labels.unit
        findings += labels.findings
    for finding in findings:
        notify(f"{file.name}: {finding.sentence}")
    columns: list[Column] = []
    reasons: list[str] = []
    for name, cells in table.columns.items():
        if name in (*labels_in, ids, group):
            continue
        if name in texts:
            columns.append(Column(name, text=True))
            continue
        if not trains and is_prediction(name):
            reasons.append(f"column {name!r} has predictions, which sites may bring")
            continue
        setting = Setting(
            name,
            file.name,
            marks=table.marks.of(name),
            keeps_constant=True,
            unit=table.unit_of(name),
        )
        column = recognize_column(cells, setting)
        read = column.read
        if read.kind == "empty":
            raise ValueError(
                f"{file.name}: column {name!r} is empty; give an example, or leave it out"
            )
        for finding in column.findings:
            notify(f"{file.name}: {finding.sentence}")
        if not read.is_feature:
            why = read.reason
            if DIFFERENT_TEXTS in why:
                why += f"; name it with --text {name!r} to use it"
            reasons.append(f"column {name!r} was left out: {why}")
            continue
        columns.append(
            Column(
                name,
                unit=read.unit,
                values=read.values,
                offset=read.offset or None,
                may_be_empty=read.missing > 0 and not needs_whole,
            )
        )
    if not columns:
        why = f" ({'; '.join(reasons)})" if reasons else ""
        raise ValueError(f"{file.name} has no feature column{why}; add one")
    for reason in reasons:
        notify(f"{file.name}: {reason}")
    return Schema(
        kind="table",
        task=_choose_task(result, several),
        label=label,
        classes=result,
        labels=several,
        columns=tuple(columns),
        ids=ids,
        unit=unit,
    )


def _drop_zero_decimals(text: str) -> str:
    """Return "1.0" as "1", because spreadsheets may write class names this way."""
    number = number_in(text)
    if number is None or not number.is_integer():
        return text
    return str(int(number))


def without_unit(cell: str, unit: str) -> str:
    """Return a target without the agreed unit.

    >>> without_unit("1.37 kg", "kg"), without_unit("1370 g", "kg")
    ('1.37', '1370 g')
    """
    parts = split_unit(cell.strip())
    if parts is None or not unit or parts[1] != unit:
        return cell
    return parts[0]
