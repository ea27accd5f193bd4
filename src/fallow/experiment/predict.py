"""Prediction with the model of a finished run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from fallow.core.load_options import LoadOptions
from fallow.core.missing import BUCKETS, find_text_columns
from fallow.core.model_vectors import Layout
from fallow.core.names import BUILT_IN, NamePolicy
from fallow.core.optional import import_optional
from fallow.core.streams import stream
from fallow.core.types import DTYPES, State
from fallow.data import read_rows
from fallow.data.example_spec import ExampleSpec, count_outputs
from fallow.data.loaders.features import NewRows
from fallow.data.loaders.numbers import warn_of_sentinels
from fallow.encoders.base import EMPTY_CELLS
from fallow.engine import predict
from fallow.experiment.encoding import encode_as_trained, shape_seen
from fallow.experiment.finished import TrainedModel
from fallow.experiment.methods import ModelMaker
from fallow.experiment.scale import Scale, in_units
from fallow.experiment.trained import Trained
from fallow.measurements.prediction_sets import (
    SetRule,
    explain_no_sets,
    predict_intervals,
    predict_sets,
)
from fallow.settings.config import ExperimentConfig
from fallow.storage.files import write_whole
from fallow.storage.plain import csv_content
from fallow.storage.table_suffixes import EXCEL_FILES, FEATHER_FILES

NOT_WRITTEN = (*EXCEL_FILES, *FEATHER_FILES, ".json", ".html", ".pdf")
"""Suffixes of other file formats."""
LONGEST = 2000
"""Maximum number of characters of a model's settings; in a list of widths each entry is a
layer.
"""


class Predicted(NamedTuple):
    """Predictions in a file.

    Attributes
    ----------
    path
        The file.
    rows : int
        Number of predicted examples.
    lacking : int
        Number of examples with missing features.
    unclear : int or None
        Number of examples whose prediction set has several classes or none; None without sets.
    no_sets : str or None
        Why the model has too few test examples for prediction sets.
    warnings : tuple of str
        Differences from the training data.
    """

    path: Path
    rows: int
    lacking: int
    unclear: int | None = None
    no_sets: str | None = None
    warnings: tuple[str, ...] = ()


def predict_with(
    model: Trained,
    data: Path,
    out: Path | None = None,
    mode: int = 0o666,
    options: LoadOptions | None = None,
) -> Predicted:
    """Predict the examples in ``data``, and write a CSV or Parquet file.

    Classification writes the class, its probability, and the probability of each class in a column
    ``probability:CLASS``.  Regression writes the value.  Several labels are written in columns
    ``label:LABEL`` with 0 or 1 and ``probability:LABEL``.  Examples with missing features have empty
    cells.  If the model has prediction sets (setting ``coverage``), columns ``in_set:CLASS`` and
    ``set_size`` follow, or ``low`` and ``high`` for regression.

    Parameters
    ----------
    out : Path, optional
        Output file.  Default: a CSV file next to the data.
    mode : int
        Permissions of the file, before the umask.
    options : LoadOptions, optional
        How files are read.  Default: as those of training.
    """
    target = out or data.with_name(f"{data.stem}-predictions.csv")
    if target.suffix.lower() in NOT_WRITTEN:
        raise ValueError(
            f"predictions are written as CSV or as .parquet, not as {target.suffix}; give --out "
            f"{target.stem}.csv"
        )
    example_spec = model.saved["example_spec"]
    rows = read_rows(data, example_spec, options)
    warnings = [finding.sentence for finding in rows.findings]
    warnings += compare_with_training(model.config, model.saved, rows.x)
    x = rows.x[rows.whole]
    outputs = outputs_of(model.config, model.saved, model.state, x, model.policy)
    labels = example_spec.get("labels", ())
    columns = _columns(outputs, example_spec["classes"])
    if labels:
        columns = _columns_of_labels(outputs, labels)
    sets = model.saved.get("prediction_sets")
    no_sets = explain_no_sets(sets) if sets is not None else None
    unclear = None
    if sets is not None and no_sets is None:
        columns |= _columns_of_sets(outputs, example_spec["classes"], sets)
        if example_spec["classes"]:
            unclear = sum(size != "1" for size in columns["set_size"])
    if rows.named_by in columns:
        raise ValueError(
            f"{data.name}: the column of IDs has the name of a column of predictions, "
            f"{rows.named_by!r}; rename it"
        )
    names = [rows.named_by, *columns]
    lines = _list_lines(rows, columns)
    if target.suffix == ".parquet":
        content = _write_parquet(names, lines, bool(example_spec["classes"]))
    else:
        content = csv_content(names, lines)
    write_whole(target, content, mode=mode)
    return Predicted(
        target, len(x), len(rows.names) - len(x), unclear, no_sets, tuple(warnings)
    )


FAR = 5.0
"""Distance from the mean of training, in standard deviations, of at most 1 / FAR**2 = 4 % of the
training examples (Chebyshev's inequality)."""
OFTEN = 0.25
"""Share of new examples that far away from which a column is on another scale."""
NARROW = 0.01
"""Ratio of standard deviations below which a column is on another scale."""
EXACTLY = 1e-5
"""Relative difference of the mean square from the mean, which are equal for 0 and 1."""
ENOUGH = 10  # minimum number of examples of which the spread is compared


def compare_with_training(
    config: ExperimentConfig, saved: TrainedModel, x: Tensor
) -> list[str]:
    """Return a sentence for each column on another scale than in training, or with codes.

    x: (n, d) raw examples, NaN for empty cells.  The model file has the mean and the standard
    deviation of each column, or the agreed ranges, and nothing else is compared.
    """
    columns = saved["example_spec"]["columns"]
    if not columns or not len(x):
        return []
    sentences = _find_codes(saved["example_spec"], x)
    moments = _find_moments(saved)
    if moments is None:
        return sentences
    offsets = saved["example_spec"].get("offsets", ())
    n_compared = len(moments[0])  # columns of texts are the last, and have no moments
    for at, column in enumerate(columns[:n_compared]):
        mean, std = (float(values[at]) for values in moments)
        numbers = x[:, at].double()
        numbers = numbers[~numbers.isnan()]
        is_binary = bool(((numbers == 0) | (numbers == 1)).all())
        was_binary = abs(std**2 + mean**2 - mean) < EXACTLY * mean and 0 < mean < 1
        if was_binary and not is_binary:
            number = float(numbers[(numbers != 0) & (numbers != 1)][0])
            sentences.append(
                f"column {column!r} has {number:g}, and in training it had only 0 and 1; check its "
                "codes"
            )
            continue
        if std == 0 or is_binary or not _is_on_another_scale((numbers - mean) / std):
            continue
        offset = offsets[at] if offsets else 0.0
        low = float(numbers.min()) + offset
        high = float(numbers.max()) + offset
        middle = mean + offset
        training = f"in training it had a mean of about {middle:g} and a standard deviation of {std:g}"
        if config.standardize == "ranges":
            training = f"its agreed range is {middle - std:g} to {middle + std:g}"
        sentences.append(
            f"column {column!r} goes from {low:g} to {high:g}, and {training}; check its unit"
        )
    return sentences


def _find_codes(spec: ExampleSpec, x: Tensor) -> list[str]:
    """Return a sentence for each column with numbers that may mean a missing value, (n, d)."""
    columns = spec["columns"]
    offsets = spec.get("offsets") or [0.0] * len(columns)
    n_hashed = BUCKETS * len(find_text_columns(columns))  # the last features
    sentences = []
    for at in range(len(columns) - n_hashed):
        numbers = x[:, at].double().numpy() + offsets[at]
        findings = warn_of_sentinels(f"column {columns[at]!r}", numbers[~np.isnan(numbers)])
        sentences += [finding.sentence for finding in findings]
    return sentences


def _find_moments(saved: TrainedModel) -> tuple[Tensor, Tensor] | None:
    """Return mean and standard deviation of the first columns in training, if the file has them.

    An encoder may have a center, which is at most one deviation from the mean.  Agreed ranges have
    a center and half their width.
    """
    d = len(saved["example_spec"]["columns"])
    state: State = {}
    length = 1.0
    if "encoder" in saved:
        state = saved["encoder"]["state"]
        length = math.sqrt(d)  # encoded examples are scaled to length 1
    if {"center", "spread"} <= state.keys():
        return state["center"], state["spread"]
    scale = saved["scale"]
    is_identity = not state.keys() - {EMPTY_CELLS}
    if scale is None or not is_identity or len(scale["mean"]) != d:
        return None
    return scale["mean"], scale["std"] / length


def _is_on_another_scale(z: Tensor) -> bool:
    """Return whether many numbers (n,) are far from 0, or different and close together."""
    if float((z.abs() > FAR).double().mean()) > OFTEN:
        return True
    spread = float(z.std(correction=0))
    return len(z) >= ENOUGH and 0 < spread < NARROW


def outputs_of(
    config: ExperimentConfig,
    saved: TrainedModel,
    state: State,
    x: Tensor,
    policy: NamePolicy = BUILT_IN,
) -> Tensor:
    """Return model outputs: logits of shape (n, c), or targets (n, 1) in units of the data.

    Parameters
    ----------
    state : State
        Weights of the global model or of one site.
    x : Tensor of shape (n, *shape)
        Raw examples.

    Raises
    ------
    ValueError
        If the weights do not fit the network of the configuration.
    """
    shape = shape_seen(config, tuple(saved["example_spec"]["shape"]), policy)
    outputs = count_outputs(saved["example_spec"])
    maker = ModelMaker(config, shape, outputs, policy)
    _check_weights(config, maker, state)  # before anything of its size is allocated
    model = maker.build(stream(0, "template"))  # its weights are replaced
    y = predict(model, Layout.of(model), state, features_of(config, saved, x, policy))
    return in_units(y, saved["targets"])


def features_of(
    config: ExperimentConfig, saved: TrainedModel, x: Tensor, policy: NamePolicy = BUILT_IN
) -> Tensor:
    """Return raw examples (n, *shape) as the network reads them: encoded and standardized."""
    x = encode_as_trained(config, saved, x, policy)
    if saved["scale"]:
        x = Scale(**saved["scale"])(x)
    return x.to(DTYPES[config.dtype])


def _check_weights(config: ExperimentConfig, maker: ModelMaker, state: State) -> None:
    """Raise ValueError unless the number of weights fits, before a huge network is built."""
    if len(str(config.model)) > LONGEST:
        raise ValueError(
            f"the settings of the model have more than {LONGEST} characters, so it is "
            "not built"
        )
    layout = maker.outline()
    if layout is None:
        return
    needed = (layout.d, sum(layout.buffer_sizes))
    there = (state["w"].numel(), state["stats"].numel())
    if needed != there:
        raise ValueError(
            f"the study has {there[0]:,} weights, and its model {config.model} needs "
            f"{needed[0]:,}: they are from different runs"
        )


def _columns(outputs: Tensor, classes: Sequence[str]) -> dict[str, list[str]]:
    """Return the columns of predictions for outputs of shape (n, c) or (n, 1)."""
    if not classes:
        return {"prediction": [repr(value) for value in outputs.squeeze(1).tolist()]}
    probabilities = outputs.softmax(1)  # (n, c)
    best = probabilities.max(1)
    columns = {
        "prediction": [classes[c] for c in best.indices.tolist()],
        "probability": [f"{p:.6f}" for p in best.values.tolist()],
    }
    for name, of_class in zip(classes, probabilities.T.tolist(), strict=True):
        columns[f"probability:{name}"] = [f"{p:.6f}" for p in of_class]
    return columns


def _columns_of_labels(outputs: Tensor, labels: Sequence[str]) -> dict[str, list[str]]:
    """Return the columns of predictions of several labels for log-odds of shape (n, L)."""
    columns = {}
    for name, log_odds in zip(labels, outputs.T, strict=True):
        columns[f"label:{name}"] = [str(int(value > 0)) for value in log_odds.tolist()]
        shares = log_odds.double().sigmoid().tolist()
        columns[f"probability:{name}"] = [f"{share:.6f}" for share in shares]
    return columns


def _columns_of_sets(
    outputs: Tensor, classes: Sequence[str], sets: SetRule
) -> dict[str, list[str]]:
    """Return the columns of prediction sets or intervals for outputs of shape (n, c) or (n, 1)."""
    if not classes:
        bounds = predict_intervals(outputs.squeeze(1), sets)  # (n, 2)
        return {
            "low": [repr(value) for value in bounds[:, 0].tolist()],
            "high": [repr(value) for value in bounds[:, 1].tolist()],
        }
    is_in = predict_sets(outputs, sets)  # (n, c)
    columns = {"set_size": [str(size) for size in is_in.sum(1).tolist()]}
    for name, of_class in zip(classes, is_in.T.tolist(), strict=True):
        columns[f"in_set:{name}"] = [str(int(is_member)) for is_member in of_class]
    return columns


def _list_lines(rows: NewRows, columns: dict[str, list[str]]) -> list[list[object]]:
    """Return the rows of the file: ID and predictions, empty for examples with missing features.

    ``columns`` contain the other examples only, in order.
    """
    predicted = zip(*columns.values(), strict=True)
    lines: list[list[object]] = []
    for name, is_whole in zip(rows.names, rows.whole.tolist(), strict=True):
        cells: Sequence[str] = [""] * len(columns)
        if is_whole:
            cells = next(predicted)
        lines.append([name, *cells])
    return lines


def _write_parquet(
    names: Sequence[str], lines: list[list[object]], has_classes: bool
) -> bytes:
    """Return the file as Parquet: IDs and classes are strings, the rest are numbers."""
    arrow = import_optional("pyarrow", "pyarrow", "Parquet")
    writer = import_optional("pyarrow.parquet", "pyarrow", "Parquet")
    table: dict[str, Any] = {}  # columns of pyarrow
    for at, name in enumerate(names):
        # an empty cell lacks a prediction; a class may be called "NA", and a row 0
        cells = [str(line[at]) or None for line in lines]
        if at == 0 or (has_classes and name == "prediction"):
            table[name] = arrow.array(cells, arrow.string())
        else:
            numbers = [None if cell is None else float(cell) for cell in cells]
            table[name] = arrow.array(numbers, arrow.float64())
    file = BytesIO()
    writer.write_table(arrow.table(table), file)
    return file.getvalue()
