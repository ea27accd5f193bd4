"""The user's data: arrays, files, folders, and ``open_dataset`` for any path."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fallow.catalog import advise_name, find_by_path, is_named
from fallow.core.load_options import (
    DEFAULTS,
    Kind,
    KnownMarks,
    LoadKeywords,
    LoadOptions,
    build_options,
    check_applies,
    list_given,
    list_of_files,
    require_label,
)
from fallow.core.missing import Missing
from fallow.core.suggestions import nearest, require_known
from fallow.core.wording import count_noun
from fallow.data.catalog.named import load, load_outline, load_path
from fallow.data.dataset import (
    BLOCK,
    Copies,
    Dataset,
    check_finite,
    check_leak,
    copies_of,
    drop_leaks,
)
from fallow.data.loaders.archive import read_arrays
from fallow.data.loaders.folders import list_files
from fallow.data.loaders.images import read_folder
from fallow.data.loaders.labels import (
    EncodedLabels,
    TaskChoice,
    encode_labels,
    encode_test_labels,
)
from fallow.data.loaders.numbers import (
    SMALLEST,
    choose_offsets,
    count_too_small,
    subtract_offsets,
    warn_of_sentinels,
)
from fallow.data.loaders.pixels import (
    Channels,
    as_features,
    describe_move,
    find_doubtful_order,
    has_channels_last,
)
from fallow.data.loaders.scaling import find_range, is_on_another_scale
from fallow.data.loaders.text_rules import settle_names
from fallow.data.loaders.units import warn_of_units
from fallow.data.partition.shares import hold_out, join_rare
from fallow.data.reading import (
    ColumnRead,
    Finding,
    Reading,
    ReportBytes,
    count_at,
    ignore_bytes,
    list_notes,
    note,
    warning,
)
from fallow.storage.files import find_existing
from fallow.storage.table_suffixes import EXCEL_FILES, TABLES

if TYPE_CHECKING:
    from fallow.data.loaders.table_files import Table

ARRAYS = {
    "x": "x",
    "y": "y",
    "site": "sites",
    "group": "groups",
    "x_test": "x_test",
    "y_test": "y_test",
    "site_test": "sites_test",
    "group_test": "groups_test",
}
"""Arrays of a .npz file, and their arguments of `from_arrays`."""
BESIDE = ("columns", "ids", "files")
"""Further arrays of such a file: names of features, of examples, and of the images in them."""
Names = npt.NDArray[Any]
"""Sites or groups of examples, integers or texts."""
Arrayish = npt.NDArray[Any] | Tensor | Sequence[Any]


def from_arrays(
    x: Arrayish,
    y: Arrayish,
    sites: Arrayish | None = None,
    *,
    x_test: Arrayish | None = None,
    y_test: Arrayish | None = None,
    sites_test: Arrayish | None = None,
    groups: Arrayish | None = None,
    groups_test: Arrayish | None = None,
    columns: Sequence[str] = (),
    ids: Sequence[str] | None = None,
    name: str = "arrays",
    task: TaskChoice = "auto",
    classes: Sequence[str] = (),
    labels: Sequence[str] = (),
    drop_rows: bool = False,
    channels: Channels = "auto",
    merge: bool = False,
    findings: Sequence[Finding] = (),
    leaves_out_leaks: bool = False,
    is_missing_meant: bool = False,
) -> Dataset:
    """Create a dataset from arrays, also from frozen embeddings.

    x: (n, ...) numbers, used unchanged; images (n, c, h, w) of uint8 or uint16 are scaled
    to [0, 1], with a note. channels: "first" for images (n, c, h, w), "last" for (n, h, w,
    c), which are converted; "auto" decides by the shape (see `has_channels_last`), with a
    note. y: (n,) integers or texts (classification; classes are their sorted values; -1 or
    "" is unlabeled) or other numbers (regression; NaN is unlabeled). classes: class names
    in order, for sites that lack some of them. sites: (n,) integers or texts, the site of
    each example. groups: (n,) integers or texts, such as patients, which are never divided
    between training and test examples or between sites. drop_rows: omit examples with a NaN
    or infinite feature, with a note; nothing is imputed. leaves_out_leaks: omit test
    examples that are also training examples, with a note. is_missing_meant: NaN labels are
    meant, so no warning counts them. Without a test set, 20 % of the labeled examples are
    held out: stratified, fixed by ``name``. Raises ValueError if shapes disagree, features
    are not finite (with column and count), labels have fewer than two values, or a test
    example is also a training example.

    >>> d = from_arrays([[0.0], [1.0], [2.0], [3.0]], ["no", "yes", "yes", ""], name="toy")
    >>> d.classes, d.y.tolist(), d.y_test.tolist()
    (('no', 'yes'), [0, 1, -1], [1])
    """
    if (x_test is None) != (y_test is None):
        raise ValueError(
            f"{name}: a test set needs both x_test and y_test; give both or neither"
        )
    for what, of_tests in (("sites", sites_test), ("groups", groups_test)):
        if x_test is None and of_tests is not None:
            raise ValueError(
                f"{name} has the {what} of test examples, and no test examples; give x_test and "
                "y_test"
            )
    encoded = encode_labels(
        _to_array(y),
        task,
        name,
        tuple(classes),
        labels=tuple(labels),
        merge=merge,
        is_missing_meant=is_missing_meant,
    )
    features = _to_array(x)
    findings = (*findings, *_check_numbers(features, encoded))
    offsets = choose_offsets(features)
    if offsets:
        features = subtract_offsets(features, offsets)
        n_shifted = sum(offset != 0 for offset in offsets)
        shifted = (
            f"a number was subtracted from {count_noun(n_shifted, 'column')} (offsets)"
        )
        findings = (*findings, note(f"{shifted}, because float32 would lose digits"))
    is_last = has_channels_last(features.shape, name, channels)
    if is_last and channels == "auto":
        findings = (*findings, note(describe_move(features.shape)))
    if not is_last:
        findings = (*findings, *find_doubtful_order(features.shape, channels))
    rows = _check_rows(features, encoded.y, sites, groups, ids, name, is_last)
    findings = (*findings, *rows.findings)
    aside = None
    if x_test is not None and y_test is not None:
        coded_test = encode_test_labels(_to_array(y_test), encoded, name)
        features_test = subtract_offsets(_to_array(x_test), offsets)
        aside = _check_rows(
            features_test, coded_test, sites_test, groups_test, None, name, is_last
        )
        findings = (*findings, *_compare_scales(rows, aside, name))
    sites, sites_test, similar = _settle_names(
        "sites", rows.sites, None if aside is None else aside.sites, merge
    )
    groups, groups_test, alike = _settle_names(
        "groups", rows.groups, None if aside is None else aside.groups, merge
    )
    rows = rows._replace(sites=sites, groups=groups)
    if aside is not None:
        aside = aside._replace(sites=sites_test, groups=groups_test)
    findings = (*findings, *similar, *alike)
    reading = _count_rows(rows, aside, name)
    left_out: tuple[str, ...] = ()
    if drop_rows:
        rows, aside, reading, left_out = _keep_whole_rows(rows, aside, reading)
    details = _Details(
        name=name,
        classes=encoded.classes,
        labels=encoded.labels,
        columns=tuple(columns),
        offsets=offsets,
        findings=(
            *_omit_repeated(encoded.findings, findings),
            *findings,
            *list_notes(left_out),
        ),
        reading=reading,
    )
    return _build_dataset(rows, aside, details, leaves_out_leaks=leaves_out_leaks)


def from_npz(path: str | Path, options: LoadOptions = DEFAULTS) -> Dataset:
    """Create a dataset from a .npz file, also from one of MedMNIST.

    The arrays are x, y and optionally site, group, x_test, y_test, site_test, group_test, ids,
    columns. MedMNIST has train_images, train_labels, val_..., test_.... site: of
    each example. columns: feature names. No pickles are read, so texts must be text
    arrays, not object arrays. See ``from_arrays``. Raises ValueError for a file without x
    or y, and for unknown arrays.
    """
    file = find_existing(path)
    arrays = read_arrays(file)
    if "train_images" in arrays and "x" not in arrays:
        return _read_medmnist(file, arrays, options)
    words = {**ARRAYS, **dict.fromkeys(BESIDE, "")}
    for key in ("x", "y"):
        missing = f"{file} has no array {key!r} (numpy.savez(path, x=..., y=...))"
        require_known(key, arrays, missing)
    unknown = [key for key in arrays if key not in words]
    if unknown:
        raise ValueError(
            f"{file} has unknown arrays, {', '.join(map(repr, unknown))}; rename or omit them"
            f"{nearest(unknown[0], list(words))}"
        )
    npz: dict[str, Any] = {
        word: arrays[key] for key, word in ARRAYS.items() if key in arrays
    }
    ids = None
    if "ids" in arrays:
        ids = [str(row_name) for row_name in arrays["ids"]]
    return from_arrays(
        **npz,
        columns=[str(column) for column in arrays.get("columns", ())],
        ids=ids,
        name=file.stem,
        classes=options.classes,
        labels=options.labels,
        drop_rows=options.drop_rows,
        channels=options.channels,
    )


def _read_medmnist(
    file: Path, arrays: dict[str, npt.NDArray[Any]], options: LoadOptions
) -> Dataset:
    """Read a file of MedMNIST: images (n, h, w) or (n, h, w, 3) of uint8, labels (n, 1)."""
    parts = {}
    for part in ("train", "val", "test"):
        pair = (f"{part}_images", f"{part}_labels")
        absent = [name for name in pair if name not in arrays]
        if absent == list(pair) and part == "val":
            continue
        if absent:
            raise ValueError(
                f"{file} has the layout of MedMNIST, but no array {absent[0]!r}"
            )
        images, labels = (arrays[name] for name in pair)
        labels = labels.reshape(len(labels), -1)
        if labels.shape[1] != max(len(options.labels), 1):
            raise ValueError(
                f"{file} has {labels.shape[1]} labels for each image, and "
                f"{len(options.labels)} are named; name each with --labels (labels=)"
            )
        if images.ndim == 3:
            images = images[:, None]
        parts[part] = (images, labels if options.labels else labels[:, 0])
    x, y = parts["train"]
    notes = []
    if "val" in parts:
        x = np.concatenate([x, parts["val"][0]])
        y = np.concatenate([y, parts["val"][1]])
        notes.append(
            f"{len(parts['val'][1]):,} validation images were added to the training "
            "images; validation=0.1 holds some out"
        )
    return from_arrays(
        x,
        y,
        x_test=parts["test"][0],
        y_test=parts["test"][1],
        name=file.stem,
        classes=options.classes,
        labels=options.labels,
        drop_rows=options.drop_rows,
        channels=options.channels,
        findings=list_notes(notes),
        leaves_out_leaks=True,
    )


def from_table(
    path: str | Path,
    options: LoadOptions,
    *,
    test: str | Path | None = None,
    notify: ReportBytes = ignore_bytes,
) -> Dataset:
    """Create a dataset from a table with one header line.

    Formats are text (.csv, .tsv), Parquet, Feather and Excel; ``test`` is a second such
    file. Encoding, separator, quotes, decimal comma and thousands separators of a text file
    are detected, with a note if they are unusual.

    Texts and integers in the column of labels are classes (sorted), an empty cell is
    unlabeled, and other numbers are regression targets. Numbers are used unchanged, and texts
    are one-hot encoded (``column=value``). Identifiers, counters, dates, free text, and empty
    or constant columns are left out unless ``options.columns`` lists them. ``notes`` describes
    all of that. Features are not scaled; see ``standardize``. Empty cells are NaN until the
    sites impute them (``Dataset.missing``), and are marked by indicator columns
    ``column_missing``. notify: receives the number of bytes read of a text file.

    Raises ValueError for an absent column (with the nearest name), text among numbers (with
    its row), infinite features (with column and count), and labels that are all missing or
    equal.
    """
    from fallow.data.loaders.table_files import read_file

    file = find_existing(path)
    sources = [partial(read_file, file, notify, options)]
    if test is not None:
        sources.append(partial(read_file, find_existing(test), ignore_bytes, options))
    return from_sources(sources, options, file.stem)


def from_sources(
    sources: Sequence[Callable[[KnownMarks], Table]], options: LoadOptions, name: str
) -> Dataset:
    """Create a dataset from functions that read a table and, if there are two, a test table."""
    from fallow.data.loaders.table import read_table

    table = read_table(sources, options)
    n = table.rows
    x = torch.from_numpy(table.x)
    labels = encode_labels(
        table.y[:n],
        options.task,
        name,
        options.classes,
        labels=options.labels,
        merge=options.merge,
    )
    giveaways: list[Finding] = []
    if not labels.labels:
        from fallow.data.loaders.giveaways import find_giveaways  # sites never need it

        giveaways = find_giveaways(
            table.x[:n], table.columns, table.reading.columns, labels.y
        )
    ids = None
    if table.ids is not None:
        ids = table.ids[:n]
    rows = _Rows(
        x[:n], labels.y, take_part(table.sites, 0, n), take_part(table.groups, 0, n), ids
    )
    aside = None
    if len(sources) > 1:
        y_test = encode_test_labels(table.y[n:], labels, name)
        aside = _Rows(x[n:], y_test, take_part(table.sites, n), take_part(table.groups, n))
    details = _Details(
        name=name,
        classes=labels.classes,
        labels=labels.labels,
        columns=table.columns,
        offsets=table.offsets,
        findings=(*labels.findings, *giveaways, *table.findings),
        reading=table.reading,
        missing=table.missing,
    )
    return _build_dataset(rows, aside, details)


def take_part(
    values: npt.NDArray[Any] | None, begin: int, end: int | None = None
) -> npt.NDArray[Any] | None:
    """Return a range of values, or None for None."""
    return None if values is None else values[begin:end]


def from_folder(
    path: str | Path,
    options: LoadOptions = DEFAULTS,
    *,
    notify: ReportBytes = ignore_bytes,
) -> Dataset:
    """Create a dataset from a folder of images, with or without sites.

    The layout is ``site/class/*`` and ``site/unlabeled/*``, or ``class/*`` and
    ``unlabeled/*``; both also in ``train/``, ``val/`` and ``test/``. Formats are PNG, JPEG and
    others of pillow, and DICOM (by pydicom). Images are read as a viewer shows them.
    Pixels are divided by 255, those of 16 bits by 65,535, as in arrays. Physical values of
    DICOM images, such as HU, are scaled from ``physical_range`` to [0, 1]; default: their 0.1 % and
    99.9 % quantiles over all sites. There is one
    channel if every image is gray, else three. Images of unusual sizes are resized to the
    most frequent size, with a note. Examples are named by their paths below the folder.
    ``notify`` receives the number of bytes read. Needs pillow.

    A table in the folder with the columns ``file`` and ``label``, and optionally ``site``, lists
    the images and their classes; with ``target``, their regression targets. An empty cell is
    unlabeled. Raises ValueError with the file if an image cannot be read.
    """
    folder = find_existing(path)
    result = read_folder(folder, notify, options)
    classes = options.classes
    sites = None
    if result.sites is not None:
        sites = np.array(result.sites)
    labels: npt.NDArray[Any] = np.asarray(result.labels)
    task: TaskChoice = "classification" if options.label is None else "auto"
    if result.targets is not None:
        labels = result.targets
        task = "regression"
    if result.empty_classes and not classes:
        classes = sort_names({*result.labels, *result.empty_classes} - {""})
    groups = None if result.groups is None else np.array(result.groups)
    train = np.arange(len(result.x))
    tests: dict[str, Any] = {}
    if result.is_test is not None:
        train = np.flatnonzero(~result.is_test)
        test = np.flatnonzero(result.is_test)
        tests = {"x_test": result.x[test], "y_test": labels[test]}
        if sites is not None:
            tests["sites_test"] = sites[test]
        if groups is not None:
            tests["groups_test"] = groups[test]
    x = result.x
    if result.is_test is not None:
        x = x[train]
    dataset = from_arrays(
        x,
        labels[train],
        take_names(sites, train),
        groups=take_names(groups, train),
        ids=[result.names[row] for row in train],
        name=folder.name,
        task=task,
        classes=classes,
        findings=result.findings,
        **tests,
    )
    reading = dataset.reading
    if reading is not None:
        reading = replace(reading, unit=result.unit, files=list_of_files(options))
    return replace(dataset, reading=reading, physical_range=result.physical_range)


def take_names(
    names: npt.NDArray[Any] | None, rows: npt.NDArray[np.int64]
) -> npt.NDArray[Any] | None:
    """Return the names of some examples, or None for None."""
    return None if names is None else names[rows]


def sort_names(names: Iterable[str]) -> tuple[str, ...]:
    """Return class names in order: as numbers if all of them are numbers."""
    ordered = sorted(names)
    if all(name.isdecimal() for name in ordered):
        ordered.sort(key=int)
    return tuple(ordered)


def open_dataset(
    spec: str | Path,
    options: LoadOptions = DEFAULTS,
    *,
    data_dir: str | Path | None = None,
    outline: int | None = None,
    notify: ReportBytes = ignore_bytes,
    **keywords: Unpack[LoadKeywords],
) -> Dataset:
    """Open a named dataset, or the user's table, .npz file or folder of images.

    ``keywords`` are options, instead of ``options``. ``outline``: for named datasets of many
    images, the number of images to read instead of all (see ``load_outline``). ``notify``
    receives the number of bytes read of a text file or a folder of images.
    """
    if keywords:
        options = build_options(**keywords)
    file = Path(spec)
    kind = find_kind(file)
    if not is_named(str(spec)) and (file.suffix or len(file.parts) > 1):
        find_existing(file)
    if kind == "named":
        if is_named(str(spec)):
            check_applies(spec, kind, options)
        if outline is not None:
            return load_outline(str(spec), data_dir, outline)
        return load(str(spec), data_dir)
    if kind == "arrays" and file.suffix.lower() != ".npz" and find_by_path(file) is None:
        raise ValueError(
            f"{file} is not a dataset that Fallow can read; give a table "
            f"({', '.join(TABLES)}), a .npz file or a folder of images{advise_name(file)}"
            f"{_advise_format(file)}"
        )
    if kind in ("table", "workbook"):
        check_applies(file, kind, options)
        require_label(file, options)
        return from_table(file, options, notify=notify)
    if not list_given(options):
        named = load_path(file)
        if named is not None:
            return named
    if file.is_dir():
        _check_no_tables(file)
    check_applies(file, kind, options)
    if file.is_dir():
        return from_folder(file, options, notify=notify)
    return from_npz(file, options)


WAYS_OUT = {
    (".xls", ".xlsb", ".ods", ".numbers"): "save the table as .xlsx",
    (".txt", ".dat", ".tab", ".asc"): "if it is a table of text, rename it to .csv",
    (".gz", ".zip", ".bz2", ".xz", ".zst", ".7z", ".tar"): "unpack it",
    (
        ".json",
        ".jsonl",
        ".ndjson",
        ".xml",
        ".arff",
    ): "write its rows to a .csv or .parquet file",
    (".sav", ".sas7bdat", ".xpt", ".dta", ".rds", ".rdata", ".mat", ".h5", ".db"): (
        "export the table as .csv or .parquet"
    ),
    (".npy", ".pt", ".pkl", ".pickle"): "save the arrays x and y with numpy.savez",
}
"""Advice on a file of another format, by the end of its name."""


def _advise_format(file: Path) -> str:
    """Return the part of a sentence on what to do with a file of another format, or ""."""
    for endings, way_out in WAYS_OUT.items():
        if file.suffix.lower() in endings:
            return f"; {way_out}"
    return ""


def _check_no_tables(folder: Path) -> None:
    """Raise ValueError for a folder of tables, also in folders such as ``site=basel``."""
    files = [*list_files(folder, "*"), *list_files(folder, "*/*")]
    tables = [file for file in files if file.suffix.lower() in TABLES]
    if tables and len(tables) == len(files):
        raise ValueError(
            f"{folder} has tables, such as {tables[0].relative_to(folder).as_posix()}; join them "
            "to one file with a column of the site, or give one of them"
        )


def find_kind(file: Path) -> Kind:
    """Return the kind of data at a path, by its name; other files may be published ones."""
    suffix = file.suffix.lower()
    if suffix in EXCEL_FILES:
        return "workbook"
    if suffix in TABLES:
        return "table"
    if is_named(str(file)) or not file.exists():
        return "named"
    if file.is_dir():
        return "images"
    return "arrays"


def _to_array(values: Arrayish) -> npt.NDArray[Any]:
    if isinstance(values, Tensor):
        values = values.detach().cpu()
        if values.dtype == torch.bfloat16:  # a type that NumPy lacks
            values = values.float()
        return values.numpy()
    return np.asarray(values)


class _Rows(NamedTuple):
    """Checked examples with all values that belong to them."""

    x: Tensor
    y: npt.NDArray[Any]
    sites: npt.NDArray[Any] | None = None
    groups: npt.NDArray[Any] | None = None
    ids: tuple[str, ...] | None = None
    findings: tuple[Finding, ...] = ()

    def take(self, rows: npt.NDArray[np.int64]) -> _Rows:
        """Return a copy of some examples, by index."""
        return self._take_besides(self.x[rows], rows)

    def _take_besides(self, x: Tensor, rows: npt.NDArray[np.int64]) -> _Rows:
        """Return the features ``x`` with the other values of some examples, by index."""
        ids = self.ids
        if ids is not None:
            ids = tuple(ids[row] for row in rows)
        return _Rows(
            x=x,
            y=self.y[rows],
            sites=take_names(self.sites, rows),
            groups=take_names(self.groups, rows),
            ids=ids,
            findings=self.findings,
        )

    def part(
        self, train: npt.NDArray[np.int64], test: npt.NDArray[np.int64]
    ) -> tuple[_Rows, _Rows]:
        """Split into two parts by sorted indices.

        The first part overwrites the memory of all examples, which must not be used again,
        so that a large table is not in memory twice.
        """
        aside = self.take(test)
        for begin in range(0, len(train), BLOCK):
            some = train[begin : begin + BLOCK]  # moves up, or stays
            self.x[begin : begin + len(some)] = self.x[some]
        return self._take_besides(self.x[: len(train)], train), aside

    @property
    def is_whole(self) -> npt.NDArray[np.bool_]:
        """Return which examples have only finite features: (n,)."""
        result: npt.NDArray[np.bool_] = self.x.isfinite().flatten(1).all(1).numpy()
        return result


@dataclass(frozen=True)
class _Details:
    """Properties of all examples of a dataset."""

    name: str
    classes: tuple[str, ...]
    columns: tuple[str, ...]
    findings: tuple[Finding, ...]
    reading: Reading
    missing: Missing | None = None
    offsets: tuple[float, ...] = ()
    labels: tuple[str, ...] = ()


def _build_dataset(
    rows: _Rows, aside: _Rows | None, facts: _Details, *, leaves_out_leaks: bool = False
) -> Dataset:
    """Create the dataset with the given test examples, or hold some out."""
    is_given = aside is not None
    findings = [*facts.findings]
    if aside is None:
        if facts.missing is None:  # while all examples are available for counting
            check_finite(facts.name, "rows", rows.x, facts.columns)
        groups = None
        if rows.groups is not None:
            groups = np.unique(rows.groups, return_inverse=True)[1]
        copies = copies_of(rows.x)
        findings += _warn_of_two_labels(rows, copies)
        strata = join_rare(rows.y) if facts.labels else rows.y
        train, test = hold_out(facts.name, rows.x, strata, groups, copies)
        rows, aside = rows.part(train, test)
    site_names, site, site_test = _number_names(rows.sites, aside.sites)
    _, group, group_test = _number_names(rows.groups, aside.groups)
    dataset = Dataset(
        name=facts.name,
        x=rows.x,
        y=torch.from_numpy(rows.y),
        x_test=aside.x,
        y_test=torch.from_numpy(aside.y),
        classes=facts.classes,
        labels=facts.labels,
        sites=site,
        sites_test=site_test,
        site_names=site_names,
        groups=group,
        groups_test=group_test,
        columns=facts.columns,
        ids=rows.ids,
        findings=(*findings, *_check_groups(rows, aside)),
        missing=facts.missing,
        offsets=facts.offsets,
        reading=facts.reading,
    )
    if leaves_out_leaks:
        dataset = drop_leaks(dataset)
        if len(aside.x) and not len(dataset.x_test):
            raise ValueError(
                f"{facts.name}: all {len(aside.x)} test examples are also training "
                "examples; give other ones"
            )
    elif is_given:  # duplicates are held out together
        check_leak(dataset)
    return dataset


FEW_COPIES = 0.1
"""Share of equal rows of a table up to which they are copies and no coincidence."""


def _warn_of_two_labels(rows: _Rows, copies: Copies) -> list[Finding]:
    """Return a warning of equal examples that have different classes."""
    first, kind = copies
    n_copies = len(kind) - len(first)
    is_table = rows.x.ndim == 2
    if rows.y.dtype.kind != "i" or not n_copies:
        return []
    if is_table and n_copies > FEW_COPIES * len(kind):
        return []
    other = first[kind]  # an equal example of each
    differs = (rows.y != rows.y[other]) & (rows.y >= 0) & (rows.y[other] >= 0)
    at = np.flatnonzero(differs)
    if not len(at):
        return []
    pair = sorted((int(at[0]), int(other[at[0]])))
    names = f"rows {pair[0] + 1} and {pair[1] + 1}"
    if rows.ids is not None:
        names = f"{rows.ids[pair[0]]} and {rows.ids[pair[1]]}"
    are = "example is" if len(at) == 1 else "examples are"
    named = f": {names}" if len(at) == 1 else f", such as {names}"
    sentence = f"{len(at):,} {are} equal to another one with another label{named}"
    return [Finding("warning", sentence, "correct their labels", is_doubtful=is_table)]


def _settle_names(
    what: str, train: Names | None, test: Names | None, merge: bool
) -> tuple[Names | None, Names | None, list[Finding]]:
    """Return the sites or groups of both parts, merged if requested, and what was found."""
    parts = [part for part in (train, test) if part is not None]
    if train is None or any(part.dtype.kind != "U" for part in parts):
        return train, test, []
    joined = np.concatenate(parts)
    n_empty = int((joined == "").sum())
    if n_empty:
        raise ValueError(f"{what}: {n_empty} examples have none; fill them in")
    names, findings = settle_names(what, joined, merge)
    n = len(train)
    return names[:n], None if test is None else names[n:], findings


def _count_rows(rows: _Rows, aside: _Rows | None, name: str) -> Reading:
    """Return the number of examples of each site, in both parts."""
    n = len(rows.x)
    if aside is not None:
        n += len(aside.x)
    sites = _join_sites(rows, aside)
    return Reading(name, count_at(sites, np.ones(n, dtype=np.bool_)))


def _join_sites(rows: _Rows, aside: _Rows | None) -> npt.NDArray[Any] | None:
    """Return the site of each example in both parts; None if one part has no sites."""
    if aside is None:
        return rows.sites
    if rows.sites is None or aside.sites is None:
        return None
    return np.concatenate([rows.sites, aside.sites])


def _keep_whole_rows(
    rows: _Rows, aside: _Rows | None, reading: Reading
) -> tuple[_Rows, _Rows | None, Reading, tuple[str, ...]]:
    """Return both parts without examples that have a feature that is not finite, and a
    note.
    """
    parts = [rows]
    if aside is not None:
        parts.append(aside)
    keep = np.concatenate([part.is_whole for part in parts])
    counts = count_at(_join_sites(rows, aside), ~keep)
    reading = reading.without("a feature is missing or infinite", counts)
    whole = rows.take(np.flatnonzero(rows.is_whole))
    whole_aside = None
    if aside is not None:
        whole_aside = aside.take(np.flatnonzero(aside.is_whole))
    left_out = int((~keep).sum())
    notes: tuple[str, ...] = ()
    if left_out:
        notes = (f"examples with NaN or infinite features left out: {left_out}",)
    return whole, whole_aside, reading, notes


def _omit_repeated(findings: Sequence[Finding], others: Sequence[Finding]) -> list[Finding]:
    """Return the findings whose sentence is not among those of others."""
    sentences = {finding.sentence for finding in others}
    return [finding for finding in findings if finding.sentence not in sentences]


MOST_CHECKED = 200
"""Largest number of columns of an array that are checked one by one, unlike embeddings."""


def _check_numbers(x: npt.NDArray[Any], labels: EncodedLabels) -> Iterator[Finding]:
    """Yield what may be wrong with the columns of an array, as with those of a table.

    x: (n, d).
    """
    if x.ndim != 2 or x.dtype.kind not in "iuf" or not 0 < x.shape[1] <= MOST_CHECKED:
        return
    if len(x) != len(labels.y):
        return  # refused later
    names = [f"x[:, {at}]" for at in range(x.shape[1])]
    for at, name in enumerate(names):
        values = x[:, at].astype(np.float64)
        yield from warn_of_sentinels(name, values[np.isfinite(values)])
        yield from warn_of_units(name, values)
    n_small = count_too_small(x.astype(np.float64))
    if n_small:
        sentence = (
            f"{n_small:,} numbers in x are smaller than {SMALLEST:.1g}, and lose their digits or "
            "become 0 in float32"
        )
        yield warning(sentence, "give their logarithms, or other units")
    with np.errstate(over="ignore"):
        numbers = x.astype(np.float32)
    if np.isfinite(numbers).all() and not labels.labels:
        from fallow.data.loaders.giveaways import find_giveaways  # sites never need it

        reads = [ColumnRead(name, "number") for name in names]
        giveaways = find_giveaways(numbers, names, reads, labels.y)
        yield from [replace(item, fix="omit such columns") for item in giveaways]


def _check_rows(
    features: npt.NDArray[Any],
    y: npt.NDArray[Any],
    sites: Arrayish | None,
    groups: Arrayish | None,
    ids: Sequence[str] | None,
    name: str,
    is_last: bool,
) -> _Rows:
    """Return checked examples; ValueError if types or numbers of examples disagree.

    is_last: images have their channels last.
    """
    numbers, finding = as_features(features, name)
    if features.ndim < 2:
        raise ValueError(f"{name}: x has shape {features.shape}; give (n, features)")
    n = len(features)
    for what, values in (("labels", y), ("row names", ids)):
        if values is not None and len(values) != n:
            raise ValueError(f"{name}: {n} rows but {len(values)} {what}; give one per row")
    row_names = None
    if ids is not None:
        row_names = tuple(map(str, ids))
    if is_last and features.ndim == 4:
        numbers = np.moveaxis(numbers, 3, 1)
    findings: tuple[Finding, ...] = ()
    if finding is not None:
        findings = (finding,)
    return _Rows(
        torch.from_numpy(numbers),
        y,
        sites=_check_names("sites", sites, n, name),
        groups=_check_names("groups", groups, n, name),
        ids=row_names,
        findings=findings,
    )


def _compare_scales(rows: _Rows, aside: _Rows, name: str) -> list[Finding]:
    """Return a warning of test images whose pixels are on another scale."""
    if rows.x.ndim != 4 or aside.x.ndim != 4 or not len(rows.x) or not len(aside.x):
        return []
    low, high = find_range(rows.x.numpy())
    tests = aside.x.numpy()
    if not is_on_another_scale(tests, low, high):
        return []
    lowest, highest = find_range(tests)
    sentence = (
        f"{name}: pixels of the test examples are between {lowest:g} and {highest:g}, and those of "
        f"the others between {low:g} and {high:g}"
    )
    return [warning(sentence, "give both on one scale")]


def _check_names(
    what: str, values: Arrayish | None, n: int, name: str
) -> npt.NDArray[Any] | None:
    """Return the sites or groups of n examples, or None for None."""
    if values is None:
        return None
    names = _to_array(values)
    if names.dtype.kind not in "iuU" or names.shape != (n,):
        raise ValueError(
            f"{name}: {what} are {names.dtype} of shape {names.shape}; give integers or "
            f"texts, one per row ({n})"
        )
    return names


def _number_names(
    train: npt.NDArray[Any] | None,
    test: npt.NDArray[Any] | None,
) -> tuple[tuple[str, ...], Tensor | None, Tensor | None]:
    """Return different names in sorted order, and the number of that of each example."""
    if train is None:
        return (), None, None
    both = train
    if test is not None:
        both = np.concatenate([train, test])
    names, ids = np.unique(both, return_inverse=True)
    number = torch.from_numpy(ids.astype(np.int64))
    number_test = None
    if test is not None:
        number_test = number[len(train) :]
    return tuple(map(str, names)), number[: len(train)], number_test


def _check_groups(rows: _Rows, aside: _Rows) -> Iterator[Finding]:
    """Yield what may be wrong with the groups of both parts."""
    if rows.groups is None:
        return
    n_groups = len(np.unique(rows.groups))
    if n_groups == len(rows.groups):
        yield warning("each example has its own group, so that groups have no effect")
    if not len(aside.x):
        yield warning(
            "no test examples were held out, because each group has an unlabeled example, "
            "or one that is equal to an example of another group",
            "x_test= or test=",
        )
    if rows.sites is not None:
        pairs = {*zip(rows.groups.tolist(), rows.sites.tolist(), strict=True)}
        sites_of = Counter(group for group, _ in pairs)
        n_divided = sum(n > 1 for n in sites_of.values())
        if n_divided:
            group = sites_of.most_common(1)[0][0]
            yield warning(
                f"{count_noun(n_divided, 'group')} with examples at several sites, such as "
                f"{group!r}: the natural partition keeps them there"
            )
