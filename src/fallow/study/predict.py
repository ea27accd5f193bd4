"""A finished run's model on new rows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from torch import Tensor

from fallow.core.banks import Layout
from fallow.core.build import nearest
from fallow.core.methods import Predicting
from fallow.core.names import BUILT_IN, NamePolicy
from fallow.core.streams import stream
from fallow.core.types import DTYPES, SiteId, State
from fallow.core.words import join_some
from fallow.data import read_rows
from fallow.data.own.cells import EXCEL_FILES, FEATHER_FILES
from fallow.data.own.features import NewRows
from fallow.engine import predict
from fallow.experiment.encoding import encode_as_trained, shape_seen
from fallow.experiment.finished import TrainedModel
from fallow.experiment.methods import methods_of
from fallow.experiment.model_maker import ModelMaker
from fallow.experiment.scale import Scale, in_units
from fallow.settings.recipe import Recipe, recipe_from
from fallow.settings.variants import variant
from fallow.storage.csv_table import csv_content
from fallow.storage.files import load_tree, write_whole
from fallow.storage.plain import cell_text
from fallow.study.cell import StudyRun
from fallow.study.reading import read_study

NOT_WRITTEN = (*EXCEL_FILES, *FEATHER_FILES, ".json", ".html", ".pdf")
"""Endings that promise a file of another kind than predictions are written as."""
LONGEST = 2000
"""Letters of a model's settings: each is a layer where a list of widths is long."""


class Predicted(NamedTuple):
    """rows: how many have a prediction in the file; lacking: how many lack a feature, and it."""

    path: Path
    rows: int
    lacking: int


def predict_file(
    folder: Path,
    data: Path,
    query: str | None = None,
    seed: int | None = None,
    out: Path | None = None,
    site: SiteId | None = None,
    policy: NamePolicy = BUILT_IN,
) -> Predicted:
    """Predict the rows of ``data``; writes a CSV (``out``, by default beside the data), in which
    the line of a row that lacks a feature says nothing; Parquet where ``out`` ends so.

    ``site``: with the model that this site was tested with at the end, where each has its own.
    ``policy``: which names in the study resolve; by default Fallow's own, because a study may have
    been made by somebody else.
    Classification: the class, its probability, and the probability of every class in a column
    ``probability:CLASS``.  Regression: the value.
    """
    study = read_study(folder).study
    cell = StudyRun(query or study.reference or study.queries[0], study.seeds[0])
    if seed is not None:
        cell = StudyRun(cell.query, seed)
    path = cell.folder(folder) / "model.safetensors"
    if not path.exists():
        seeds = ", ".join(str(each) for each in study.seeds)
        raise ValueError(
            f"{folder} has no finished run of {cell.query} with seed {cell.seed}; its queries are "
            f"{', '.join(study.queries)}, its seeds {seeds}"
        )
    saved = load_tree(path, path.parent)
    recipe = variant(recipe_from(dict(study.recipe)), cell.query)
    return predict_with(
        saved, recipe, folder=folder, data=data, out=out, site=site, policy=policy
    )


def predict_with(
    saved: TrainedModel,
    recipe: Recipe,
    folder: Path,
    data: Path,
    out: Path | None = None,
    site: SiteId | None = None,
    mode: int = 0o666,
    policy: NamePolicy = BUILT_IN,
) -> Predicted:
    """`predict_file` with what `save_model` or a real site has saved; ``folder`` is for errors,
    ``mode`` the rights of the file, less those that the umask takes."""
    target = out or data.with_name(f"{data.stem}-predictions.csv")
    if target.suffix.lower() in NOT_WRITTEN:
        raise ValueError(
            f"predictions are written as CSV or as .parquet, not as {target.suffix}; give --out "
            f"{target.stem}.csv"
        )
    own = saved.get("sites", {})
    state = saved["state"]
    if site is not None:
        state = own.get(site)
    if isinstance(methods_of(recipe, policy=policy)["training"], Predicting):
        raise ValueError(
            f"{recipe.training} predicts with the labelled rows of a site, which {folder} does not "
            "keep with the model; train with another method"
        )
    if state is None:
        raise ValueError(_explain_no_model(folder, list(own), site))
    about = saved["about"]
    rows = read_rows(
        data,
        about["columns"],
        about["shape"],
        about.get("marks"),
        ids=about.get("ids", "id"),
    )
    x = rows.x[rows.whole]
    outputs = outputs_of(recipe, saved, state, x, policy)
    columns = _columns(outputs, about["classes"])
    if rows.named_by in columns:
        raise ValueError(
            f"{data.name}: the column of IDs is called {rows.named_by!r}, as a column of "
            "predictions is; rename it"
        )
    content = _write_csv(rows, columns)
    if target.suffix == ".parquet":
        content = _turn_into_parquet(
            content, rows.named_by, list(columns), has_classes=bool(about["classes"])
        )
    write_whole(target, content, mode=mode)
    return Predicted(target, len(x), len(rows.names) - len(x))


def _explain_no_model(folder: Path, own: list[SiteId], site: SiteId | None) -> str:
    """Why there is no model to predict with.  own: the sites that have one of their own; site:
    the one that was asked for."""
    if site is not None and own:
        return f"{folder} has no site {site!r}{nearest(site, own)}"
    if site is not None:
        return f"{folder} has no models of its sites alone; leave out --site {site}"
    whose = "the folder of a site has it"
    if own:
        whose = f"say whose with --site: {join_some(own)}"
    return f"each site of {folder} deploys a model of its own; {whose}"


def outputs_of(
    recipe: Recipe,
    saved: TrainedModel,
    state: State,
    x: Tensor,
    policy: NamePolicy = BUILT_IN,
) -> Tensor:
    """What a saved model says of rows: (n, *shape) as they are measured -> (n, c) logits, or
    (n, 1) numbers in the units of the data.

    state: the weights, those that all sites share or those of one of them.
    Raises ValueError where they are not those of the network that the recipe names.
    """
    shape = shape_seen(recipe, tuple(saved["about"]["shape"]), policy)
    outputs = len(saved["about"]["classes"]) or 1
    maker = ModelMaker(recipe, shape, outputs, policy)
    _check_weights(recipe, maker, state)  # before anything of its size is made
    x = encode_as_trained(recipe, saved, x, policy)
    if saved["scale"]:
        x = Scale(**saved["scale"])(x)
    model = maker.build(stream(0, "template"))  # its weights are replaced
    y = predict(model, Layout.of(model), state, x.to(DTYPES[recipe.dtype]))
    return in_units(y, saved.get("targets"))  # models of before have none


def _check_weights(recipe: Recipe, maker: ModelMaker, state: State) -> None:
    """Raise ValueError unless there are as many weights as the network has: one of any width can be
    named in a few letters, by whoever sent the study."""
    if len(str(recipe.model)) > LONGEST:
        raise ValueError(
            f"the model of the study has settings of more than {LONGEST} letters: it is not built"
        )
    layout = maker.outline()
    if layout is None:
        return
    needed = (layout.d, sum(layout.buffer_sizes))
    there = (state["w"].numel(), state["stats"].numel())
    if needed != there:
        raise ValueError(
            f"the study has {there[0]:,} weights, and its model {recipe.model} takes {needed[0]:,}: "
            "they are not of one run"
        )


def _columns(outputs: Tensor, classes: Sequence[str]) -> dict[str, list[str]]:
    """What is said of rows, by the name of its column.  outputs: (n, c) or (n, 1)."""
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


def _turn_into_parquet(
    content: bytes, named_by: str, columns: Sequence[str], *, has_classes: bool
) -> bytes:
    """The rows of a CSV of predictions as Parquet: names and classes are texts, the others numbers.

    columns: those beside ``named_by``, in the order of the file.
    """
    from io import BytesIO

    import pandas as pd

    types = {named_by: "str"} | dict.fromkeys(columns, "float64")
    if has_classes:
        types["prediction"] = "str"
    # an empty cell lacks a prediction; a class may be called "NA"
    table = pd.read_csv(
        BytesIO(content),
        header=0,
        names=list(types),
        dtype=types,
        keep_default_na=False,
        na_values=[""],
    )
    for name, kind in types.items():
        if kind == "str":
            table[name] = table[name].map(cell_text, na_action="ignore")
    try:
        found: bytes = table.to_parquet(engine="pyarrow", index=False)
    except ImportError as error:
        raise ValueError("Parquet needs pyarrow: pip install 'fallow[tables]'") from error
    return found


def _write_csv(rows: NewRows, columns: dict[str, list[str]]) -> bytes:
    """The file: a column that says which row it is, then what is said of it; nothing is said of
    a row that lacks a feature.

    columns: of the rows that lack none, in their order.
    """
    lines: list[list[object]] = []
    n_before = 0  # rows so far that lack nothing
    for name, is_whole in zip(rows.names, rows.whole.tolist(), strict=True):
        cells = [""] * len(columns)
        if is_whole:
            cells = [said[n_before] for said in columns.values()]
            n_before += 1
        lines.append([name, *cells])
    return csv_content([rows.named_by, *columns], lines)
