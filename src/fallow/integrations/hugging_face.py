"""Data sets and models of Hugging Face: rows in, labels out, a model as a repository and back.

Nothing is sent anywhere but by `push_to_hub`, which is called by a person alone.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import numpy as np
import numpy.typing as npt
import torch
from safetensors.torch import load, save
from torch import Tensor, nn

from fallow.api.runs import Run, read_rows_for
from fallow.core.banks import Layout
from fallow.core.build import build
from fallow.core.names import BUILT_IN
from fallow.core.optional import import_optional
from fallow.core.streams import stream
from fallow.core.types import State
from fallow.data import Dataset
from fallow.data.own.frame import from_frame
from fallow.data.own.labels import TaskChoice
from fallow.data.own.open import from_arrays
from fallow.data.own.raster import ImageError, open_image
from fallow.experiment.encoding import shape_seen
from fallow.experiment.finished import FittedEncoder, RowsAbout, TrainedModel
from fallow.experiment.model_maker import ModelMaker
from fallow.experiment.versions import versions
from fallow.models import networks
from fallow.models.base import row_shape
from fallow.settings.recipe import Recipe, recipe_from
from fallow.settings.spec import LOADERS
from fallow.storage.errors import sentence
from fallow.storage.files import write_whole
from fallow.storage.packing import UNREADABLE
from fallow.storage.plain import markdown_text, one_line
from fallow.study.predict import outputs_of

if TYPE_CHECKING:
    import datasets

EXTRA = "fallow[huggingface]"
WEIGHTS = "model.safetensors"
CONFIG = "config.json"
CARD = "README.md"
FORMAT = "fallow-model-1"
SETTINGS = ("model", "encoder", "dtype")
"""Settings of a recipe that predicting needs."""
OWN = "fallow."
"""With what the names of tensors begin that are no weights: units of features and the like."""
LICENCE = re.compile(r"[a-z0-9][a-z0-9.+-]{0,60}")
LARGEST = 2**20  # bytes of a config.json
WIDEST = 2**24  # numbers in a row
LONGEST = 2000  # letters of settings: each is a layer where a list of widths is long


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
    """A data set from one of the package ``datasets`` (``fallow[huggingface]``), with its names of
    classes in their order.

    label: the column of labels; of a ``ClassLabel``, -1 and None are unlabelled.
    site: the column that says which site holds a row.  id: the column of row names.
    rows: the column that is the rows: images of one size, or lists of numbers such as embeddings.
    None: the one column of images, if there is one; else the other columns are a table, by the
    rules of `fallow.from_frame`, and so are drop, columns, task and drop_rows.
    test: another split, with the same columns; without it 20 % of the labelled rows are held out.
    Raises ValueError for a ``DatasetDict`` (give its splits), an absent column, images of several
    sizes, and whatever `fallow.from_frame` and `fallow.from_arrays` refuse.
    """
    import_optional("datasets", EXTRA, "a data set of Hugging Face")
    import datasets

    for given in (dataset, test):
        if given is not None and not isinstance(given, datasets.Dataset):
            raise ValueError(
                f"a {type(given).__name__} was given; give one split as a datasets.Dataset, such "
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
    about = _name_classes(dataset.select_columns(used))
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
        sites = about[site].astype(str).to_numpy()
    ids = None
    if id is not None:
        ids = about[id].astype(str).tolist()
    return from_arrays(
        _stack_rows(_decode_rows(dataset, rows), rows),
        _read_labels(about[label]),
        sites,
        x_test=x_test,
        y_test=y_test,
        groups_test=sites_test,
        ids=ids,
        name=name,
        task=task,
        classes=classes,
        drop_rows=drop_rows,
        channels="first",  # `_stack_rows` moves them
    )


def _name_classes(dataset: datasets.Dataset) -> Any:  # a DataFrame, whose types are loose
    """The table as a DataFrame, in which classes stand by their names."""
    import datasets

    frame = dataset.to_pandas()
    for column, kind in dataset.features.items():
        if isinstance(kind, datasets.ClassLabel):
            names = dict(enumerate(kind.names))
            frame[column] = frame[column].map(names).astype(object)
    return frame


def _read_labels(column: Any) -> npt.NDArray[Any]:
    """Labels as texts, "" where there is none, or as numbers."""
    if column.dtype == object or str(column.dtype) in ("str", "string"):
        texts: npt.NDArray[Any] = column.fillna("").astype(str).to_numpy(dtype=np.str_)
        return texts
    numbers: npt.NDArray[Any] = column.to_numpy()
    return numbers


def _decode_rows(dataset: datasets.Dataset, column: str) -> Sequence[Any]:
    """The column as ``datasets`` decodes it: images of Pillow, or lists.

    ``datasets`` decodes every format that Pillow knows, so each image is opened here first.
    """
    import datasets

    if isinstance(dataset.features[column], datasets.Image):
        stored = dataset.cast_column(column, datasets.Image(decode=False))[column]
        for row, image in enumerate(stored):
            _check_image(image, f"column {column!r}, row {row + 1}")
    values: Sequence[Any] = dataset[column]
    return values


def _check_image(image: Mapping[str, Any], where: str) -> None:
    """Raise ValueError for an image that is in none of the formats that are read here."""
    source: Path | BytesIO
    if image["bytes"] is None:
        source = Path(image["path"])
    else:
        source = BytesIO(image["bytes"])
    try:
        with open_image(source, "a data set of images"):
            pass
    except ImageError as error:
        raise ValueError(f"{where} could not be read as an image: {error}") from error


def _stack_rows(values: Sequence[Any], name: str) -> npt.NDArray[Any]:
    """Images as (n, c, h, w), lists of numbers as (n, d).

    values: what ``datasets`` decodes: images of Pillow, or lists.
    """
    found = [np.asarray(value) for value in values]
    shapes = sorted({each.shape for each in found})
    if len(shapes) > 1:
        raise ValueError(
            f"column {name!r} has rows of the shapes {shapes[0]} and {shapes[1]}; give rows of one "
            "shape: images are resized by dataset.map"
        )
    stacked = np.stack(found)
    if stacked.ndim == 3 and stacked.dtype == np.uint8:  # grey images
        return stacked[:, None]
    if stacked.ndim == 4:  # colours come last
        return stacked.transpose(0, 3, 1, 2)
    return stacked


def labels_to_datasets(run: Run) -> datasets.Dataset:
    """All labels that a run has bought, as a data set with the columns ``site``, ``row``,
    ``label``, ``cycle`` and ``weight``; labels that are classes have their names.

    ``row`` counts the rows of a site, as ``Federation.rows`` does.
    """
    import_optional("datasets", EXTRA, "a data set of Hugging Face")
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


def save_model(
    run: Run,
    folder: str | Path,
    *,
    site: str | None = None,
    licence: str | None = None,
    title: str = "",
) -> Path:
    """Write a trained model as a repository of the Hugging Face hub has it; the folder.

    ``model.safetensors`` has the weights under the names of the network, ``config.json`` what
    predicting needs beside them, ``README.md`` is the model card.  Nothing is pickled, nothing is
    sent.
    site: whose model, where each site has its own.  licence: of the hub, such as "apache-2.0"; None:
    none is given.  title: of the card, by default the name of the data.
    Raises ValueError for a licence that is no name of one, and a model that `fallow.Run.predict`
    cannot use.
    """
    if licence is not None and not LICENCE.fullmatch(licence):
        raise ValueError(
            f"licence {licence!r} is none of the hub; give its short name, such as apache-2.0"
        )
    _check_encoder(run.recipe)
    saved = run.saved
    settings = run.recipe.to_dict()
    config: dict[str, object] = {
        "format": FORMAT,
        "recipe": {name: settings[name] for name in SETTINGS},
        "rows": saved["about"],
    }
    if "encoder" in saved:
        config["encoder_digest"] = saved["encoder"]["digest"]
    module = _build_module(run.recipe, saved["about"])
    Layout.of(module).load(module, run.state_of(site))
    tensors = {**module.state_dict(), **_list_extras(saved)}
    contiguous = {name: value.detach().contiguous() for name, value in tensors.items()}
    place = Path(folder)
    write_whole(place / WEIGHTS, save(contiguous, {"format": "pt"}))
    write_whole(place / CONFIG, (json.dumps(config, indent=1) + "\n").encode())
    write_whole(place / CARD, _write_card(run, title, licence).encode())
    return place


def _check_encoder(recipe: Recipe) -> None:
    """Raise ValueError for an encoder that is a network, or a file, of its own."""
    encoder = recipe.encoder
    if encoder is None:
        return
    if encoder.name.lower() in LOADERS or ":" in encoder.name:
        raise ValueError(
            f"the encoder {encoder} loads what a repository does not hold; only models on the "
            "encoders that come with Fallow can be shared so"
        )


def _build_module(recipe: Recipe, about: RowsAbout) -> nn.Module:
    """The network, with weights that are replaced.  Classes that did not come with Fallow are
    refused with a ValueError: whoever loads the repository does not have them."""
    shape = shape_seen(recipe, tuple(about["shape"]), BUILT_IN)
    outputs = len(about["classes"]) or 1
    maker = ModelMaker(recipe, shape, outputs, BUILT_IN)
    return maker.build(stream(0, "template")).eval()


def _find_shapes(recipe: Recipe, about: RowsAbout) -> dict[str, Tensor]:
    """The network's weights as shapes alone: however wide a description says it is, they fill no
    memory."""
    shape = row_shape(shape_seen(recipe, tuple(about["shape"]), BUILT_IN))
    outputs = len(about["classes"]) or 1
    spec = recipe.model
    with torch.device("meta"):
        module: nn.Module = build(
            networks, spec.name, shape=shape, outputs=outputs, **spec.fields
        )
    return module.state_dict()


def _list_extras(saved: TrainedModel) -> dict[str, Tensor]:
    """What a model has beside its weights, by names that no weight has."""
    groups: dict[str, Mapping[str, Tensor] | None] = {
        "scale": saved["scale"],
        "targets": saved.get("targets"),
    }
    if "encoder" in saved:
        groups["encoder"] = saved["encoder"]["state"]
    named = {}
    for group, values in groups.items():
        for name, value in (values or {}).items():
            named[f"{OWN}{group}.{name}"] = torch.as_tensor(value)
    return named


def _write_card(run: Run, title: str, licence: str | None) -> str:
    """The model card: a header that the hub reads, and words."""
    about = run.saved["about"]
    # names of data and classes are others' words
    lines = [one_line(line) for line in _describe_model(run, title)]
    body = markdown_text("\n".join(lines))
    kind = "image" if len(about["shape"]) == 3 else "tabular"
    task = "classification" if about["classes"] else "regression"
    header = ["---", "library_name: fallow"]
    if licence is not None:
        header.append(f"license: {licence}")
    if (kind, task) != ("image", "regression"):  # which the hub does not know
        header.append(f"pipeline_tag: {kind}-{task}")
    header += ["tags:", "- federated-learning", "- active-learning", "---", ""]
    return "\n".join(header) + f"\n{body}\n"


def _describe_model(run: Run, title: str) -> Iterator[str]:
    recipe = run.recipe
    about = run.saved["about"]
    last = run.records.iloc[-1]
    yield f"# {title or Path(recipe.data).name}"
    yield ""
    yield f"A model trained by Fallow over {len(run.sites)} sites, which kept their rows."
    yield ""
    yield "Intended use: to be filled in by the owner."
    yield ""
    yield "## Trained on"
    yield ""
    what = "a number"
    if about["classes"]:
        what = f"one of the classes {', '.join(about['classes'])}"
    yield f"- To predict: {what}"
    yield f"- A row: {' x '.join(str(n) for n in about['shape'])} numbers"
    if about["columns"]:
        yield f"- Columns: {', '.join(about['columns'])}"
    yield f"- Labels bought: {last['labelled']} of {last['pool']} rows"
    yield ""
    yield "## How"
    yield ""
    yield f"- Model: {recipe.model}"
    if recipe.encoder is not None:
        yield f"- Encoder: {recipe.encoder}"
    yield f"- Training: {recipe.training}"
    yield f"- Choice of rows: {recipe.query}"
    yield f"- {recipe.cycles} cycles of {recipe.rounds} rounds, seed {run.seed}"
    yield ""
    yield "## Scores"
    yield ""
    for name in ("accuracy", "balanced_accuracy", "mse"):
        value = last.get(name)
        if value is not None and math.isfinite(value):
            yield f"- {name.replace('_', ' ')}: {value:.4g}, on the test rows of the study"
    yield ""
    yield "## Privacy"
    yield ""
    yield "A model can tell about the rows it was trained on. What left the sites:"
    yield ""
    for row in last["revealed"]:
        cost = f"{row['exchanges']} exchanges, {row['bytes']} bytes"
        if row.get("epsilon"):
            cost += f", ε = {row['epsilon']:g}"
        yield f"- {row['verb']} ({row['kind']}): {row['what']}; {cost}"
    yield ""
    yield "## Use"
    yield ""
    yield "```python"
    yield "from fallow.integrations import load_model"
    yield ""
    yield 'model = load_model("FOLDER")     # of this repository, downloaded'
    yield "model.predict(rows)"
    yield "```"
    yield ""
    yield f"Versions: {', '.join(f'{name} {number}' for name, number in versions().items())}"


# -- and back -------------------------------------------------------------------------------


@final
@dataclass(frozen=True, eq=False)
class SharedModel:
    """A model of a repository, as `load_model` reads it.

    recipe: its network, encoder and kind of numbers.  saved: weights, and what predicting needs.
    """

    recipe: Recipe
    saved: TrainedModel

    def __repr__(self) -> str:
        return (
            f"SharedModel({self.recipe.model}, rows {list(self.saved['about']['shape'])})"
        )

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes; empty where there are numbers to predict."""
        return tuple(self.saved["about"]["classes"])

    @property
    def module(self) -> nn.Module:
        """The network in evaluation mode.  Rows are encoded, and scaled, outside of it."""
        module = _build_module(self.recipe, self.saved["about"])
        return Layout.of(module).load(module, self.state)

    @property
    def state(self) -> State:
        """The weights, by their names."""
        state = self.saved["state"]
        if state is None:
            raise RuntimeError("a repository has one model")
        return state

    def predict(self, rows: Any) -> npt.NDArray[Any]:
        """The class of each row by its name, or the number, as `fallow.Run.predict`."""
        outputs = self._outputs(rows)
        if not self.classes:
            numbers: npt.NDArray[np.float64] = outputs.squeeze(1).double().numpy()
            return numbers
        names = np.array(self.classes, dtype=np.str_)
        named: npt.NDArray[np.str_] = names[outputs.argmax(1).numpy()]
        return named

    def predict_proba(self, rows: Any) -> npt.NDArray[np.float64]:
        """Probabilities of the classes, (n, classes), in the order of `classes`."""
        if not self.classes:
            raise ValueError("this model predicts numbers; use predict")
        shares: npt.NDArray[np.float64] = self._outputs(rows).double().softmax(1).numpy()
        return shares

    def _outputs(self, rows: Any) -> Tensor:
        x = read_rows_for(self.saved["about"], rows)
        return outputs_of(self.recipe, self.saved, self.state, x, BUILT_IN)


def load_model(folder: str | Path) -> SharedModel:
    """The model of a folder that `save_model` wrote, or that was downloaded from the hub.

    Whoever wrote it may be anybody: nothing in it is run, classes are Fallow's own, and files that
    do not fit one another are a ValueError in one sentence.
    """
    place = Path(folder)
    config = _read_config(place / CONFIG)
    try:
        about = _read_about(config["rows"])
        settings = {name: config["recipe"][name] for name in SETTINGS}
        if len(json.dumps(settings)) > LONGEST:
            raise ValueError(f"its settings have more than {LONGEST} letters")
        recipe = recipe_from(settings, Recipe("shared"))
        _check_encoder(recipe)
        expected = _find_shapes(recipe, about)
    except (LookupError, OverflowError, RuntimeError, TypeError, ValueError) as error:
        raise ValueError(
            f"{place / CONFIG} describes no model that can be built: {sentence(error)}"
        ) from error
    tensors = _read_tensors(place / WEIGHTS)
    extras: dict[str, State] = {"scale": {}, "targets": {}, "encoder": {}}
    for name in [name for name in tensors if name.startswith(OWN)]:
        group, _, part = name.removeprefix(OWN).partition(".")
        extras.setdefault(group, {})[part] = tensors.pop(name)
    _check_tensors(place / WEIGHTS, tensors, expected)
    module = _build_module(recipe, about)  # no larger than the file of its weights
    module.load_state_dict(tensors)
    saved: TrainedModel = {
        "state": Layout.of(module).flatten(module),
        "about": about,
        "scale": extras["scale"] or None,
        "targets": extras["targets"] or None,
    }
    if recipe.encoder is not None:
        saved["encoder"] = FittedEncoder(
            state=extras["encoder"], digest=str(config.get("encoder_digest"))
        )
    shared = SharedModel(recipe, saved)
    _try_a_row(place, shared)
    return shared


def _try_a_row(place: Path, shared: SharedModel) -> None:
    """Raise ValueError unless one row has one prediction: what a model has beside its weights is
    others' word too."""
    about = shared.saved["about"]
    outputs = len(about["classes"]) or 1
    row = torch.zeros(1, *about["shape"])
    try:
        found = outputs_of(shared.recipe, shared.saved, shared.state, row, BUILT_IN)
    except (LookupError, RuntimeError, TypeError, ValueError) as error:
        raise ValueError(
            f"{place / WEIGHTS} has what its network cannot use: {sentence(error)}"
        ) from error
    if tuple(found.shape) != (1, outputs) or not bool(found.isfinite().all()):
        raise ValueError(
            f"{place / WEIGHTS} has numbers by which one row has no prediction of its own"
        )


def _read_config(path: Path) -> Mapping[str, Any]:  # any value of JSON
    try:
        if path.stat().st_size > LARGEST:
            raise ValueError(f"{path} is larger than a description of a model")
        config = json.loads(path.read_bytes())
    except OSError as error:
        raise ValueError(
            f"{path} cannot be read ({error.strerror}); give a folder that save_model wrote"
        ) from error
    except (UnicodeDecodeError, RecursionError, json.JSONDecodeError) as error:
        raise ValueError(f"{path} is not JSON: {error}") from error
    if not isinstance(config, dict) or config.get("format") != FORMAT:
        raise ValueError(
            f"{path} does not describe a model of this version of Fallow ({FORMAT!r})"
        )
    return config


def _read_about(given: Mapping[str, Any]) -> RowsAbout:
    """What predicting needs to know of rows, looked at value by value."""
    shape = [int(n) for n in given["shape"]]
    if not shape or min(shape) < 1 or math.prod(shape) > WIDEST:
        raise ValueError(f"a row has the shape {shape}")
    about: RowsAbout = {
        "classes": [str(name) for name in given["classes"]],
        "columns": [str(name) for name in given["columns"]],
        "shape": shape,
    }
    if given.get("marks") is not None:
        about["marks"] = [(str(mark), str(column)) for mark, column in given["marks"]]
    if given.get("ids") is not None:
        about["ids"] = str(given["ids"])
    return about


def _read_tensors(path: Path) -> dict[str, Tensor]:
    try:
        tensors: dict[str, Tensor] = load(path.read_bytes())
    except OSError as error:
        raise ValueError(f"{path} cannot be read ({error.strerror})") from error
    except UNREADABLE as error:
        raise ValueError(f"{path} is not in the format of safetensors: {error}") from error
    return tensors


def _check_tensors(
    path: Path, tensors: Mapping[str, Tensor], expected: Mapping[str, Tensor]
) -> None:
    """Raise ValueError unless there is one tensor of the right shape for each of the network's."""
    odd = sorted(tensors.keys() ^ expected.keys())
    if odd:
        raise ValueError(f"{path} and {CONFIG} are of different networks: {odd[0]!r}")
    for name, value in expected.items():
        if tensors[name].shape != value.shape:
            raise ValueError(
                f"{path}: {name!r} has the shape {list(tensors[name].shape)}, and the network of "
                f"{CONFIG} takes {list(value.shape)}"
            )
        is_like = tensors[name].is_floating_point() == value.is_floating_point()
        if not is_like or not bool(tensors[name].isfinite().all()):
            raise ValueError(
                f"{path}: {name!r} does not hold finite numbers as the network takes them"
            )


def push_to_hub(folder: str | Path, repository: str, *, private: bool = True) -> str:
    """Send the three files of a folder that `save_model` wrote to the hub, as ``OWNER/NAME``; the
    address of what was sent.

    Only this function sends a model anywhere, by the package ``huggingface_hub`` and the login that
    it knows.  private: of a repository that is made; one that is there stays as it is.
    Raises ValueError for a folder that `load_model` does not read, and where the package is missing.
    """
    import_optional("huggingface_hub", EXTRA, "sending a model to the hub")
    from huggingface_hub import HfApi

    load_model(folder)
    hub = HfApi()
    hub.create_repo(repository, private=private, exist_ok=True)
    sent = hub.upload_folder(
        repo_id=repository, folder_path=folder, allow_patterns=[WEIGHTS, CONFIG, CARD]
    )
    return str(sent)
