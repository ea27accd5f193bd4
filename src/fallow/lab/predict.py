"""A finished run's model on new rows."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fallow.core.banks import Layout
from fallow.core.streams import stream
from fallow.data import Dataset, read_rows
from fallow.engine import predict
from fallow.lab.cell import Cell
from fallow.lab.files import load_tree, save_tree, write_whole
from fallow.lab.reading import read_study
from fallow.lab.recipe import Recipe, recipe_from
from fallow.lab.scale import Scale
from fallow.lab.world import World
from fallow.models import build_model


def save_model(path: Path, world: World, state: dict[str, Tensor]) -> None:
    """The deployed model with what predicting needs: classes, columns, shape, scale."""
    d: Dataset = world.dataset
    scale = world.scale and {"mean": world.scale.mean, "std": world.scale.std}
    about = {"classes": d.classes, "columns": d.columns, "shape": tuple(d.x.shape[1:])}
    save_tree(path, {"state": state, "about": about, "scale": scale})


def predict_file(
    folder: Path, data: Path, query: str | None = None, seed: int | None = None,
    out: Path | None = None,
) -> tuple[Path, int]:  # fmt: skip
    """Predict every row of ``data``; writes a CSV (``out``, by default beside the data).

    Classification: the class and its probability; regression: the value.  Returns file and rows.
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
    saved, made = load_tree(path, path.parent), recipe_from(dict(study.study.recipe))
    if made.training.fields.get("bn") == "local" and saved["state"]["stats"].numel():
        raise ValueError(
            f"each site of {folder} keeps its own batch-norm statistics (bn=local), so there is no "
            "one model to predict with; train with bn=average"
        )
    x = read_rows(data, saved["about"]["columns"], saved["about"]["shape"])
    if saved["scale"]:
        x = Scale(**saved["scale"])(x)
    outputs = _outputs(made, saved, x)
    target = out or data.with_name(f"{data.stem}-predictions.csv")
    write_whole(target, _csv(outputs, saved["about"]["classes"]))
    return target, len(x)


def _outputs(made: Recipe, saved: dict[str, Any], x: Tensor) -> Tensor:
    classes, dtype = saved["about"]["classes"], getattr(torch, made.dtype)
    generator = stream(0, "template")  # its weights are replaced
    model = build_model(
        made.model.name, saved["about"]["shape"], len(classes) or 1, generator, **made.model.fields
    ).to(dtype)
    return predict(model, Layout.of(model), saved["state"], x.to(dtype))


def _csv(outputs: Tensor, classes: list[str]) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text)
    if classes:
        writer.writerow(["row", "prediction", "probability"])
        best = outputs.softmax(1).max(1)
        pairs = zip(best.indices.tolist(), best.values.tolist(), strict=True)
        writer.writerows([i, classes[c], f"{p:.6f}"] for i, (c, p) in enumerate(pairs))
    else:
        writer.writerow(["row", "prediction"])
        writer.writerows([i, repr(v)] for i, v in enumerate(outputs.squeeze(1).tolist()))
    return text.getvalue().encode()
