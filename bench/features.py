"""Memory of a million examples with 768 features: write, standardize, read, and aggregate.

python -m bench.features                 1,000,000 examples of 768 features: 3 GB of disk
    python -m bench.features 100000 768      fewer

All steps run in one process. Examples are small, so the peak is that of the features and
should not grow with their number. Writes ``bench/features.json``.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from bench.memory import read_memory
from fallow.encoders import Fourier
from fallow.encoders.base import encode_rows, encoder_digest
from fallow.experiment.methods import versions
from fallow.sites.seen_rows import SeenRows
from fallow.storage.features import FeatureFile, FeatureStore
from fallow.training.parts.closed_form import OneHot
from fallow.training.parts.ridge import add_up

CHUNK = 4096
COLUMNS = 8
CLASSES = 10
LIMIT = 1.0  # GB, including torch
RESULTS = Path(__file__).parent / "features.json"


def peak() -> float:
    """Return the peak memory of this process so far, in GB."""
    return read_memory("VmHWM") / 1000


@dataclass(frozen=True)
class ReadFeatures:
    """Features (n, width) of a file, read one block at a time as `add_up` does."""

    seen: SeenRows
    width: int

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.seen), self.width

    def __len__(self) -> int:
        return len(self.seen)

    def blocks(self, size: int) -> Iterator[Tensor]:
        for some in torch.split(torch.arange(len(self)), size):
            yield self.seen[some]


def main(rows: int, width: int) -> None:
    encoder = Fourier(features=width, units="none")
    x = torch.randn(rows, COLUMNS, generator=torch.Generator().manual_seed(0))
    state = {
        "length": torch.tensor(3.0, dtype=torch.float64),
        "center": torch.zeros(COLUMNS, dtype=torch.float64),
        "spread": torch.ones(COLUMNS, dtype=torch.float64),
    }
    seconds: dict[str, float] = {}
    memory = {"before": peak()}
    with tempfile.TemporaryDirectory() as folder:
        store = FeatureStore(Path(folder))
        begun = time.perf_counter()

        def encode(block: Tensor) -> Tensor:
            return encode_rows(encoder, block, state)

        encoded = store.features(encoder_digest(encoder, state), x, width, encode)
        if not isinstance(encoded, FeatureFile):
            raise SystemExit("so few features stay in memory: give more rows")
        seconds["made"] = time.perf_counter() - begun
        memory["made"] = peak()

        begun = time.perf_counter()
        everything = torch.arange(rows)
        total = torch.zeros(width, dtype=torch.float64)
        square = torch.zeros(width, dtype=torch.float64)
        for some in torch.split(everything, CHUNK):
            z = encoded.take(some).double()
            total += z.sum(0)
            square += z.square().sum(0)
        mean = total / rows
        std = (square / rows - mean.square()).sqrt()
        seconds["standardized"] = time.perf_counter() - begun
        memory["standardized"] = peak()

        begun = time.perf_counter()
        seen = SeenRows(encoded, everything, {"mean": mean, "std": std}, torch.float32)
        drawn = torch.randperm(rows, generator=torch.Generator().manual_seed(1))
        for some in torch.split(drawn, CHUNK):
            seen[some].sum()
        seconds["read in a random order"] = time.perf_counter() - begun
        memory["read in a random order"] = peak()

        begun = time.perf_counter()
        labels = torch.arange(rows) % CLASSES
        features = ReadFeatures(seen, width)
        add_up(features, OneHot(labels, CLASSES), torch.ones(rows))
        seconds["summed into products"] = time.perf_counter() - begun
        memory["summed into products"] = peak()
    highest = max(memory.values())
    details = {
        "rows": rows,
        "features": width,
        "file in GB": round(4 * rows * width / 1e9, 2),
        "peak memory in GB": {name: round(value, 2) for name, value in memory.items()},
        "seconds": {name: round(value, 1) for name, value in seconds.items()},
        "versions": versions(),
    }
    RESULTS.write_text(json.dumps(details, indent=1) + "\n")
    print(json.dumps(details, indent=1))
    if highest > LIMIT:
        raise SystemExit(f"peak memory is {highest:.2f} GB; the limit is {LIMIT} GB")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", type=int, nargs="?", default=1_000_000)
    parser.add_argument("width", type=int, nargs="?", default=768)
    arguments = parser.parse_args()
    main(arguments.rows, arguments.width)
