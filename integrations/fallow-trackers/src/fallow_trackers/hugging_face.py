"""Datasets and models of Hugging Face.

Only `push_to_hub` uploads anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fallow.api.runs import Run
from fallow.api.saved_model import CARD, CONFIG, WEIGHTS, load_model
from fallow.core.optional import import_optional
from fallow.data import Dataset
from fallow.data.loaders.frame import from_frame
from fallow.data.loaders.labels import TaskChoice
from fallow.data.loaders.open import from_arrays
from fallow.data.loaders.pixels import COLOR, DEEP, GRAY, ImageError, open_image

if TYPE_CHECKING:
    import datasets
    from PIL.Image import Image

EXTRA = "fallow-trackers[huggingface]"


# -- data -----------------------------------------------------------------------------------


def from_datasets(
    dataset: datasets.Dataset,
    label: str,
    site: str | None = None,
    id: str | None = None,
    *,
    rows: str | None = None,
    test: datasets.Dataset | None = None,
    drop: Sequence[str] = (),
    columns: Sequence[str] = (),
    task: TaskChoice = "auto",
    drop_rows: bool = False,
    name: str = "datasets",
) -> Dataset:
    """Create a dataset from a Hugging Face dataset (``fallow-trackers[huggingface]``).

    Parameters
    ----------
    dataset : datasets.Dataset
        One split of a dataset.
    label : str
        Label column.  In a ``ClassLabel`` column, -1 and None are unlabeled.
    site : str, optional
        Site column.
    id : str, optional
        ID column.
    rows : str, optional
        Column of images of equal size, or of lists of numbers such as embeddings.  Default: the only
        image column, otherwise all other columns as a table (see `fallow.from_frame`).
    test : datasets.Dataset, optional
        Test split with the same columns.  Default: 20 % of the labeled examples.
    drop, columns, task, drop_rows
        Options of a table, as in `fallow.from_frame`.
    name : str, default="datasets"
        Name of the dataset.

    Returns
    -------
    Dataset

    Raises
    ------
    ValueError
        If ``dataset`` is a ``DatasetDict`` (pass one of its splits), a column is missing, images
        differ in size, or the data is invalid for `fallow.from_frame` or `fallow.from_arrays`.
    """
    import_optional("datasets", EXTRA, "a Hugging Face dataset")
    import datasets

    for value in (dataset, test):
        if value is not None and not isinstance(value, datasets.Dataset):
            raise ValueError(
                f"dataset is a {type(value).__name__}; pass one split as a datasets.Dataset, such "
                "as splits['train'], and another as test="
            )
    for column in filter(None, (label, site, id, rows)):
        if column not in dataset.column_names:
            raise ValueError(
                f"{name} has no column {column!r}; it has {', '.join(dataset.column_names)}"
            )
    feature = dataset.features[label]
    classes: Sequence[str] = ()
    if isinstance(feature, datasets.ClassLabel):
        classes = feature.names
    if rows is None:
        images = [
            column
            for column, kind in dataset.features.items()
            if isinstance(kind, datasets.Image)
        ]
        if len(images) == 1:
            rows = images[0]
    if rows is None:
        frame_of_test = None
        if test is not None:
            frame_of_test = _name_classes(test)
        return from_frame(
            _name_classes(dataset),
            label=label,
            site=site,
            id=id,
            test=frame_of_test,
            drop=drop,
            columns=columns,
            task=task,
            classes=classes,
            drop_rows=drop_rows,
            name=name,
        )
    used = [column for column in (label, site, id) if column is not None]
    features = _name_classes(dataset.select_columns(used))
    x_test = None
    y_test = None
    sites_test = None
    if test is not None:
        about_test = _name_classes(test.select_columns(used))
        x_test = _stack_rows(_decode_rows(test, rows), rows)
        y_test = _read_labels(about_test[label])
        if site is not None:
            sites_test = about_test[site].astype(str).to_numpy()
    sites = None
    if site is not None:
        sites = features[site].astype(str).to_numpy()
    ids = None
    if id is not None:
        ids = features[id].astype(str).tolist()
    return from_arrays(
        _stack_rows(_decode_rows(dataset, rows), rows),
        _read_labels(features[label]),
        sites,
        x_test=x_test,
        y_test=y_test,
        sites_test=sites_test,
        ids=ids,
        name=name,
        task=task,
        classes=classes,
        drop_rows=drop_rows,
        channels="first",  # `_stack_rows` moves them
    )


def _name_classes(dataset: datasets.Dataset) -> Any:  # a DataFrame, whose types are loose
    """Return the table as a DataFrame with class names."""
    import datasets

    frame = dataset.to_pandas()
    for column, kind in dataset.features.items():
        if isinstance(kind, datasets.ClassLabel):
            names = dict(enumerate(kind.names))
            frame[column] = frame[column].map(names).astype(object)
    return frame


def _read_labels(column: Any) -> npt.NDArray[Any]:
    """Return labels as strings ("" if missing) or as numbers."""
    if column.dtype == object or str(column.dtype) in ("str", "string"):
        texts: npt.NDArray[Any] = column.fillna("").astype(str).to_numpy(dtype=np.str_)
        return texts
    numbers: npt.NDArray[Any] = column.to_numpy()
    return numbers


def _decode_rows(dataset: datasets.Dataset, column: str) -> Sequence[Any]:
    """Decode a column to Pillow images or lists.

    ``datasets`` decodes every format of Pillow, so the format of each image is checked first.
    """
    import datasets

    if not isinstance(dataset.features[column], datasets.Image):
        values: Sequence[Any] = dataset[column]
        return values
    stored = dataset.cast_column(column, datasets.Image(decode=False))[column]
    for row, image in enumerate(stored):
        _check_image(image, f"column {column!r}, row {row + 1}")
    return [_convert_image(image) for image in dataset[column]]


def _convert_image(image: Image) -> Image:
    """Return an image as in a folder of images: gray, or with three colors."""
    if image.mode in GRAY:
        return image.convert("L")
    if image.mode in COLOR:
        return image.convert("RGB")
    return image  # gray with 16 bits


def _check_image(image: Mapping[str, Any], where: str) -> None:
    """Raise ValueError for an unsupported image format."""
    source: Path | BytesIO
    if image["bytes"] is None:
        source = Path(image["path"])
    else:
        source = BytesIO(image["bytes"])
    try:
        with open_image(source, "a data set of images") as opened:
            if opened.mode not in (*GRAY, *COLOR, *DEEP):
                raise ValueError(f"its pixel format {opened.mode} is not supported")
    except ImageError as error:
        raise ValueError(f"{where} could not be read as an image: {error}") from error


def _stack_rows(values: Sequence[Any], name: str) -> npt.NDArray[Any]:
    """Stack images to shape (n, c, h, w), or lists of numbers to (n, d)."""
    result = [np.asarray(value) for value in values]
    shapes = sorted({item.shape for item in result})
    if len(shapes) > 1:
        raise ValueError(
            f"column {name!r} has examples of the shapes {shapes[0]} and {shapes[1]}; all "
            "must have one shape: resize images with dataset.map"
        )
    stacked = np.stack(result)
    if stacked.ndim == 3 and stacked.dtype == np.uint8:  # gray images
        return stacked[:, None]
    if stacked.ndim == 4:  # colors come last
        return stacked.transpose(0, 3, 1, 2)
    return stacked


def labels_to_datasets(run: Run) -> datasets.Dataset:
    """Return the acquired labels of a run as a Hugging Face dataset.

    Parameters
    ----------
    run : Run
        Finished run.

    Returns
    -------
    datasets.Dataset
        Columns ``site``, ``row`` (index at the site, as in `Federation.rows`), ``label`` (class
        name or target), ``cycle`` and ``weight``.
    """
    import_optional("datasets", EXTRA, "a Hugging Face dataset")
    import datasets

    label = datasets.Value("float64")
    if run.classes:
        label = datasets.ClassLabel(names=list(run.classes))
    kinds = datasets.Features(
        {
            "site": datasets.Value("string"),
            "row": datasets.Value("int64"),
            "label": label,
            "cycle": datasets.Value("int64"),
            "weight": datasets.Value("float64"),
        }
    )
    values = run.labels["value"].tolist()
    if run.classes:
        values = [int(value) for value in values]
    columns = {"label": values}
    for name in ("site", "row", "cycle", "weight"):
        columns[name] = run.labels[name].tolist()
    return datasets.Dataset.from_dict({name: columns[name] for name in kinds}, kinds)


# -- a model, out ---------------------------------------------------------------------------


def push_to_hub(folder: str | Path, repository: str, *, private: bool = True) -> str:
    """Upload a folder written by `fallow.Run.save` to the Hugging Face Hub.

    The login is that of the package ``huggingface_hub``.

    Parameters
    ----------
    folder : str or Path
        Folder with the three files of the model.
    repository : str
        Repository, as ``OWNER/NAME``.
    private : bool, default=True
        Whether a new repository is private.  An existing one is not changed.

    Returns
    -------
    str
        URL of the upload.

    Raises
    ------
    ValueError
        If `load_model` cannot read the folder, or the package is not installed.
    """
    import_optional("huggingface_hub", EXTRA, "uploading a model to the Hub")
    from huggingface_hub import HfApi

    load_model(folder)
    hub = HfApi()
    hub.create_repo(repository, private=private, exist_ok=True)
    sent = hub.upload_folder(
        repo_id=repository, folder_path=folder, allow_patterns=[WEIGHTS, CONFIG, CARD]
    )
    return str(sent)
