"""A finished run's model on new rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from fallow.core.banks import Layout
from fallow.core.build import nearest
from fallow.core.methods import Predicting
from fallow.core.names import BUILT_IN, NamePolicy
from fallow.core.streams import stream
from fallow.core.types import DTYPES, SiteId, State
from fallow.core.words import join_some
from fallow.data import read_rows
from fallow.engine import predict
from fallow.experiment.encoding import encoded, shape_seen
from fallow.experiment.methods import methods_of
from fallow.experiment.scale import Scale, in_units
from fallow.models import build_model
from fallow.settings.recipe import Recipe, recipe_from
from fallow.settings.variants import variant
from fallow.storage.csv_table import csv_content
from fallow.storage.files import load_tree, write_whole
from fallow.study.cell import Cell
from fallow.study.reading import read_study


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
    the line of a row that lacks a feature says nothing.

    ``site``: with the model that this site was tested with at the end, where each has its own.
    ``policy``: which names in the study resolve; by default Fallow's own, because a study may have
    been made by somebody else.
    Classification: the class and its probability; regression: the value.
    """
    study = read_study(folder)
    wanted = query or study.study.reference or study.study.queries[0]
    cell = Cell(wanted, seed if seed is not None else study.study.seeds[0])
    path = cell.folder(folder) / "model.safetensors"
    if not path.exists():
        raise ValueError(
            f"{folder} has no finished run of {cell.query} with seed {cell.seed}; its queries are "
            f"{', '.join(study.study.queries)}, its seeds {', '.join(map(str, study.study.seeds))}"
        )
    saved = load_tree(path, path.parent)
    made = variant(recipe_from(dict(study.study.recipe)), cell.query)
    return predict_with(saved, made, folder, data, out, site, policy=policy)


def predict_with(
    saved: dict[str, Any],
    made: Recipe,
    folder: Path,
    data: Path,
    out: Path | None = None,
    site: SiteId | None = None,
    mode: int = 0o666,
    policy: NamePolicy = BUILT_IN,
) -> Predicted:
    """`predict_file` with what `save_model` or a real site has saved; ``folder`` is for errors,
    ``mode`` the rights of the file, less those that the umask takes."""
    saved = {**saved, "state": _model(saved, made, folder, site, policy)}
    about = saved["about"]
    rows = read_rows(data, about["columns"], about["shape"], about.get("marks"))
    x = rows.x[rows.whole]
    outputs = outputs_of(made, saved, x, policy)
    found = iter(_lines(outputs, saved["about"]["classes"]))
    lines = [next(found) if is_whole else {} for is_whole in rows.whole.tolist()]
    target = out or data.with_name(f"{data.stem}-predictions.csv")
    write_whole(target, _csv(rows.named_by, rows.names, lines), mode=mode)
    return Predicted(target, len(x), len(lines) - len(x))


def _model(
    saved: dict[str, Any],
    made: Recipe,
    folder: Path,
    site: SiteId | None,
    policy: NamePolicy,
) -> State:
    """The model that is meant; ValueError where there is none, or several."""
    own: dict[SiteId, State] = saved.get("sites", {})
    state: State | None = saved["state"] if site is None else own.get(site)
    if isinstance(methods_of(made, policy=policy)["training"], Predicting):
        raise ValueError(
            f"{made.training} predicts with the labelled rows of a site, which {folder} does not "
            "keep with the model; train with another method"
        )
    if state is not None:
        return state
    if site is not None and own:
        raise ValueError(f"{folder} has no site {site!r}{nearest(site, list(own))}")
    if site is not None:
        raise ValueError(
            f"{folder} has no models of its sites alone; leave out --site {site}"
        )
    whose = (
        f"say whose with --site: {join_some([*own])}"
        if own
        else "the folder of a site has it"
    )
    raise ValueError(f"each site of {folder} deploys a model of its own; {whose}")


def outputs_of(
    made: Recipe, saved: Mapping[str, Any], x: Tensor, policy: NamePolicy = BUILT_IN
) -> Tensor:
    """What the saved model says of rows: (n, *shape) as they are measured -> (n, c) logits, or
    (n, 1) numbers in the units of the data."""
    shape = shape_seen(made, tuple(saved["about"]["shape"]), policy)
    x = encoded(made, saved, x, policy)
    if saved["scale"]:
        x = Scale(**saved["scale"])(x)
    classes = saved["about"]["classes"]
    dtype = DTYPES[made.dtype]
    generator = stream(0, "template")  # its weights are replaced
    model = build_model(
        made.model.name,
        shape,
        len(classes) or 1,
        generator,
        policy,
        **made.model.fields,
    ).to(dtype)
    outputs = predict(model, Layout.of(model), saved["state"], x.to(dtype))
    return in_units(outputs, saved.get("targets"))


def _lines(outputs: Tensor, classes: list[str]) -> list[dict[str, str]]:
    """What is said of each row."""
    if not classes:
        return [{"prediction": repr(value)} for value in outputs.squeeze(1).tolist()]
    best = outputs.softmax(1).max(1)
    pairs = zip(best.indices.tolist(), best.values.tolist(), strict=True)
    return [{"prediction": classes[c], "probability": f"{p:.6f}"} for c, p in pairs]


def _csv(name: str, names: Sequence[object], lines: Sequence[dict[str, str]]) -> bytes:
    """The file: a column ``name`` that says which row it is, then what is said of it.

    lines: empty for a row that lacks a feature.
    """
    heads = next(list(line) for line in lines if line)
    rows: list[list[object]] = []
    for row, line in zip(names, lines, strict=True):
        rows.append([row, *(line.get(head, "") for head in heads)])
    return csv_content([name, *heads], rows)
