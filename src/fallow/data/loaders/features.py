"""Unlabeled examples, in the columns of a trained model."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fallow.core.load_options import DEFAULTS, DecimalMark, LoadOptions
from fallow.core.suggestions import require_known
from fallow.data.loaders.archive import read_arrays
from fallow.data.loaders.images import list_files, name_pages, read_images
from fallow.data.loaders.numbers import subtract_offsets
from fallow.data.loaders.scaling import PixelScale, scale_as_trained
from fallow.data.loaders.text_rules import check_names
from fallow.data.reading import Finding
from fallow.storage.files import find_existing

if TYPE_CHECKING:
    from narwhals.stable.v2.typing import IntoDataFrame


NO_UNITS: Mapping[str, str] = MappingProxyType({})


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


def read_rows(
    path: Path,
    columns: Sequence[str],
    shape: Sequence[int],
    marks: Sequence[Sequence[str]] | None = None,
    ids: str = "id",
    offsets: Sequence[float] = (),
    units: Mapping[str, str] = NO_UNITS,
    scale: PixelScale | None = None,
    pixel_range: Sequence[float] | None = None,
    physical_range: Sequence[float] | None = None,
    expected: DecimalMark = "auto",
    options: LoadOptions = DEFAULTS,
) -> NewRows:
    """Read the examples of a table, a .npz file, or all images below a folder.

    columns: features of the trained model, ``name=level`` for a text column; other columns
    of the file (labels, names) are ignored. An empty cell or NaN is a missing feature.
    marks: indicator features of empty cells, with their columns, if the model was trained
    with empty cells and imputes them; None otherwise. ids: the column of IDs of a table; a
    .npz file has them in the array ``ids``. offsets: see `Dataset.offsets`. units: those of
    the columns whose cells had one. scale, pixel_range: see `scale_as_trained`.
    physical_range: see `Dataset.physical_range`. expected: the decimal mark of training, for a text
    file whose cells do not tell theirs. options: ``pages``, and how a table is written. Raises
    ValueError for a missing column, a cell that is not a finite number or a known text, a
    different shape, and if every example has a missing feature.
    """
    find_existing(path)
    named_by = "row"
    names: Sequence[object] | None = None
    findings: Sequence[Finding] = ()
    marked = {mark[0]: mark[1] for mark in marks or ()}
    if path.is_dir():
        named_by, names, x = _read_images(path, shape, physical_range, options)
        if scale is not None:
            x = torch.from_numpy(scale.normalize(x.numpy()))
    elif path.suffix.lower() == ".npz":
        rows = read_array_rows(
            path,
            shape,
            "ids",
            columns=columns,
            offsets=offsets,
            scale=scale,
            pixel_range=pixel_range,
        )
        x = rows.x
        if rows.finding is not None and rows.finding.severity == "warning":
            findings = [rows.finding]
        if "ids" in rows.texts:
            named_by = ids
            names = rows.texts["ids"]
    elif not columns:
        raise ValueError(
            f"the model was not trained on a table; give {path.stem}.npz with x, or a "
            "folder of images"
        )
    else:
        from fallow.data.loaders.encoding import encode_features
        from fallow.data.loaders.table_files import read_file

        table = read_file(path, options=options, expected=expected)
        findings = [item for item in table.findings if item.severity == "warning"]
        features = encode_features(
            table, columns, marked, offsets, units, merge=options.merge
        )
        x = torch.from_numpy(features)
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
    if marks is not None:  # the model imputes missing values
        whole[:] = True
    if not bool(whole.any()):
        raise ValueError(f"{path.name} has no row without missing features; fill some in")
    if names is None:
        names = range(len(x))
    return NewRows(x, whole, named_by, names, tuple(findings))


def _read_images(
    folder: Path,
    shape: Sequence[int],
    physical_range: Sequence[float] | None,
    options: LoadOptions,
) -> tuple[str, Sequence[object] | None, Tensor]:
    """Read all images below a folder in the shape (channels, height, width) of the model."""
    files = list_files(folder, "**/*")
    if not files:
        raise ValueError(f"{folder} contains no images; give a folder that contains some")
    channels: int | None = None
    size: tuple[int, int] | None = None
    if len(shape) == 3:
        channels = shape[0]
        size = (shape[1], shape[2])
    black_and_white = None
    if physical_range is not None:
        low, high = physical_range
        black_and_white = (low, high)
    stack = read_images(files, channels, size, black_and_white, options.pages)
    if stack.physical_range is not None and physical_range is None:
        raise ValueError(
            f"{folder.name} has DICOM images with physical units, and the images of training "
            "had none; export them as those of training"
        )
    x = torch.from_numpy(stack.x)
    names = [files[at].relative_to(folder).as_posix() for at in stack.file_of]
    return "file", name_pages(names, stack.file_of), x


class ArrayRows(NamedTuple):
    """Examples of a .npz file."""

    x: Tensor  # (n, *shape) float32
    texts: dict[str, list[str]]  # arrays with one value per example, "" for NaN
    finding: Finding | None  # on the conversion of x
    arrays: dict[str, npt.NDArray[Any]]


def read_array_rows(
    path: Path,
    shape: Sequence[int],
    *names: str,
    columns: Sequence[str] = (),
    offsets: Sequence[float] = (),
    scale: PixelScale | None = None,
    pixel_range: Sequence[float] | None = None,
) -> ArrayRows:
    """Read the array ``x`` of a .npz file, and those of ``names`` that it has.

    shape: of an example as the model takes it. columns: names of its features, by which those of a
    file with the array ``columns`` are ordered. offsets: see `Dataset.offsets`. scale,
    pixel_range: see `scale_as_trained`. Raises ValueError for a file without x, and for arrays of
    another length.
    """
    arrays = read_arrays(path)
    require_known("x", arrays, f"{path.name} has no array 'x'")
    x = arrays["x"]
    if columns and "columns" in arrays:
        x = _order_columns(path, x, arrays["columns"], columns)
    shifted = subtract_offsets(x, offsets)
    numbers, finding = scale_as_trained(shifted, shape, path.name, scale, pixel_range)
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
    df: IntoDataFrame,
    columns: Sequence[str],
    name: str = "frame",
    marks: Sequence[Sequence[str]] = (),
    offsets: Sequence[float] = (),
    units: Mapping[str, str] = NO_UNITS,
    *,
    merge: bool = False,
    expected: DecimalMark = "auto",
) -> npt.NDArray[np.float32]:
    """Return the features on which a model was trained: (n, d); NaN for missing values.

    columns: names of features, ``column=level`` for one level of a text column.  Other columns are
    ignored.  marks: indicator features of empty cells, with their columns.  offsets: see
    `Dataset.offsets`.  units: those of the columns whose cells had one.  merge: see
    `encode_features`.  expected: the decimal mark of training.  Raises ValueError for a missing
    column and for text that the model does not know.
    """
    from fallow.data.loaders.encoding import encode_features
    from fallow.data.loaders.table_files import table_of_frame

    marked = {mark[0]: mark[1] for mark in marks}
    table = table_of_frame(df, name, expected=expected)
    return encode_features(table, columns, marked, offsets, units, merge=merge)


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
