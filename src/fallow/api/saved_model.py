"""Saving and loading of trained models.

The folder has the layout of a Hugging Face repository: weights, preprocessing and model card.
No file contains pickled objects, and no code is run on loading.
"""

from __future__ import annotations

import json
import math
import re
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, final

import numpy as np
import numpy.typing as npt
import torch
from safetensors.torch import load, save
from torch import Tensor, nn

from fallow import encoders
from fallow.core import names
from fallow.core.build import build, is_built_in
from fallow.core.model_vectors import Layout
from fallow.core.names import BUILT_IN, NamePolicy
from fallow.core.refusal import explain_errors
from fallow.core.streams import stream
from fallow.core.suggestions import explain_function
from fallow.core.types import SiteId, State
from fallow.core.wording import count_noun
from fallow.data import read_rows
from fallow.data.example_spec import (
    ExampleSpec,
    count_outputs,
    name_outputs,
    read_example_spec,
    scale_of,
    task_of,
)
from fallow.data.loaders.features import is_frame, read_features
from fallow.data.loaders.numbers import subtract_offsets
from fallow.data.loaders.scaling import scale_as_trained
from fallow.experiment.encoding import shape_seen
from fallow.experiment.finished import (
    FittedEncoder,
    TrainedModel,
)
from fallow.experiment.measuring import describe_results, find_measurements
from fallow.experiment.methods import ModelMaker, versions
from fallow.experiment.predict import compare_with_training, outputs_of
from fallow.experiment.trained import Trained
from fallow.measurements.prediction_sets import (
    SetRule,
    check_sets,
    predict_intervals,
    predict_sets,
)
from fallow.models import networks
from fallow.models.base import row_shape
from fallow.models.custom import unwrap_model
from fallow.settings.config import ExperimentConfig, config_from
from fallow.storage.errors import sentence
from fallow.storage.files import write_whole
from fallow.storage.packing import UNREADABLE
from fallow.storage.plain import markdown_text, one_line
from fallow.storage.received import MOST_BYTES, parse_json, read_named
from fallow.study.export_model import export_model
from fallow.study.trained import read_trained

if TYPE_CHECKING:
    import pandas as pd

WEIGHTS = "model.safetensors"
CONFIG = "config.json"
CARD = "README.md"
FORMAT = "fallow-model-1"
SETTINGS = ("model", "encoder", "dtype")
"""Settings of an experiment configuration that prediction needs."""
OWN = "fallow."
"""Prefix of the names of tensors other than weights, such as scaling."""
LICENSE = re.compile(r"[a-z0-9][a-z0-9.+-]{0,60}")
LARGEST = 2**20  # bytes of a config.json
LONGEST = 2000  # characters of settings; a list of widths has one layer per entry


def read_rows_for(example_spec: ExampleSpec, rows: Any) -> Tensor:
    """Convert examples to the input of a model, of shape (n, *shape), float32.

    Parameters
    ----------
    example_spec : ExampleSpec
        Description of the examples; it may contain the indicator columns of empty cells (see
        `read_features`).
    rows : DataFrame, array-like or path
        Examples, or a file or folder with them.

    Raises
    ------
    ValueError
        If the shape is wrong or a feature is missing.
    """
    columns = example_spec["columns"]
    shape = tuple(example_spec["shape"])
    if isinstance(rows, str | Path):
        rows = _read_file(example_spec, Path(rows))
    marks = example_spec.get("marks")
    offsets = example_spec.get("offsets", ())
    if columns and is_frame(rows):
        rows = read_features(rows, example_spec)
    elif hasattr(rows, "to_numpy"):
        rows = rows.to_numpy()
    elif isinstance(rows, np.ma.MaskedArray):
        rows = np.ma.filled(rows.astype(np.float64), np.nan)
    if isinstance(rows, Tensor):
        rows = rows.detach().cpu().numpy()
    shifted = subtract_offsets(np.asarray(rows), offsets)
    scale = scale_of(example_spec)
    pixel_range = example_spec.get("range")
    numbers, finding = scale_as_trained(shifted, shape, "the rows", scale, pixel_range)
    if finding is not None and finding.severity == "warning":
        warnings.warn(finding.sentence, stacklevel=4)
    x = torch.from_numpy(numbers)
    if tuple(x.shape) == shape:
        raise ValueError(
            f"the input has shape {shape}, that of a single example; give examples of "
            "shape (n, ...)"
        )
    if tuple(x.shape[1:]) != shape:
        raise ValueError(
            f"examples have shape {tuple(x.shape[1:])}, and the model needs {shape}"
        )
    is_lacking = x.isinf()
    if marks is None:
        is_lacking = ~x.isfinite()
    lacking = 0
    if len(x):
        lacking = int(is_lacking.flatten(1).any(1).sum())
    if lacking:
        raise ValueError(
            f"{lacking} of {len(x)} examples have a missing or infinite feature; omit them"
        )
    return x


def _read_file(example_spec: ExampleSpec, path: Path) -> npt.NDArray[np.float32]:
    """Read the examples of a file or folder, which are scaled as those of training."""
    rows = read_rows(path, example_spec)
    for finding in rows.findings:
        warnings.warn(finding.sentence, stacklevel=5)
    features: npt.NDArray[np.float32] = rows.x.numpy()
    return features


# -- saving ------------------------------------------------------------------------------------


class TrainedRun(Protocol):
    """Attributes of a run that are needed to save its model."""

    @property
    def config(self) -> ExperimentConfig: ...
    @property
    def seed(self) -> int: ...
    @property
    def sites(self) -> tuple[SiteId, ...]: ...
    @property
    def saved(self) -> TrainedModel: ...
    @property
    def records(self) -> pd.DataFrame: ...
    def state_of(self, site: str | None = None) -> State: ...


def save_run(
    run: TrainedRun, folder: Path, site: str | None, license: str | None, title: str
) -> None:
    """Implement `fallow.Run.save`."""
    if license is not None and not LICENSE.fullmatch(license):
        raise ValueError(
            f"license {license!r} is not a license identifier of the hub; give its "
            "short name, such as apache-2.0"
        )
    _check_encoder(run.config)
    card = _write_card(run, title, license)
    write_model(folder, run.config, run.saved, run.state_of(site), card)


def write_model(
    folder: Path, config: ExperimentConfig, saved: TrainedModel, state: State, card: str
) -> None:
    """Write weights, preprocessing and model card of a trained model.

    Raises ValueError if the model uses classes that are not built in.
    """
    _check_encoder(config)
    settings = replace(config, model=config.completed_model).to_dict()
    model_config: dict[str, object] = {
        "format": FORMAT,
        "config": {name: settings[name] for name in SETTINGS},
        "rows": saved["example_spec"],
    }
    if "encoder" in saved:
        model_config["encoder_digest"] = saved["encoder"]["digest"]
    if "prediction_sets" in saved:
        model_config["prediction_sets"] = saved["prediction_sets"]
    module = _build_module(config, saved["example_spec"])
    Layout.of(module).load(module, state)
    tensors = {**module.state_dict(), **_list_extras(saved)}
    contiguous = {name: value.detach().contiguous() for name, value in tensors.items()}
    write_whole(folder / WEIGHTS, save(contiguous, {"format": "pt"}))
    write_whole(folder / CONFIG, (json.dumps(model_config, indent=1) + "\n").encode())
    write_whole(folder / CARD, card.encode())


def _check_encoder(config: ExperimentConfig) -> None:
    """Raise ValueError if the encoder is a custom network or a file."""
    encoder = config.encoder
    if encoder is None:
        return
    if not is_built_in(encoders, encoder.name):
        raise ValueError(
            f"the encoder {encoder} needs files that a repository does not contain; only "
            "models with built-in encoders can be shared"
        )


def _build_module(
    config: ExperimentConfig, example_spec: ExampleSpec, policy: NamePolicy = BUILT_IN
) -> nn.Module:
    """Build the network; its weights are then replaced.

    Raises ValueError for classes that are not built in, since other users do not have them.
    """
    shape = shape_seen(config, tuple(example_spec["shape"]), policy)
    outputs = count_outputs(example_spec)
    maker = ModelMaker(config, shape, outputs, policy)
    return maker.build(stream(0, "template")).eval()


def _find_shapes(config: ExperimentConfig, example_spec: ExampleSpec) -> dict[str, Tensor]:
    """Return the weights as tensors without memory, so that a huge network costs none."""
    shape = row_shape(shape_seen(config, tuple(example_spec["shape"]), BUILT_IN))
    outputs = count_outputs(example_spec)
    spec = config.model
    with torch.device("meta"):
        module: nn.Module = build(
            networks, spec.name, shape=shape, outputs=outputs, **spec.fields
        )
    return module.state_dict()


def _list_extras(saved: TrainedModel) -> dict[str, Tensor]:
    """Return the tensors of a model other than its weights, under unique names."""
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


def _write_card(run: TrainedRun, title: str, license: str | None) -> str:
    """Return the model card: metadata for the hub, and text."""
    details = run.saved["example_spec"]
    # names of data and classes are untrusted
    lines = [one_line(line) for line in _describe_model(run, title)]
    body = markdown_text("\n".join(lines))
    kind = "tabular"
    if len(details["shape"]) == 3:
        kind = "image"
    task = task_of(details)
    header = ["---", "library_name: fallow"]
    if license is not None:
        header.append(f"license: {license}")
    if (kind, task) != ("image", "regression"):  # the hub lacks this task
        of_hub = "regression" if task == "regression" else "classification"
        header.append(f"pipeline_tag: {kind}-{of_hub}")
    header += ["tags:", "- federated-learning", "- active-learning", "---", ""]
    return "\n".join(header) + f"\n{body}\n"


def _describe_model(run: TrainedRun, title: str) -> Iterator[str]:
    config = run.config
    details = run.saved["example_spec"]
    last = run.records.iloc[-1]
    yield f"# {title or Path(config.data).name}"
    yield ""
    yield (
        f"A model trained by Fallow at {len(run.sites)} sites. The data stayed at the "
        "sites."
    )
    yield ""
    yield "Intended use: to be filled in by the owner."
    yield ""
    yield "## Trained on"
    yield ""
    what = "a number"
    if details["classes"]:
        what = f"one of the classes {', '.join(details['classes'])}"
    if details.get("labels"):
        what = f"each of the labels {', '.join(details['labels'])}"
    yield f"- To predict: {what}"
    yield f"- An example: {' x '.join(str(n) for n in details['shape'])} numbers"
    if details["columns"]:
        yield f"- Columns: {', '.join(details['columns'])}"
    yield f"- Labels: {last['labeled']} of {last['pool']} training examples"
    yield ""
    yield "## How"
    yield ""
    yield f"- Model: {config.model}"
    if config.encoder is not None:
        yield f"- Encoder: {config.encoder}"
    yield f"- Training: {config.training}"
    yield f"- Query strategy: {config.strategy}"
    cycles = count_noun(config.cycles, "cycle")
    yield f"- {cycles} of {count_noun(config.rounds, 'round')}, seed {run.seed}"
    yield ""
    yield "## Scores"
    yield ""
    for name in ("accuracy", "balanced_accuracy", "mse"):
        value = last.get(name)
        if value is not None and math.isfinite(value):
            yield (
                f"- {name.replace('_', ' ')}: {value:.4g}, on the test examples of the "
                "study"
            )
    classes = name_outputs(details)
    measurements = find_measurements(config, is_regression=not classes)
    for line in describe_results(measurements, last, classes):
        yield f"- {line}"
    yield ""
    yield "## Privacy"
    yield ""
    yield (
        "A model can disclose information about its training examples. The sites disclosed:"
    )
    yield ""
    for row in last["revealed"]:
        cost = f"{row['exchanges']} exchanges, {row['bytes']} bytes"
        if row.get("epsilon"):
            cost += f", ε = {row['epsilon']:g}"
        yield f"- {row['function']} ({row['kind']}): {row['description']}; {cost}"
    yield ""
    yield "## Use"
    yield ""
    yield "```python"
    yield "import fallow as fl"
    yield ""
    yield 'model = fl.load_model("FOLDER")     # of this repository, downloaded'
    yield "model.predict(rows)"
    yield "```"
    yield ""
    yield f"Versions: {', '.join(f'{name} {number}' for name, number in versions().items())}"


# -- loading -------------------------------------------------------------------------------------


@final
@dataclass(frozen=True, eq=False)
class LoadedModel:
    """Trained model that `load_model` read from a folder.

    Attributes
    ----------
    config : ExperimentConfig
        Experiment configuration with network, encoder and data type.
    saved : TrainedModel
        Weights and preprocessing.
    policy : NamePolicy
        Names that the configuration may refer to.

    Examples
    --------
    >>> import tempfile
    >>> import fallow as fl
    >>> digits = fl.load("digits")
    >>> run = fl.run(digits, "random", sites=3, cycles=0, training="fedavg", rounds=1)
    >>> model = fl.load_model(run.save(tempfile.mkdtemp()))
    >>> model.predict_proba(digits.x_test).shape
    (359, 10)
    """

    config: ExperimentConfig
    saved: TrainedModel
    policy: NamePolicy = BUILT_IN

    def __repr__(self) -> str:
        return f"LoadedModel({self.config.model}, rows {list(self.saved['example_spec']['shape'])})"

    @property
    def classes(self) -> tuple[str, ...]:
        """Class names; empty for regression."""
        return tuple(self.saved["example_spec"]["classes"])

    @property
    def label_names(self) -> tuple[str, ...]:
        """Names of several labels per example; empty for other tasks."""
        return tuple(self.saved["example_spec"].get("labels", ()))

    @property
    def module(self) -> nn.Module:
        """Network in evaluation mode; it expects encoded and standardized features."""
        module = _build_module(self.config, self.saved["example_spec"], self.policy)
        return unwrap_model(Layout.of(module).load(module, self.state))

    @property
    def state(self) -> State:
        """Weights, by name."""
        state = self.saved["state"]
        if state is None:
            raise RuntimeError("a loaded model has only one set of weights")
        return state

    def predict(self, rows: Any) -> npt.NDArray[Any]:
        """Predict the class name or the target of each example. See `fallow.Run.predict`.

        Parameters
        ----------
        rows : DataFrame or array-like of shape (n, ...)
            Examples, with the columns or the shape of the training data.
        """
        outputs = self._outputs(rows)
        if self.label_names:
            present: npt.NDArray[np.int64] = (outputs > 0).long().numpy()
            return present
        if not self.classes:
            numbers: npt.NDArray[np.float64] = outputs.squeeze(1).double().numpy()
            return numbers
        names = np.array(self.classes, dtype=np.str_)
        named: npt.NDArray[np.str_] = names[outputs.argmax(1).numpy()]
        return named

    def predict_proba(self, rows: Any) -> npt.NDArray[np.float64]:
        """Return class probabilities of shape (n, n_classes), in the order of `classes`.

        For several labels, it is the probability of each, in the order of `label_names`.

        Parameters
        ----------
        rows : DataFrame or array-like of shape (n, ...)
            Examples, with the columns or the shape of the training data.
        """
        if self.label_names:
            of_labels: npt.NDArray[np.float64] = (
                self._outputs(rows).double().sigmoid().numpy()
            )
            return of_labels
        self._check_task(True, "predict")
        shares: npt.NDArray[np.float64] = self._outputs(rows).double().softmax(1).numpy()
        return shares

    def predict_set(self, rows: Any) -> npt.NDArray[np.bool_]:
        """Return prediction sets of shape (n, n_classes), as `fallow.Run.predict_set` does.

        The coverage is that of the setting ``coverage`` of the run that trained the model.

        Parameters
        ----------
        rows : DataFrame or array-like of shape (n, ...)
            Examples, with the columns or the shape of the training data.
        """
        self._check_task(True, "predict_interval")
        return predict_sets(self._outputs(rows), self.saved.get("prediction_sets"))

    def predict_interval(self, rows: Any) -> npt.NDArray[np.float64]:
        """Return the bounds of prediction intervals of shape (n, 2). See `predict_set`.

        Parameters
        ----------
        rows : DataFrame or array-like of shape (n, ...)
            Examples, with the columns or the shape of the training data.
        """
        self._check_task(False, "predict_set")
        return predict_intervals(
            self._outputs(rows).squeeze(1), self.saved.get("prediction_sets")
        )

    def _check_task(self, wants_classes: bool, instead: str) -> None:
        """Raise ValueError if the model does not predict classes or, otherwise, numbers."""
        task = task_of(self.saved["example_spec"])
        if task == "multilabel":
            instead = "predict_proba"
        if task != ("classification" if wants_classes else "regression"):
            raise ValueError(f"the model is for {task}; use {instead}")

    def _outputs(self, rows: Any) -> Tensor:
        x = read_rows_for(self.saved["example_spec"], rows)
        for difference in compare_with_training(self.config, self.saved, x):
            warnings.warn(difference, stacklevel=4)
        return outputs_of(self.config, self.saved, self.state, x, self.policy)

    def export(self, file: str | Path, *, with_encoder: bool = True) -> Path:
        """Export encoder, feature scaling and network to one file. See `fallow.Run.export`.

        Parameters
        ----------
        file : str or Path
            Destination with the suffix ``.onnx`` (ONNX) or ``.pt2`` (`torch.export`).
        with_encoder : bool, default=True
            Whether to include the encoder.  If False, the input is the output of the encoder.
        """
        model = Trained(self.config, self.saved, self.state, self.policy)
        return export_model(model, Path(file), with_encoder=with_encoder)


@explain_function()
def load_model(
    folder: str | Path,
    *,
    strategy: str | None = None,
    seed: int | None = None,
    site: str | None = None,
    own_code: bool = False,
) -> LoadedModel:
    """Load a trained model from a folder.

    Folders from untrusted sources are safe to load: no code is run, and all classes are built in,
    unless ``own_code`` is set.

    Parameters
    ----------
    folder : str or Path
        Folder written by `Run.save`, downloaded from the Hugging Face Hub, of a study (``out=`` of
        `run` and `compare`), or of a site.
    strategy : str, optional
        Query strategy whose model to load from a study.  Default: the reference.
    seed : int, optional
        Seed whose model to load from a study.  Default: the first.
    site : str, optional
        Site whose model to load, if models are personalized.
    own_code : bool, default=False
        Import the classes of other packages that your own study names; this runs their code.

    Returns
    -------
    LoadedModel

    Raises
    ------
    ValueError
        If the folder contains no model, or its files are inconsistent.

    Examples
    --------
    >>> import tempfile
    >>> import fallow as fl
    >>> digits = fl.load("digits")
    >>> run = fl.run(digits, "random", sites=3, cycles=0, training="fedavg", rounds=1)
    >>> model = fl.load_model(run.save(tempfile.mkdtemp()))
    >>> (model.predict(digits.x_test) == run.predict(digits.x_test)).all()
    np.True_
    """
    path = Path(folder)
    if not (path / CONFIG).exists():
        trained = _read_trained(path, strategy, seed, site, own_code=own_code)
        if trained is not None:
            one: TrainedModel = {**trained.saved, "state": trained.state}
            return LoadedModel(trained.config, one, trained.policy)
    if strategy is not None or seed is not None or site is not None:
        raise ValueError(
            f"{path} has one model; omit strategy, seed and site, or give the folder "
            "of a study"
        )
    model_config = _read_config(path / CONFIG)
    try:
        details = read_example_spec(model_config["rows"])
        settings = {name: model_config["config"][name] for name in SETTINGS}
        if len(json.dumps(settings)) > LONGEST:
            raise ValueError(f"its settings have more than {LONGEST} characters")
        config = config_from(settings, ExperimentConfig("shared"))
        _check_encoder(config)
        sets: SetRule | None = model_config.get("prediction_sets")
        if sets is not None:
            check_sets(sets)
        expected = _find_shapes(config, details)
    except (LookupError, OverflowError, RuntimeError, TypeError, ValueError) as error:
        raise ValueError(
            f"{path / CONFIG} describes a model that cannot be built: {sentence(error)}"
        ) from error
    tensors = _read_tensors(path / WEIGHTS)
    extras: dict[str, State] = {"scale": {}, "targets": {}, "encoder": {}}
    for name in [name for name in tensors if name.startswith(OWN)]:
        group, _, part = name.removeprefix(OWN).partition(".")
        extras.setdefault(group, {})[part] = tensors.pop(name)
    _check_tensors(path / WEIGHTS, tensors, expected)
    module = _build_module(config, details)  # no larger than the file of its weights
    module.load_state_dict(tensors)
    saved: TrainedModel = {
        "state": Layout.of(module).flatten(module),
        "example_spec": details,
        "scale": extras["scale"] or None,
        "targets": extras["targets"] or None,
    }
    if sets is not None:
        saved["prediction_sets"] = sets
    if config.encoder is not None:
        saved["encoder"] = FittedEncoder(
            state=extras["encoder"], digest=str(model_config.get("encoder_digest"))
        )
    shared = LoadedModel(config, saved)
    _try_a_row(path, shared)
    return shared


def _read_trained(
    folder: Path,
    strategy: str | None,
    seed: int | None,
    site: str | None,
    *,
    own_code: bool,
) -> Trained | None:
    """Read the model from the folder of a study or a site; None for other folders."""
    from fallow.deployment.site.folder import SETTINGS as SITE_SETTINGS
    from fallow.deployment.site.predict import read_site_model

    if (
        (folder / SITE_SETTINGS).exists()
        and strategy is None
        and seed is None
        and site is None
    ):
        return read_site_model(folder)
    if (folder / "study.json").exists():
        policy = BUILT_IN
        if own_code:
            policy = names.OWN
        return read_trained(folder, strategy, seed, site, policy)
    return None


def _try_a_row(folder: Path, shared: LoadedModel) -> None:
    """Raise ValueError unless a single example yields one prediction.

    The preprocessing tensors are untrusted, like the weights.
    """
    details = shared.saved["example_spec"]
    outputs = count_outputs(details)
    row = torch.zeros(1, *details["shape"])
    try:
        result = outputs_of(shared.config, shared.saved, shared.state, row, BUILT_IN)
    except (LookupError, RuntimeError, TypeError, ValueError) as error:
        raise ValueError(
            f"{folder / WEIGHTS} has preprocessing that its network cannot use: "
            f"{sentence(error)}"
        ) from error
    if tuple(result.shape) != (1, outputs) or not bool(result.isfinite().all()):
        raise ValueError(
            f"{folder / WEIGHTS} has preprocessing that does not yield one prediction "
            "per example"
        )


def _read_config(path: Path) -> Mapping[str, Any]:  # any value of JSON
    with explain_errors(
        f"{path} cannot be read (", after="); give a folder that Run.save wrote", of=OSError
    ):
        content = read_named(path, LARGEST)
    with explain_errors(f"{path} is not JSON: "):
        model_config = parse_json(content)
    if not isinstance(model_config, dict) or model_config.get("format") != FORMAT:
        raise ValueError(
            f"{path} does not describe a model of this version of Fallow ({FORMAT!r})"
        )
    return model_config


def _read_tensors(path: Path) -> dict[str, Tensor]:
    with explain_errors(f"{path} cannot be read (", after=")", of=OSError):
        content = read_named(path, MOST_BYTES)
    with explain_errors(f"{path} is not in the format of safetensors: ", of=UNREADABLE):
        return load(content)


def _check_tensors(
    path: Path, tensors: Mapping[str, Tensor], expected: Mapping[str, Tensor]
) -> None:
    """Raise ValueError unless each weight of the network has one tensor of its shape."""
    odd = sorted(tensors.keys() ^ expected.keys())
    if odd:
        raise ValueError(f"{path} and {CONFIG} belong to different networks: {odd[0]!r}")
    for name, value in expected.items():
        if tensors[name].shape != value.shape:
            raise ValueError(
                f"{path}: {name!r} has the shape {list(tensors[name].shape)}, and the "
                f"network of {CONFIG} needs {list(value.shape)}"
            )
        is_like = tensors[name].is_floating_point() == value.is_floating_point()
        if not is_like or not bool(tensors[name].isfinite().all()):
            raise ValueError(
                f"{path}: {name!r} must contain finite numbers of the type of the network"
            )
