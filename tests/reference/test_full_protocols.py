"""The papers' full settings on a few images, covering all code that runs on a GPU."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Literal

import pytest
import torch

from fallow.configs.find import find_config
from fallow.core.streams import stream
from fallow.core.training_config import TrainingStage
from fallow.data import Dataset
from fallow.experiment.event_log import EventLog
from fallow.experiment.record import Record
from fallow.experiment.run import ExperimentRun
from fallow.experiment.simulation import environment_of

SITES, CLASSES = 10, 10
FULL = ("ahfal/cifar10", "kafal/cifar10", "fairfal/cifar10")  # LoGo trains as FairFAL does


def images() -> Dataset:
    """Return 200 training images of ten classes; FairFAL's long tail keeps 62 of them."""
    x = torch.randn(220, 3, 32, 32, generator=stream(0, "images"))
    y = torch.arange(220) % CLASSES
    return Dataset("few", x[20:], y[20:], x[:20], y[:20], classes=tuple("0123456789"))


@cache
def records(name: str) -> tuple[Record, ...]:
    """Return the records of one round and one query of a full configuration.

    The model, optimizer, crops and local model are those of the configuration.
    """
    full, once = find_config(name), (TrainingStage(1),)
    config = replace(
        full,
        rounds=1,
        cycles=1,
        initial=3,
        budget=2,
        training_config=replace(full.training_config, stages=once),
        local_training_config=replace(full.local_training_config, stages=once),
    )
    event_log = EventLog()
    run_records = ExperimentRun(
        environment_of(config, 0, images(), event_log), event_log
    ).go()
    event_log.close()
    return tuple(run_records)


def bytes_of(
    name: str, function: str, way: Literal["bytes", "bytes_down"] = "bytes"
) -> int:
    """Return what one site sends (or with ``bytes_down`` receives) in one exchange."""
    (row,) = [row for row in records(name)[-1]["revealed"] if row["function"] == function]
    assert row["sites"] == SITES
    total, exchanges = int(row[way]), int(row["exchanges"])
    return total // (exchanges * SITES)


@pytest.mark.long
@pytest.mark.parametrize("name", FULL)
def test_a_round_and_a_query_of_the_full_protocol_run(name: str) -> None:
    first, last = records(name)
    assert (first["labeled"], last["labeled"]) == (3 * SITES, 5 * SITES)
    assert last["accuracy"] is not None and 0 <= last["accuracy"] <= 1


# -- uploads of AHFAL (its section on communication: 40 B against 311 KB, 0.013 %) -----


@pytest.mark.long
def test_a_site_sends_168_bytes_where_the_paper_counts_40_because_of_squares_and_float64() -> (
    None
):
    """Check the upload: ten shares of 4 bytes in the paper, here with their squares.

    The squares let the coordinator use aggregates only. A 1 marks a site with labels, and
    all values have 8 bytes.
    """
    assert 4 * CLASSES == 40
    assert bytes_of("ahfal/cifar10", "share") == 8 * (2 * CLASSES + 1) == 168


@pytest.mark.long
def test_a_site_sends_its_weights_in_float64_where_the_paper_counts_311784_bytes() -> None:
    """Check the upload of ResNet-8, whose weights have the paper's size.

    The statistics of its batch norms and the number of labels are added. Uploads have 8
    bytes per value for exact aggregates, downloads 4.
    """
    weights, statistics = 77_946, 583 - 7  # seven counters are not sent
    assert 4 * weights == 311_784
    assert bytes_of("ahfal/cifar10", "upload") == 8 * (weights + statistics + 1)
    model = 4 * (weights + statistics)
    assert model <= bytes_of("ahfal/cifar10", "upload", "bytes_down") < model + 100


def test_statistics_for_a_query_are_less_than_a_3000th_of_one_model() -> None:
    """Check the ratio to one upload: 1.28e-4 in the paper, 2.7e-4 here."""
    published = 40 / 311_784
    assert published == pytest.approx(1.28e-4, rel=0.01)
    share = bytes_of("ahfal/cifar10", "share") / bytes_of("ahfal/cifar10", "upload")
    assert share == pytest.approx(2.67e-4, rel=0.01)
