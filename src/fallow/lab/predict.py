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
from fallow.core.types import State
from fallow.data import Dataset, read_rows
from fallow.engine import predict
from fallow.lab.cell import Cell
from fallow.lab.files import load_tree, save_tree, write_whole
from fallow.lab.reading import read_study
from fallow.lab.recipe import Recipe, recipe_from
from fallow.lab.scale import Scale, in_units
from fallow.lab.world import World
from fallow.models import build_model


def one_model(world: World, state: State) -> State | None:
    """The model that all sites deploy; None where they deploy different ones."""
    deploy = world.methods["training"].deploy
    first, *others = [deploy(state, site.memory) for site in world.members.values()]
    found = {name: first[name] for name in ("w", "stats")}
    same = all(torch.equal(one[name], found[name]) for one in others for name in found)
    return found if same else None


def save_model(path: Path, world: World, state: State | None) -> None:
    """The deployed model, if there is one, with what predicting needs: classes, columns, shape,
    scale."""
    d: Dataset = world.dataset
    scale = world.scale and {"mean": world.scale.mean, "std": world.scale.std}
    about = {"classes": d.classes, "columns": d.columns, "shape": tuple(d.x.shape[1:])}
    save_tree(path, {"state": state, "about": about, "scale": scale, "targets": world.targets})


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
    if saved["state"] is None:
        raise ValueError(
            f"each site of {folder} deploys a model of its own, so there is no one model to "
            "predict with; train one for all (fedavg, with bn=average where the model has batch "
            "norm)"
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
    outputs = predict(model, Layout.of(model), saved["state"], x.to(dtype))
    return in_units(outputs, saved.get("targets"))


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
