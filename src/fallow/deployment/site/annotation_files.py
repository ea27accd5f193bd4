"""Annotations as files at a site: masks in a folder, or shapes in a COCO file or one of a tool.

An open labeling task of a study with the only label "done" is answered if its annotation exists and
suits the example.  The site checks names, shapes and labels.  No annotation leaves it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from io import BytesIO
from pathlib import Path, PurePath
from typing import Annotated, NamedTuple

import numpy as np
import numpy.typing as npt
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError, with_config
from typing_extensions import TypedDict

from fallow.core.refusal import explain_errors
from fallow.core.suggestions import nearest
from fallow.core.wording import count_noun
from fallow.data.dataset import DONE
from fallow.data.loaders.folders import IMAGE_FILES
from fallow.data.loaders.images import measure_file
from fallow.data.loaders.nifti import SUFFIXES, is_nifti, read_header, read_nifti
from fallow.data.loaders.pixels import open_image
from fallow.deployment.ledger import Ledger
from fallow.deployment.schema import Schema
from fallow.deployment.site.labeling_tools import (
    DrawnImage,
    Imported,
    LabelingTool,
    Shape,
)
from fallow.deployment.site.pictures import read_inside
from fallow.deployment.site.rows import SiteRows
from fallow.storage.received import MOST_BYTES, parse_json, read_named

MASK = ".png"
MOST_OF_MASK = 2**26  # bytes
LABELS = ("1", "L", "P", "I", "I;16", "I;16B")
"""Modes of Pillow whose pixels are whole numbers."""
ROUNDING = 1.0
"""Pixels by which a box may exceed its image."""
LOOSE = ConfigDict(extra="ignore", strict=True)

HasAnnotation = Callable[[int], bool]
"""Whether an example has an annotation; raises ValueError for one that does not suit it."""


class Annotations(NamedTuple):
    """Annotations in files, and the names of those that belong to no example of the site."""

    exist: HasAnnotation
    unknown: list[str]


def import_annotations(
    ledger: Ledger,
    schema: Schema,
    rows: SiteRows,
    path: Path,
    names: Sequence[str],
    annotator: str,
    *,
    partial: bool = False,
    dry_run: bool = False,
    tool: LabelingTool | None = None,
) -> Imported:
    """Answer the open tasks whose annotation exists with "done": all or none.

    ``path`` is a folder with a mask ``NAME.png``, ``NAME.nii`` or ``NAME.nii.gz`` for an example
    ``NAME`` or ``NAME.*``, whose numbers are 0 or those of labels, from 1; or a file whose shapes have
    these labels: COCO, or with another suffix one that ``tool`` reads. A case has one NIfTI mask of
    all slices, or a folder ``NAME`` with a PNG mask for each, in the order of their names; or a shape
    in one of its images. ``names`` are the labels. ``annotator``, ``partial``, ``dry_run`` and
    ``tool``, which has its own names of examples, are those of `import_labels`. An example without
    annotation remains open; an annotation with the name of no example is refused. Raises ValueError
    for a study with other labels, and for a file that cannot be read.
    """
    if not schema.is_done_only:
        raise ValueError(
            f"the labels of this study are {', '.join(schema.classes) or 'numbers'}, not {DONE!r} "
            "alone; import a file of labels"
        )
    if not names or len(set(names)) < len(names):
        raise ValueError("name each label of the annotations once, in the order of numbers")
    stems = _list_stems(rows, tool)
    if path.is_dir():
        annotations = _read_masks(path, rows, stems, names)
    else:
        images = _read_shapes(path, tool)
        annotations = _check_images(images, rows, stems, names, tool)
    done: list[int] = []
    refused: list[str] = []
    for name in annotations.unknown:
        refused.append(
            f"{name} has the name of no example of this site{nearest(name, stems)}"
        )
    wrong: list[str] = []
    n_open = 0
    for task in ledger.tasks(state="open"):
        if any(answer.annotator == annotator for answer in task.answers):
            continue
        n_open += 1
        try:
            if annotations.exist(task.row):
                done.append(task.row)
        except ValueError as error:
            wrong.append(f"example {rows.ids[task.row]!r}: {error}")
    empty = n_open - len(done) - len(wrong)
    refused += wrong
    if dry_run:
        return Imported(recorded=len(done), same=0, empty=empty, refused=tuple(refused))
    if refused and not partial:
        done = []
    with ledger.transaction():
        for row in done:
            ledger.answer(row, schema.value(DONE), annotator)
    return Imported(recorded=len(done), same=0, empty=empty, refused=tuple(refused))


def _list_stems(rows: SiteRows, tool: LabelingTool | None) -> list[str]:
    """Return the name of the annotation of each example, without extension.

    Raises ValueError if two examples would have the same.
    """
    stems = [_find_stem(name) for name in rows.ids]
    if rows.each is not None:  # names of groups may have a point
        stems = [_find_stem(name) if _is_file(name) else name for name in rows.ids]
    if tool is not None:
        stems = [tool.name_example(row, name) for row, name in enumerate(rows.ids)]
    stem, times = Counter(stems).most_common(1)[0]
    if times > 1:
        raise ValueError(
            f"{times} examples would have the annotation {stem!r}; rename one in the site's data"
        )
    return stems


def _find_stem(name: str) -> str:
    """Return the name of an image without folder and extension.

    >>> _find_stem("ward/scan 7.jpg"), _find_stem("p12"), _find_stem("head.nii.gz")
    ('scan 7', 'p12', 'head')
    """
    file = PurePath(name).name
    for suffix in SUFFIXES:
        file = file.removesuffix(suffix)
    return PurePath(file).stem


def _is_file(name: str) -> bool:
    return name.lower().endswith(IMAGE_FILES)


def _measure_example(rows: SiteRows, row: int) -> tuple[int, int] | None:
    """Return height and width of an example's image as its file has them; None without a file."""
    files = rows.files(row)
    if not files:
        return None
    _, height, width = measure_file(files[0], 1)[0]
    return height, width


def _check_size(
    size: tuple[int, int], rows: SiteRows, row: int, *, is_sent: bool = False
) -> None:
    """Raise ValueError for an annotation of another height or width than its image.

    ``is_sent``: a tool may have received the image in the size on which the sites agreed.
    """
    expected = _measure_example(rows, row)
    if is_sent and size == tuple(rows.x[row].shape[-2:]):
        return
    if expected is not None and size != expected:
        raise ValueError(
            f"its annotation has {size[0]} x {size[1]} pixels and its image {expected[0]} x "
            f"{expected[1]}; annotate the image in its own size"
        )


# -- masks ------------------------------------------------------------------------------------


def _read_masks(
    folder: Path, rows: SiteRows, stems: Sequence[str], names: Sequence[str]
) -> Annotations:
    """Return the masks in a folder, which are checked for each example."""
    known = set(stems)
    unknown: list[str] = []
    for entry in sorted(folder.iterdir()):
        if entry.name.endswith((MASK, *SUFFIXES)):
            stem = _find_stem(entry.name)
        elif rows.each is not None and entry.is_dir():
            stem = entry.name
        else:
            continue
        if stem not in known:
            unknown.append(entry.name)

    def has_annotation(row: int) -> bool:
        files = [folder / f"{stems[row]}{suffix}" for suffix in (MASK, *SUFFIXES)]
        if rows.each is not None:
            files += [folder / stems[row]]
        files = [file for file in files if file.exists()]
        if not files:
            return False
        if len(files) > 1:
            raise ValueError(
                f"it has the masks {files[0].name} and {files[1].name}; remove one"
            )
        (file,) = files
        slices = [file]
        if file.is_dir():
            slices = sorted(file.glob(f"*{MASK}"))
            _check_depth(len(slices), rows, row)
        elif file.suffix == MASK:
            _check_depth(1, rows, row)
        for mask in slices:
            _check_labels(_read_mask(mask, folder, rows, row), names)
        return True

    return Annotations(has_annotation, unknown)


def _read_mask(
    file: Path, folder: Path, rows: SiteRows, row: int
) -> npt.NDArray[np.generic]:
    """Return the numbers of a mask in a folder, with the errors of `_read_png`."""
    if file.resolve() in [image.resolve() for image in rows.files(row)]:
        raise ValueError(f"{file.name} is the image itself; give a folder of masks")
    if file.stat().st_size > MOST_OF_MASK:
        raise ValueError(
            f"{file.name} has more than {MOST_OF_MASK >> 20} MiB, the limit for a mask"
        )
    read = _read_png if file.suffix == MASK else _read_volume
    return read(read_inside(file, folder), rows, row)


def _check_depth(depth: int, rows: SiteRows, row: int) -> None:
    """Raise ValueError for a mask of another number of slices than its example."""
    expected = rows.find_depth(row)
    if depth != expected:
        raise ValueError(
            f"its mask has {count_noun(depth, 'slice')} and the example has {expected}; give a "
            "mask of all its slices"
        )


def _read_png(content: bytes, rows: SiteRows, row: int) -> npt.NDArray[np.generic]:
    """Return the numbers of a mask. Raises ValueError for one of another shape than its image."""
    with open_image(BytesIO(content), "reading masks") as image:
        if image.format != "PNG" or image.mode not in LABELS:
            raise ValueError(
                "its mask is no PNG image of whole numbers; write the number of a label into "
                "each pixel"
            )
        _check_size((image.size[1], image.size[0]), rows, row)
        if image.mode == "1":
            image = image.convert("L").point(lambda value: value > 0)
        return np.asarray(image)


def _read_volume(content: bytes, rows: SiteRows, row: int) -> npt.NDArray[np.generic]:
    """Return the numbers of a NIfTI mask. Raises ValueError as `_read_png` does."""
    with explain_errors("its mask: "):
        volume = read_nifti(content)
    files = rows.files(row)
    if len(files) == 1 and is_nifti(files[0]):
        _check_shape(volume.shape, read_header(files[0]).shape)
        return volume.values
    width, height, *deep = (*volume.shape, 1, 1)[: max(2, len(volume.shape))]
    if files:
        _check_depth(math.prod(deep), rows, row)
    _check_size((height, width), rows, row)
    return volume.values


def _check_shape(shape: tuple[int, ...], expected: tuple[int, ...]) -> None:
    """Raise ValueError for a mask of another shape than its volume, up to axes of length 1."""
    n_axes = max(len(shape), len(expected))
    padded = [(*own, *[1] * (n_axes - len(own))) for own in (shape, expected)]
    if padded[0] != padded[1]:
        raise ValueError(
            f"its mask has the shape {list(shape)} and its volume {list(expected)}; annotate the "
            "volume in its own shape"
        )


def _check_labels(values: npt.NDArray[np.generic], names: Sequence[str]) -> None:
    """Raise ValueError for a number in a mask that is no label."""
    known = np.arange(len(names) + 1)
    wrong = np.unique(values[~np.isin(values, known)])
    if len(wrong):
        raise ValueError(
            f"its mask has the number {wrong[0]:g}, and labels are 0 (none) to {len(names)} "
            f"({names[-1]!r})"
        )


# -- shapes -----------------------------------------------------------------------------------


@with_config(LOOSE)
class CocoImage(TypedDict):
    """Image of a COCO file."""

    id: int
    file_name: str
    width: int
    height: int


@with_config(LOOSE)
class CocoCategory(TypedDict):
    """Label of a COCO file."""

    id: int
    name: str


@with_config(LOOSE)
class CocoBox(TypedDict):
    """Box of a COCO file: left, top, width and height in pixels."""

    image_id: int
    category_id: int
    bbox: Annotated[list[float], Field(min_length=4, max_length=4)]


@with_config(LOOSE)
class Coco(TypedDict):
    """Parts of a COCO file that are checked."""

    images: list[CocoImage]
    categories: list[CocoCategory]
    annotations: list[CocoBox]


def _read_shapes(path: Path, tool: LabelingTool | None) -> list[DrawnImage]:
    """Return the images in a file with their shapes.

    Raises ValueError for a file in another format.
    """
    with explain_errors(f"{path} cannot be read (", after="); check the path", of=OSError):
        content = read_named(path, MOST_BYTES)
    if path.suffix.lower() == ".json":
        with explain_errors(f"{path.name} is no COCO file: "):
            images = _read_coco(content)
    elif tool is not None:
        with explain_errors(f"{path.name}: "):
            images = tool.parse_shapes(content)
    else:
        raise ValueError(
            f"{path.name} does not end in .json, as COCO files do; name the labeling tool that wrote "
            "it with --tool"
        )
    if len({_find_stem(image.name) for image in images}) < len(images):
        raise ValueError(f"{path.name} has two images of one name; rename one")
    return images


def _check_images(
    images: Sequence[DrawnImage],
    rows: SiteRows,
    stems: Sequence[str],
    names: Sequence[str],
    tool: LabelingTool | None,
) -> Annotations:
    """Return the annotations of examples, whose shapes are checked.

    A case has an annotation if one of its images has a shape.
    """
    pictured = rows.each or rows
    of_row = rows.of_case or tuple((row,) for row in range(len(rows.ids)))
    stem_of = list(stems)
    if rows.each is not None:
        stem_of = [_find_stem(name) for name in pictured.ids]
        if tool is not None:
            for stem, own in zip(stems, of_row, strict=True):
                for number, row in enumerate(own):
                    stem_of[row] = tool.name_slice(stem, number)
    by_stem = {_find_stem(image.name): image for image in images if image.shapes}

    def has_annotation(row: int) -> bool:
        is_drawn = False
        for one in of_row[row]:
            image = by_stem.get(stem_of[one])
            if image is None:
                continue
            size = (image.height, image.width)
            _check_size(size, pictured, one, is_sent=tool is not None)
            for shape in image.shapes:
                _check_bounds(shape, image, names)
            is_drawn = True
        return is_drawn

    known = set(stem_of)
    unknown = [
        f"the image {image.name!r}" for stem, image in by_stem.items() if stem not in known
    ]
    return Annotations(has_annotation, unknown)


def _read_coco(content: bytes) -> list[DrawnImage]:
    """Return the images of a COCO file with their boxes."""
    coco = _parse_coco(content)
    label_of = {category["id"]: category["name"] for category in coco["categories"]}
    shapes: dict[int, list[Shape]] = {}
    for box in coco["annotations"]:
        left, top, width, height = box["bbox"]
        label = label_of.get(box["category_id"])
        shape = Shape("box", label, left, top, left + width, top + height)
        shapes.setdefault(box["image_id"], []).append(shape)
    return [
        DrawnImage(
            image["file_name"],
            image["width"],
            image["height"],
            tuple(shapes.get(image["id"], ())),
        )
        for image in coco["images"]
    ]


def _parse_coco(content: bytes) -> Coco:
    """Return the checked parts of a COCO file. Raises ValueError for another structure."""
    try:
        parsed: Coco = TypeAdapter(Coco).validate_python(parse_json(content))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "it"
        raise ValueError(f"{where}: {first['msg'].lower()}") from error
    return parsed


def _check_bounds(shape: Shape, image: DrawnImage, names: Sequence[str]) -> None:
    """Raise ValueError for a shape outside its image, or with another label."""
    if shape.label not in names:
        hint = nearest(str(shape.label), list(names))
        raise ValueError(
            f"a {shape.kind} has the label {shape.label!r}, which is not expected{hint}"
        )
    edges = (shape.left, shape.top, shape.right, shape.bottom)
    is_inside = (
        all(map(math.isfinite, edges))
        and min(shape.left, shape.top) >= -ROUNDING
        and shape.left < shape.right <= image.width + ROUNDING
        and shape.top < shape.bottom <= image.height + ROUNDING
    )
    if not is_inside:
        raise ValueError(
            f"a {shape.kind} from {shape.left:g}, {shape.top:g} to {shape.right:g}, "
            f"{shape.bottom:g} is not inside its image of {image.width} x {image.height} pixels"
        )
