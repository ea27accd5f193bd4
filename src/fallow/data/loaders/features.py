"""Unlabeled examples, in the columns of a trained model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fallow.core.load_options import LoadOptions
from fallow.core.suggestions import require_known
from fallow.data.example_spec import ExampleSpec, marks_of, options_of, scale_of
from fallow.data.loaders.archive import read_arrays
from fallow.data.loaders.folders import list_files
from fallow.data.loaders.images import name_pages, read_images
from fallow.data.loaders.numbers import subtract_offsets
from fallow.data.loaders.scaling import scale_as_trained
from fallow.data.loaders.text_rules import check_names
from fallow.data.reading import Finding, warning
from fallow.storage.files import find_existing
from fallow.storage.table_suffixes import EXCEL_FILES

if TYPE_CHECKING:
    from narwhals.stable.v2.typing import IntoDataFrame


@final
@dataclass(frozen=True, eq=False)
class NewRows:
    """Examples to predict.

    x: (n, *shape) float32. whole: (n,) bool, False for an example with a missing feature.
    names: identifiers in ``named_by``: the files of images, the column of IDs of a table,
    or numbers from 0. findings: what may be read otherwise than meant.
    """

    x: Tensor
    whole: Tensor
    named_by: str
    names: Sequence[object]
    findings: tuple[Finding, ...] = ()


def read_rows(path: Path, spec: ExampleSpec, options: LoadOptions | None = None) -> NewRows:
    """Read the examples of a table, a .npz file, or all images below a folder.

    Other columns of a table (labels, names) are ignored.  IDs of a .npz file are in its array
    ``ids``.  An empty cell or NaN is a missing feature.

    spec: of the examples of training.  options: how files are read, instead of as those of
    training.  Raises ValueError for a missing column, a cell that is not a finite number or a known
    text, a different shape, and if every example has a missing feature.
    """
    find_existing(path)
    named_by = "row"
    names: Sequence[object] | None = None
    findings: Sequence[Finding] = ()
    is_as_trained = options is None
    options = options or options_of(spec)
    ids = spec.get("ids", "id")
    shape = spec["shape"]
    if path.is_dir():
        named_by, names, x, findings = _read_images(path, spec, options)
        scale = scale_of(spec)
        if scale is not None:
            x = torch.from_numpy(scale.normalize(x.numpy()))
    elif path.suffix.lower() == ".npz":
        rows = read_array_rows(path, spec, "ids")
        x = rows.x
        if rows.finding is not None and rows.finding.severity == "warning":
            findings = [rows.finding]
        if "ids" in rows.texts:
            named_by = ids
            names = rows.texts["ids"]
    elif not spec["columns"]:
        raise ValueError(
            f"the model was not trained on a table; give {path.stem}.npz with x, or a "
            "folder of images"
        )
    else:
        from fallow.data.loaders.encoding import encode_features
        from fallow.data.loaders.table_files import read_file

        renamed: list[Finding] = []
        if is_as_trained:
            options, renamed = _follow_sheet(path, options)
        table = read_file(path, options=options, expected=marks_of(spec))
        findings = [item for item in table.findings if item.severity == "warning"]
        findings += renamed
        x = torch.from_numpy(encode_features(table, spec, merge=options.merge))
        if ids in table.columns:
            named_by = ids
            names = table.texts(ids)
    if tuple(x.shape[1:]) != tuple(shape):
        raise ValueError(
            f"{path.name} has rows of shape {tuple(x.shape[1:])}, and the model needs "
            f"{tuple(shape)}"
        )
    if bool(torch.isinf(x).any()):
        raise ValueError(f"{path.name} has infinite features; correct them")
    whole = ~torch.isnan(x).flatten(1).any(1)
    if "marks" in spec:  # the model imputes missing values
        whole[:] = True
    if not bool(whole.any()):
        raise ValueError(f"{path.name} has no row without missing features; fill some in")
    if names is None:
        names = range(len(x))
    return NewRows(x, whole, named_by, names, tuple(findings))


def _follow_sheet(path: Path, options: LoadOptions) -> tuple[LoadOptions, list[Finding]]:
    """Return options with the only sheet of an Excel file, if that of training has another name."""
    from fallow.data.loaders.workbook import find_only_sheet

    if options.sheet is None or path.suffix.lower() not in EXCEL_FILES:
        return options, []
    only = find_only_sheet(path)
    if only in (None, options.sheet):
        return options, []
    sentence = (
        f"{path.name} has no sheet {options.sheet!r}, from which training read; its only sheet, "
        f"{only!r}, was read"
    )
    return replace(options, sheet=only), [warning(sentence)]


def _read_images(
    folder: Path, spec: ExampleSpec, options: LoadOptions
) -> tuple[str, Sequence[object] | None, Tensor, list[Finding]]:
    """Read all images below a folder in the shape (channels, height, width) of the model.

    Also return warnings about them."""
    files = list_files(folder, "**/*")
    if not files:
        raise ValueError(f"{folder} contains no images; give a folder that contains some")
    shape = spec["shape"]
    channels: int | None = None
    size: tuple[int, int] | None = None
    if len(shape) == 3:
        channels = shape[0]
        size = (shape[1], shape[2])
    physical_range = spec.get("physical_range")
    stack = read_images(files, channels, size, physical_range, options.pages)
    if stack.physical_range is not None and physical_range is None:
        raise ValueError(
            f"{folder.name} has DICOM images with physical units, and the images of training "
            "had none; export them as those of training"
        )
    unit = spec.get("physical_unit", stack.unit)
    if stack.unit != unit:
        raise ValueError(
            f"{folder.name} has images with {stack.unit or 'no unit'}, and those of training had "
            f"{unit}; convert them to that unit"
        )
    x = torch.from_numpy(stack.x)
    names = [files[at].relative_to(folder).as_posix() for at in stack.file_of]
    warnings = [item for item in stack.findings if item.severity == "warning"]
    return "file", name_pages(names, stack.file_of), x, warnings


class ArrayRows(NamedTuple):
    """Examples of a .npz file."""

    x: Tensor  # (n, *shape) float32
    texts: dict[str, list[str]]  # arrays with one value per example, "" for NaN
    finding: Finding | None  # on the conversion of x
    arrays: dict[str, npt.NDArray[Any]]


def read_array_rows(path: Path, spec: ExampleSpec, *names: str) -> ArrayRows:
    """Read the array ``x`` of a .npz file, and those of ``names`` that it has.

    The features of a file with the array ``columns`` are ordered as those of the model.  Raises
    ValueError for a file without x, and for arrays of another length.
    """
    arrays = read_arrays(path)
    require_known("x", arrays, f"{path.name} has no array 'x'")
    x = arrays["x"]
    if spec["columns"] and "columns" in arrays:
        x = _order_columns(path, x, arrays["columns"], spec["columns"])
    shifted = subtract_offsets(x, spec.get("offsets", ()))
    numbers, finding = scale_as_trained(
        shifted, spec["shape"], path.name, scale_of(spec), spec.get("range")
    )
    texts: dict[str, list[str]] = {}
    for name in names:
        if name not in arrays:
            continue
        texts[name] = [text_of(value) for value in arrays[name].tolist()]
        if len(texts[name]) != len(numbers):
            raise ValueError(
                f"{path.name}: {len(numbers)} rows in x and {len(texts[name])} in {name}; "
                "give one per row"
            )
    return ArrayRows(torch.from_numpy(numbers), texts, finding, arrays)


def _order_columns(
    path: Path, x: npt.NDArray[Any], names: npt.NDArray[Any], columns: Sequence[str]
) -> npt.NDArray[Any]:
    """Return the features (n, d) of a model by their names in the file."""
    known = [str(name) for name in names.ravel().tolist()]
    check_names(known, path.name)
    if x.shape[1:] != (len(known),):
        raise ValueError(
            f"{path.name}: an example has the shape {x.shape[1:]}, and columns names {len(known)} "
            "features; give one name per feature"
        )
    for column in columns:
        require_known(column, known, f"{path.name} has no column {column!r}")
    at = [known.index(column) for column in columns]
    return x[:, at]


def text_of(value: object) -> str:
    """Return a label or name as text, "" for NaN."""
    if isinstance(value, float) and math.isnan(value):
        return ""
    return str(value)


def read_features(
    df: IntoDataFrame, spec: ExampleSpec, name: str = "frame"
) -> npt.NDArray[np.float32]:
    """Return the features on which a model was trained: (n, d); NaN for missing values.

    Other columns are ignored.  Raises ValueError for a missing column and for text that the model
    does not know.
    """
    from fallow.data.loaders.encoding import encode_features
    from fallow.data.loaders.table_files import table_of_frame

    table = table_of_frame(df, name, expected=marks_of(spec))
    return encode_features(table, spec, merge=options_of(spec).merge)


def is_frame(value: object) -> bool:
    """Return whether a value is a table in memory: of pandas, polars or Arrow, among others.

    Raises ValueError for a table in which two columns have the same name.
    """
    if not hasattr(value, "columns"):  # before narwhals is imported
        return False
    import narwhals.stable.v2 as nw

    try:
        native = nw.from_native(value, eager_only=True, pass_through=True)
    except nw.exceptions.DuplicateError:
        check_names(list(map(str, value.columns)), "the DataFrame")
        raise
    return isinstance(native, nw.DataFrame)
