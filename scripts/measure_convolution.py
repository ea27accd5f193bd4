"""Measure the invariant convolution encoder against the one before it.

    nice -n 19 python scripts/measure_convolution.py run FILE --data-dir DATA --seeds 10
    python scripts/measure_convolution.py table FILE

"Before" is the encoder of version 1: 0.05 was added to the variance of each patch, images had 64
filters, images with color 3 x 3 parts and a threshold of 0.9, and images without color were not
whitened.  It is written here as plain PyTorch, and its features are used as they are.  ``run`` trains
a closed-form classifier on both with the same initial labels, appends a line per run and continues
where it stopped.

Pixels are from 0 to 1, as in a folder of images.  Cameras are images of CIFAR-10 with the contrast and
the brightness of one of 20 cameras.
"""

from __future__ import annotations

import argparse
import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from torch.nn import functional

import fallow as fl
from fallow.core.streams import stream
from fallow.encoders.base import round_to_grid
from fallow.study.statistics import t_interval

TRAINING = 3000
TEST = 1000
CAMERAS = 20
DATASETS = ("mnist", "fashion_mnist", "cifar10", "cifar10-standardized", "cameras")
PARTITIONS = {
    "Dirichlet 0.1": fl.Dirichlet(alpha=0.1),
    "Dirichlet 1": fl.Dirichlet(alpha=1.0),
    "IID": fl.IID(),
}
STRATEGY = "margin"
ENCODERS = ("before", "after")
COLUMNS = ("data", "partition", "seed", "encoder", "labels", "accuracy")

CONTRAST = 0.05
RIDGE = 0.1
FILTERS = 64
PATCH = 5
BATCH = 250


def encode_before(x: Tensor, x_test: Tensor) -> tuple[Tensor, Tensor]:
    """Return the features of version 1 of `Convolution`, with filters fitted to ``x``."""
    channels = x.shape[1]
    d = channels * PATCH**2
    draw = stream(0, "convolution", FILTERS, d)
    directions = torch.randn(FILTERS, d, generator=draw, dtype=torch.float64)
    if channels == 1:
        centered = directions - directions.mean(1, keepdim=True)
        filters = round_to_grid(centered / centered.norm(dim=1, keepdim=True)).float()
        level = torch.full((FILTERS, 1), 0.3)
        return respond(x, filters, level, grid=4), respond(x_test, filters, level, grid=4)
    directions = directions / directions.norm(dim=1, keepdim=True)
    mean, variance = patch_moments(x)
    e, u = torch.linalg.eigh(variance + RIDGE * torch.eye(d, dtype=torch.float64))
    filters = round_to_grid(directions @ ((u / e.sqrt()) @ u.T))
    level = (round_to_grid(filters @ mean).float() + 0.9)[:, None]
    filters = filters.float()
    return respond(x, filters, level, grid=3), respond(x_test, filters, level, grid=3)


def patch_moments(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean (d,) and covariance (d, d) of the normalized patches of all images."""
    mean = torch.zeros((), dtype=torch.float64)
    second = torch.zeros((), dtype=torch.float64)
    for images in torch.split(x, BATCH):
        patches = normalize(functional.unfold(images, PATCH)).double()
        flat = patches.transpose(1, 2).flatten(0, 1)
        places = patches.shape[2]
        mean = mean + flat.sum(0) / places
        second = second + flat.T @ flat / places
    mean = mean / len(x)
    return mean, second / len(x) - torch.outer(mean, mean)


def respond(x: Tensor, filters: Tensor, level: Tensor, grid: int) -> Tensor:
    """Return the rectified responses, averaged over grid x grid parts of each image."""
    parts = []
    for images in torch.split(x, BATCH):
        patches = functional.unfold(images.float(), PATCH)
        if x.shape[1] > 1:
            patches = normalize(patches)
        responses = (filters @ patches - level).clamp_(min=0)
        high = x.shape[2] - PATCH + 1
        wide = x.shape[3] - PATCH + 1
        maps = responses.view(len(images), FILTERS, high, wide)
        parts.append(functional.adaptive_avg_pool2d(maps, grid).flatten(1))
    return torch.cat(parts)


def normalize(patches: Tensor) -> Tensor:
    """Normalize patches (b, d, places) by their root of variance + 0.05."""
    centered = patches - patches.mean(1, keepdim=True)
    variance = centered.square().mean(1, keepdim=True)
    return centered / (variance + CONTRAST).sqrt()


def load(name: str, data_dir: Path | None) -> fl.Dataset:
    """Load the first training and test images of a dataset, with pixels from 0 to 1.

    Named datasets have standardized pixels; images in a user's folder do not.
    """
    source = "cifar10" if name in ("cameras", "cifar10-standardized") else name
    whole = fl.load(source, data_dir=data_dir)
    x = whole.x[:TRAINING]
    x_test = whole.x_test[:TEST]
    if name != "cifar10-standardized":
        x, x_test = scale(x, whole.x), scale(x_test, whole.x)
    if name == "cameras":
        draw = np.random.default_rng(0)
        gains = draw.uniform(0.1, 1, CAMERAS)
        offsets = draw.uniform(0, 1 - gains)
        x = expose(x, gains, offsets, draw)
        x_test = expose(x_test, gains, offsets, draw)
    return fl.from_arrays(
        x, whole.y[:TRAINING], x_test=x_test, y_test=whole.y_test[:TEST], name=name
    )


def scale(images: Tensor, of: Tensor) -> Tensor:
    """Return images with pixels from 0 to 1: each channel of the whole dataset reaches both."""
    least = of.amin((0, 2, 3), keepdim=True)
    return (images - least) / (of.amax((0, 2, 3), keepdim=True) - least)


def expose(
    images: Tensor, gains: np.ndarray, offsets: np.ndarray, draw: np.random.Generator
) -> Tensor:
    """Return images with the contrast and brightness of a random camera."""
    cameras = draw.integers(0, CAMERAS, len(images))
    gain = torch.from_numpy(gains[cameras]).float()[:, None, None, None]
    offset = torch.from_numpy(offsets[cameras]).float()[:, None, None, None]
    return gain * images + offset


def run_all(file: Path, data_dir: Path | None, seeds: int) -> None:
    """Run what the file does not have yet."""
    done = set()
    if file.exists():
        for line in pd.read_csv(file, dtype={"seed": int}).itertuples():
            done.add((line.data, line.partition, line.seed, line.encoder))
    for name in DATASETS:
        after = load(name, data_dir)
        x, x_test = encode_before(after.x, after.x_test)
        before = replace(after, x=x, x_test=x_test)
        for seed in range(seeds):
            for partition in PARTITIONS:
                for encoder, data in zip(ENCODERS, (before, after), strict=True):
                    key = (name, partition, seed, encoder)
                    if key not in done:
                        write_line(file, (*key, *run_one(data, key)))


def run_one(data: fl.Dataset, key: tuple[str, str, int, str]) -> tuple[int, float]:
    """Return the number of labels and the accuracy in percent, with a quarter of all labels."""
    _, partition, seed, encoder = key
    federation = fl.Federation(data, PARTITIONS[partition], sites=10)
    done = fl.run(
        federation,
        STRATEGY,
        training=fl.ClosedForm(unlabeled="off"),  # as in the published measurement
        encoder="identity" if encoder == "before" else "convolution",
        initial=0.1,
        budget=0.15,
        cycles=1,
        seed=seed,
        progress=False,
    )
    last = done.records.iloc[-1]
    return int(last["labeled"]), round(100 * float(last["accuracy"]), 3)


def write_line(file: Path, values: tuple[object, ...]) -> None:
    """Append a line to the file, with a header to a new one."""
    is_new = not file.exists()
    with file.open("a", newline="") as stream_:
        writer = csv.writer(stream_)
        if is_new:
            writer.writerow(COLUMNS)
        writer.writerow(values)


def print_table(file: Path) -> None:
    """Print accuracy before and after, and the paired difference with its 95 % interval."""
    table = pd.read_csv(file)
    keys = ["data", "partition", "seed"]
    wide = table.pivot(index=keys, columns="encoder", values="accuracy").dropna()
    print("| data | partition | before | after | difference [95 %] |")
    print("|---|---|---:|---:|---:|")
    for group, part in wide.groupby(keys[:-1], sort=False):
        difference = part["after"] - part["before"]
        interval = t_interval(difference.tolist())
        cells = (
            *group,
            f"{part['before'].mean():.1f} ± {part['before'].std():.1f}",
            f"{part['after'].mean():.1f} ± {part['after'].std():.1f}",
            f"{difference.mean():+.1f} [{interval.low:+.1f}, {interval.high:+.1f}]",
        )
        print(f"| {' | '.join(cells)} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("run", "table"))
    parser.add_argument("file", type=Path)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--seeds", type=int, default=10)
    args = parser.parse_args()
    if args.what == "table":
        print_table(args.file)
        return
    run_all(args.file, args.data_dir, args.seeds)


if __name__ == "__main__":
    main()
