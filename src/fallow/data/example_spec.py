"""How the examples of training were read, stored with a model to read new ones alike."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, NotRequired

from typing_extensions import TypedDict

from fallow.core.load_options import (
    UNKNOWN_MARKS,
    FileOptions,
    KnownMarks,
    LoadOptions,
    read_options,
)
from fallow.data.dataset import Dataset, Task
from fallow.data.loaders.scaling import PixelScale
from fallow.storage.validation import adapter_of, find_error_in_json

WIDEST = 2**24  # values per example


class ExampleSpec(TypedDict):
    """Description of the examples for prediction."""

    classes: Sequence[str]  # empty for other tasks
    labels: NotRequired[Sequence[str]]  # names of several labels per example
    columns: Sequence[str]  # names of the features of a table, else empty
    shape: Sequence[int]  # of an example as it was measured
    # features that are 1 where a cell was empty, each with the column that it marks
    marks: NotRequired[Sequence[Sequence[str]]]
    ids: NotRequired[str]  # the column of IDs; without one it is "id"
    offsets: NotRequired[Sequence[float]]  # what is subtracted from each feature
    range: NotRequired[tuple[float, float]]  # smallest and largest pixel in training
    pixels: NotRequired[Mapping[str, Any]]  # fields of `PixelScale`
    units: NotRequired[Mapping[str, str]]  # of columns whose cells had one
    physical_range: NotRequired[tuple[float, float]]  # of DICOM images: black and white
    physical_unit: NotRequired[str]  # of these values, such as "CT in HU"
    numbers: NotRequired[Mapping[str, Any]]  # fields of `KnownMarks`, of a table
    files: NotRequired[FileOptions]  # options by which files are read


def describe_examples(dataset: Dataset) -> ExampleSpec:
    """Describe the examples of a dataset."""
    spec: ExampleSpec = {
        "classes": dataset.classes,
        "columns": dataset.columns,
        "shape": tuple(dataset.x.shape[1:]),
    }
    if dataset.labels:
        spec["labels"] = dataset.labels
    if dataset.missing is not None:
        spec["marks"] = [list(mark) for mark in dataset.missing.marks]
    if dataset.offsets:
        spec["offsets"] = list(dataset.offsets)
    if dataset.pixel_range is not None:
        spec["range"] = dataset.pixel_range
    if dataset.scale is not None:
        spec["pixels"] = asdict(dataset.scale)
    if dataset.units:
        spec["units"] = dataset.units
    if dataset.physical_range is not None:
        spec["physical_range"] = dataset.physical_range
    if dataset.reading is not None:
        add_marks(spec, dataset.reading.marks)
        if dataset.reading.unit:
            spec["physical_unit"] = dataset.reading.unit
        if dataset.reading.files:
            spec["files"] = dict(dataset.reading.files)
    return spec


def count_outputs(spec: ExampleSpec) -> int:
    """Return the number of outputs of a model: one per label or class, and one for regression.

    >>> count_outputs({"classes": [], "columns": [], "shape": [2], "labels": ["a", "b"]})
    2
    """
    return len(spec.get("labels", ())) or len(spec["classes"]) or 1


def task_of(spec: ExampleSpec) -> Task:
    """Return the task of a model."""
    if spec.get("labels"):
        return "multilabel"
    return "classification" if spec["classes"] else "regression"


def name_outputs(spec: ExampleSpec) -> Sequence[str]:
    """Return the names of classes or of several labels; empty for regression."""
    return spec.get("labels") or spec["classes"]


def add_marks(spec: ExampleSpec, marks: KnownMarks) -> None:
    """Add the marks of the numbers in a table."""
    if marks != UNKNOWN_MARKS:
        spec["numbers"] = asdict(marks)


def marks_of(spec: ExampleSpec) -> KnownMarks:
    """Return the marks of the numbers in the table of training."""
    marks: KnownMarks = adapter_of(KnownMarks).validate_python(spec.get("numbers", {}))
    return marks


def scale_of(spec: ExampleSpec) -> PixelScale | None:
    """Return the normalization of the training images, or None."""
    if "pixels" not in spec:
        return None
    scale: PixelScale = adapter_of(PixelScale).validate_python(spec["pixels"])
    return scale


def options_of(spec: ExampleSpec) -> LoadOptions:
    """Return the options by which the files of training were read."""
    return read_options(spec.get("files", {}))


def read_example_spec(stored: Mapping[str, Any]) -> ExampleSpec:
    """Check a description from a JSON file.  Raises ValueError for an invalid one.

    >>> read_example_spec(
    ...     {"classes": ["a", "b"], "columns": [], "shape": [2], "range": [0, 1]}
    ... )
    {'classes': ['a', 'b'], 'columns': [], 'shape': [2], 'range': (0.0, 1.0)}
    >>> read_example_spec(
    ...     {"classes": [], "columns": [], "shape": [2], "numbers": {"decimal": "x"}}
    ... )
    Traceback (most recent call last):
    ValueError: numbers.decimal is 'x'; it must be 'auto', '.' or ','
    """
    spec: ExampleSpec = _read_as(ExampleSpec, stored)
    _read_as(KnownMarks, spec.get("numbers", {}), "numbers")
    if "pixels" in spec:
        _read_as(PixelScale, spec["pixels"], "pixels")
    read_options(spec.get("files", {}))
    shape = spec["shape"]
    if not shape or min(shape) < 1 or math.prod(shape) > WIDEST:
        raise ValueError(f"an example has the shape {list(shape)}")
    offsets = spec.get("offsets")
    if offsets is not None:
        is_finite = all(map(math.isfinite, offsets))
        if len(offsets) != math.prod(shape) or not is_finite:
            raise ValueError(f"offsets are not {math.prod(shape)} finite numbers")
    return spec


def _read_as(kind: Any, stored: Mapping[str, Any], name: str = "") -> Any:  # of that type
    error = find_error_in_json(kind, stored, name)
    if error is not None:
        raise ValueError(error)
    return adapter_of(kind).validate_python(stored)
