"""Ranking of the labels of a simulated run by suspicion: `fallow.Run.find_label_issues`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from fallow.api.saved_model import TrainedRun
from fallow.core.names import OWN
from fallow.core.refusal import explain_errors
from fallow.data import Dataset
from fallow.data.dataset import take_rows
from fallow.experiment.methods import methods_of
from fallow.experiment.predict import features_of
from fallow.experiment.rows import open_data, split_rows
from fallow.experiment.scale import in_units
from fallow.settings.config import ExperimentConfig
from fallow.study.study_run import Setup
from fallow.training import ClosedForm
from fallow.training.parts.closed_form import flatten_head
from fallow.training.parts.leave_one_out import FEWEST, LeftOut, leave_each_out, margins

if TYPE_CHECKING:
    import pandas as pd

CLOSE = 1e-2
"""Relative tolerance for a model that is solved again: weights are stored in float32."""


class LabeledRun(TrainedRun, Protocol):
    """Attributes of a run that are needed to rank its labels."""

    @property
    def labels(self) -> pd.DataFrame: ...


def rank_labels(run: LabeledRun, setup: Setup) -> pd.DataFrame:
    """Return the labels of a run, the most suspicious first; ``setup`` has its data."""
    method = check_closed_form(run.config)
    used = run.labels[~run.labels["is_validation"].astype(bool)]
    if len(used) < FEWEST:
        raise ValueError(
            f"the run has {len(used)} labels, and find_label_issues needs at least {FEWEST}"
        )
    with explain_errors(
        "the examples of the run cannot be read again: ",
        after="; call find_label_issues on the result of fl.run itself",
    ):
        dataset = open_data(run.config, run.seed, setup.data_dir, setup.dataset)
    z = read_features(run, dataset, used)
    values = torch.tensor(used["value"].to_numpy(dtype=np.float64))
    targets = run.saved["targets"]
    y = values[:, None]
    if dataset.classes:
        y = one_hot(values.long(), dataset.n_classes).double()
    elif targets is not None:
        y = (y - targets["mean"]) / targets["std"]
    s = torch.ones(len(used), dtype=torch.float64)
    if method.weighted:
        s = torch.tensor(used["weight"].to_numpy(dtype=np.float64))
    if dataset.classes and method.balance == "class":
        counts = y.sum(0)
        s = s * (y / counts.clamp_min(1)).sum(1) * len(used) / (counts > 0).sum()
    last = run.records.iloc[-1]
    left_out = leave_each_out(z, y, s, float(last.get("penalty", np.nan)))
    if not last.get("unlabeled", 0) > 0:  # otherwise soft labels have changed the model
        check_model(run, left_out, float(last.get("temperature", 1.0)))

    result = used[["site", "row"]].copy()
    if dataset.classes:
        names = np.array(dataset.classes, dtype=np.str_)
        result["label"] = names[values.long().numpy()]
        result["suggested"] = names[left_out.outputs.argmax(1).numpy()]
        result["score"] = margins(left_out.outputs, values.long()).numpy()
    else:
        result["label"] = values.numpy()
        result["suggested"] = in_units(left_out.outputs, targets).squeeze(1).numpy()
        result["score"] = left_out.away.squeeze(1).abs().numpy()
    return result.sort_values(
        "score", ascending=bool(dataset.classes), kind="stable", ignore_index=True
    )


def check_closed_form(config: ExperimentConfig) -> ClosedForm:
    """Return the training algorithm. Raise ValueError unless it is ClosedForm without noise."""
    method = methods_of(config)["training"]
    if not isinstance(method, ClosedForm) or method.delta is not None:
        raise ValueError(
            "find_label_issues needs the exact leave-one-out predictions of "
            f"training=fl.ClosedForm() without delta, and the run used {config.training}"
        )
    return method


def read_features(run: LabeledRun, dataset: Dataset, labels: pd.DataFrame) -> Tensor:
    """Return the features of the labeled examples, (n, D), in the order of ``labels``."""
    rows = split_rows(run.config, dataset, run.seed)
    at = [rows[site][row] for site, row in zip(labels["site"], labels["row"], strict=True)]
    x = take_rows(dataset.x, torch.tensor(np.array(at)))
    return features_of(run.config, run.saved, x, OWN).flatten(1)


def check_model(run: LabeledRun, left_out: LeftOut, temperature: float) -> None:
    """Raise ValueError if the labeled examples do not have the model of the run as solution."""
    stored = run.state_of()["w"].double()
    solved = flatten_head(left_out.head, temperature)
    if not (stored - solved).norm() <= CLOSE * stored.norm():
        raise ValueError(
            "the labels of the run do not reproduce its model, so leave-one-out predictions "
            "would be those of another one; run it on the present data"
        )
