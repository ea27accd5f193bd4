"""Exchange of images, labels and shapes with CVAT (https://docs.cvat.ai) as files.

The export is an archive of images and a list of labels. The import reads "CVAT for images 1.1".

A label is a tag of a whole image. In a study that selects what others annotate, annotators draw masks,
boxes or other shapes instead. The name of an image contains the row number, the name of the example and
the number of the slice of a case, by which it is identified.
"""

from __future__ import annotations

import io
import json
import math
import re
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar, final
from xml.parsers import expat

from fallow.core.refusal import explain_errors
from fallow.deployment.site.labeling_tools import (
    Cells,
    DisplayedContent,
    DrawnImage,
    JsonObject,
    LabelingTasks,
    LabelingTool,
    Shape,
    ShowRow,
)

ARCHIVE = ".zip"
LABELS = ".labels.json"
"""Suffix of the file that lists the labels of an archive."""
ENDINGS = {"image/png": ".png", "image/jpeg": ".jpg", "image/webp": ".webp"}
OTHERS = re.compile(r"[^A-Za-z0-9_-]+")
MAX_NAME_LENGTH = 60  # characters of an example's name in the name of its image
EPOCH = (
    1980,
    1,
    1,
    0,
    0,
    0,
)  # fixed time of files in an archive, so that equal tasks give equal archives
SHAPES = ("box", "polygon", "polyline", "points", "mask", "ellipse", "cuboid", "skeleton")


@final
class CVAT(LabelingTool):
    """Exchange images and tags with CVAT as files."""

    def format_tasks(self, tasks: LabelingTasks) -> dict[str, bytes]:
        """Return an archive of the images, and the labels in the format of CVAT's raw constructor.

        Raises ValueError for examples without images, for regression, and for labels and
        predictions, which an archive cannot have.
        """
        if not tasks.choices:
            raise ValueError("CVAT's tags are classes, and this study asks for numbers")
        written = io.BytesIO()
        with zipfile.ZipFile(written, "w") as archive:
            for line in tasks.lines:
                _add_image(archive, line, tasks.show)
        labels = [{"name": name, "type": "tag", "attributes": []} for name in tasks.choices]
        text = json.dumps(labels, indent=1, ensure_ascii=False) + "\n"
        return {ARCHIVE: written.getvalue(), LABELS: text.encode()}

    def parse_labels(self, content: bytes) -> list[Cells]:
        """Return the label of each tag in an export as "CVAT for images 1.1"."""
        return read_annotations(content)

    def parse_shapes(self, content: bytes) -> list[DrawnImage]:
        """Return the images and shapes of an export as "CVAT for images 1.1"."""
        return _parse_export(content, _ShapeReader()).images

    def name_example(self, row: int, name: str) -> str:
        """Return the name of an example's image in CVAT, without its extension.

        >>> CVAT().name_example(3, "scan 3")
        '000003-scan-3'
        """
        plain = OTHERS.sub("-", name).strip("-")[:MAX_NAME_LENGTH]
        return f"{row:06d}-{plain}"


def _add_image(archive: zipfile.ZipFile, line: JsonObject, show: ShowRow) -> None:
    """Add the image of an open labeling task to an archive."""
    if line.get("label") or "guess" in line:
        raise ValueError(
            "CVAT receives the images of open labeling tasks; omit --labels and --guess"
        )
    row = line["row"]
    example = str(line["id"])
    shown = show(row) if isinstance(row, int) else None
    if shown is None or shown.media_type not in ENDINGS:
        raise ValueError(
            f"example {example!r} has no image that CVAT shows; export such labeling tasks as .csv, "
            "or with --tool label-studio"
        )
    stem = CVAT().name_example(int(str(row)), example)
    if "slices" not in line:
        _write_image(archive, stem, shown)
        return
    for number in range(int(str(line["slices"]))):
        slice_of_case = show(int(str(row)), number)
        if slice_of_case is not None:
            _write_image(archive, CVAT().name_slice(stem, number), slice_of_case)


def _write_image(archive: zipfile.ZipFile, stem: str, shown: DisplayedContent) -> None:
    name = stem + ENDINGS[shown.media_type]
    archive.writestr(zipfile.ZipInfo(name, EPOCH), shown.content)


# -- import ---------------------------------------------------------------------------------


def read_annotations(content: bytes) -> list[Cells]:
    """Return the image name (``id``) and ``label`` of each tag in an export.

    The name has no extension, and an image without a tag has an empty label. Raises ValueError for
    a file in another format, for a document type or entity declaration, and for an image with
    shapes but no tag.

    >>> image = '<image id="0" name="000003-scan.png"><tag label="ill"/></image>'
    >>> read_annotations(f"<annotations>{image}</annotations>".encode())
    [{'id': '000003-scan', 'label': 'ill', 'location': 'tag 1'}]
    """
    return _parse_export(content, _TagReader()).lines


Reader = TypeVar("Reader", bound="_Reader")


def _parse_export(content: bytes, reader: Reader) -> Reader:
    """Let a reader collect the images of an export, and return it."""
    parser = expat.ParserCreate()
    parser.StartElementHandler = reader.begin
    parser.EndElementHandler = reader.end
    parser.StartDoctypeDeclHandler = reader.refuse
    parser.EntityDeclHandler = reader.refuse
    try:
        parser.Parse(content, True)
    except (expat.ExpatError, LookupError) as error:  # also an unknown encoding
        raise ValueError(f"it is not XML: {error}") from error
    if not reader.is_export:
        raise ValueError("it is not an export of CVAT in the format 'CVAT for images 1.1'")
    return reader


class _Reader(ABC):
    """XML handler that collects the elements of each image of a file."""

    def __init__(self) -> None:
        self.is_export = False
        self._depth = 0
        self._image: dict[str, str] | None = None
        self._elements: list[tuple[str, dict[str, str]]] = []

    @abstractmethod
    def take_image(
        self, image: dict[str, str], elements: Sequence[tuple[str, dict[str, str]]]
    ) -> None:
        """Take the attributes of an image, and its elements with their attributes."""

    def refuse(self, *declared: object) -> None:
        raise ValueError(
            "it declares a document type or entities, which exports do not contain"
        )

    def begin(self, element: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        if self._depth == 1:
            self.is_export = element == "annotations"
        elif self._depth == 2 and element == "image":
            self._image = attributes
            self._elements = []
        elif self._image is not None and self._depth == 3:
            self._elements.append((element, attributes))

    def end(self, element: str) -> None:
        if self._depth == 2 and self._image is not None:
            self.take_image(self._image, self._elements)
            self._image = None
        self._depth -= 1


@final
class _TagReader(_Reader):
    """Reader of the labels of whole images."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[Cells] = []

    def take_image(
        self, image: dict[str, str], elements: Sequence[tuple[str, dict[str, str]]]
    ) -> None:
        labels = [own.get("label", "").strip() for name, own in elements if name == "tag"]
        drawn = [name for name, _ in elements if name in SHAPES]
        if not labels and drawn:
            raise ValueError(
                f"image {image.get('name', '')!r} has a {drawn[-1]} and no tag; labels are tags of a "
                "whole image"
            )
        name = Path(image.get("name", "")).stem
        for label in _once(labels) or [""]:
            location = f"tag {len(self.lines) + 1}"
            self.lines.append({"id": name, "label": label, "location": location})


@final
class _ShapeReader(_Reader):
    """Reader of the shapes in images."""

    def __init__(self) -> None:
        super().__init__()
        self.images: list[DrawnImage] = []

    def take_image(
        self, image: dict[str, str], elements: Sequence[tuple[str, dict[str, str]]]
    ) -> None:
        name = image.get("name", "")
        with explain_errors(f"image {name!r}: "):
            shapes = [_read_shape(*element) for element in elements if element[0] in SHAPES]
            width = round(_read_number(image, "width"))
            height = round(_read_number(image, "height"))
        self.images.append(DrawnImage(name, width, height, tuple(shapes)))


def _read_shape(kind: str, attributes: dict[str, str]) -> Shape:
    """Return a shape and its bounds. Raises ValueError for one without area or in three dimensions."""
    label = attributes.get("label", "").strip()
    if kind == "box":
        left, top, right, bottom = (
            _read_number(attributes, name) for name in ("xtl", "ytl", "xbr", "ybr")
        )
    elif kind == "mask":
        left = _read_number(attributes, "left")
        top = _read_number(attributes, "top")
        width = _read_number(attributes, "width")
        height = _read_number(attributes, "height")
        _check_runs(attributes.get("rle", ""), round(width * height))
        right = left + width
        bottom = top + height
    elif kind == "polygon":
        points = [point.split(",") for point in attributes.get("points", "").split(";")]
        if len(points) < 3 or any(len(point) != 2 for point in points):
            raise ValueError("a polygon has no three points; draw it again")
        xs = [_parse_number(x) for x, _ in points]
        ys = [_parse_number(y) for _, y in points]
        left, top, right, bottom = min(xs), min(ys), max(xs), max(ys)
    elif kind == "ellipse":
        x, y, rx, ry = (_read_number(attributes, name) for name in ("cx", "cy", "rx", "ry"))
        left, top, right, bottom = x - rx, y - ry, x + rx, y + ry
    else:
        raise ValueError(
            f"it has a {kind}, which bounds no area; draw a mask, box, polygon or ellipse"
        )
    return Shape(kind, label, left, top, right, bottom)


def _check_runs(runs: str, pixels: int) -> None:
    """Raise ValueError unless the runs of a mask cover its pixels, and some are inside it.

    Runs are lengths, in turn outside and inside the mask.
    """
    lengths = [_parse_number(length) for length in runs.split(",")]
    if sum(lengths) != pixels or min(lengths) < 0 or not sum(lengths[1::2]):
        raise ValueError(
            f"a mask has runs of {sum(lengths):g} pixels, {sum(lengths[1::2]):g} of them in the mask, "
            f"and its frame {pixels}; export the file from CVAT again"
        )


def _read_number(attributes: dict[str, str], name: str) -> float:
    if name not in attributes:
        raise ValueError(f"{name} is missing; export the file from CVAT again")
    return _parse_number(attributes[name])


def _parse_number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"{text!r:.40} is not a number; export the file from CVAT again")
    return number


def _once(labels: Sequence[str]) -> list[str]:
    """Return distinct labels, because a repeated tag adds no information."""
    return list(dict.fromkeys(labels))
