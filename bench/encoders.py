"""`python -m bench.encoders`: CPU seconds and memory of each encoder per 10,000 examples.

Each encoder takes turns with a reference implementation of the same features; medians of
five. Images are random, since no time here depends on their content. Memory is the peak of
a fresh process while it encodes, without the examples and the features. Writes
``bench/encoders.json``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor
from torch.nn import functional

from bench.timing import CPU, Race, describe_machine, time_in_turn
from fallow.core.missing import BUCKETS, CHARACTERS, WORDS
from fallow.core.streams import stream
from fallow.core.types import State
from fallow.data.loaders.columns import NGRAMS, hash_texts
from fallow.encoders import (
    Convolution,
    EfficientNetLite0,
    Fourier,
    HashedText,
    Identity,
)
from fallow.encoders.base import encode_rows
from fallow.encoders.efficientnet_lite import is_installed, load_network

RESULTS = Path(__file__).with_name("encoders.json")
PER = 10_000
GRAY = (1, 28, 28)
COLOR = (3, 32, 32)
TEXT_WORDS = 12  # characters per text
PROCESS = Path("/proc/self")


@dataclass(frozen=True)
class Side:
    """An encoder, its number of examples, and a reference implementation.

    ``prepare(n)`` returns both as functions without arguments.
    """

    rows: int
    reference: str
    prepare: Callable[[int], tuple[Callable[[], Tensor], Callable[[], Tensor]]]


def images(shape: tuple[int, ...], n: int) -> Tensor:
    return torch.rand(n, *shape, generator=stream(0, "images", *shape))


def convolution(
    shape: tuple[int, int, int], filters: int, patch: int, rows: int
) -> tuple[str, Side]:
    """Convolution against conv2d with centered filters and box filters for the contrast."""
    encoder = Convolution(filters, patch)
    d = shape[0] * patch**2
    directions = torch.randn(
        filters, d, generator=stream(0, "filters"), dtype=torch.float64
    )
    state: State = {
        "contrast": torch.tensor(0.01, dtype=torch.float64),
        "filters": directions / directions.norm(dim=1, keepdim=True),
        "bias": torch.zeros(filters, dtype=torch.float64),
    }

    def prepare(n: int) -> tuple[Callable[[], Tensor], Callable[[], Tensor]]:
        x = images(shape, n)
        kernels = state["filters"].float().view(filters, shape[0], patch, patch)
        centered = kernels - kernels.mean((1, 2, 3), keepdim=True)
        box = torch.full((1, shape[0], patch, patch), 1 / d)

        def pool(block: Tensor) -> Tensor:
            block = block - block.mean((1, 2, 3), keepdim=True)
            mean = functional.conv2d(block, box)
            variance = functional.conv2d(block.square(), box) - mean.square()
            scale = (variance.clamp_(min=0) + 0.01).sqrt_()
            maps = functional.conv2d(block, centered).div_(scale)
            maps = maps.sub_(encoder.threshold).clamp_(min=0)
            return functional.adaptive_avg_pool2d(maps, encoder.grid).flatten(1)

        def reference() -> Tensor:
            return torch.cat([pool(block) for block in torch.split(x, 64)])

        return lambda: encode_rows(encoder, x, state), reference

    kind = "gray" if shape[0] == 1 else "color"
    name = f"convolution:filters={filters}:patch={patch}, {kind}"
    return name, Side(rows, "torch conv2d with box filters, batches of 64", prepare)


def prepare_fourier(n: int) -> tuple[Callable[[], Tensor], Callable[[], Tensor]]:
    from sklearn.kernel_approximation import RBFSampler

    encoder = Fourier(features=1024)
    d = math.prod(GRAY)
    state: State = {
        "length": torch.tensor(8.0, dtype=torch.float64),
        "center": torch.full((d,), 0.5, dtype=torch.float64),
        "spread": torch.ones(d, dtype=torch.float64),
    }
    x = images(GRAY, n)
    waves = encoder.network(GRAY, state)
    sampler = RBFSampler(n_components=1024).fit(np.zeros((2, d), np.float32))
    sampler.random_weights_ = waves.w.T.numpy()
    sampler.random_offset_ = waves.c.numpy()

    def reference() -> Tensor:
        return torch.from_numpy(sampler.transform(x.flatten(1).numpy() - np.float32(0.5)))

    return lambda: encode_rows(encoder, x, state), reference


def prepare_texts(n: int) -> tuple[Callable[[], Tensor], Callable[[], Tensor]]:
    from scipy import sparse
    from sklearn.feature_extraction.text import HashingVectorizer
    from sklearn.preprocessing import normalize

    draw = np.random.default_rng(0)
    characters = np.array(list("etaoinshrdlucmfw"))
    vocabulary = [
        "".join(draw.choice(characters, size)) for size in draw.integers(2, 10, 3000)
    ]
    texts = [" ".join(draw.choice(vocabulary, TEXT_WORDS)) for _ in range(n)]
    encoder = HashedText()
    weight = 1 + torch.rand(BUCKETS, generator=stream(0, "weights"), dtype=torch.float64)
    state: State = {"weight": weight}
    one_each = torch.eye(BUCKETS)  # use the encoder's own projection
    projection = sparse.csr_array(encode_rows(encoder, one_each, state).numpy())
    words = HashingVectorizer(n_features=WORDS, norm=None, dtype=np.float32)
    characters = HashingVectorizer(
        n_features=CHARACTERS,
        analyzer="char_wb",
        ngram_range=NGRAMS,
        norm=None,
        dtype=np.float32,
    )

    def ours() -> Tensor:
        return encode_rows(encoder, torch.from_numpy(hash_texts(texts)), state)

    def reference() -> Tensor:
        counts = sparse.hstack([words.transform(texts), characters.transform(texts)])
        weighted = normalize(sparse.csr_array(counts) * weight.float().numpy())
        return torch.from_numpy((weighted @ projection).toarray())

    return ours, reference


def prepare_photos(n: int) -> tuple[Callable[[], Tensor], Callable[[], Tensor]]:
    encoder = EfficientNetLite0(normalize=False)
    x = images(COLOR, n)
    network = load_network().module

    def reference() -> Tensor:
        parts = []
        with torch.inference_mode():
            for block in torch.split(x, 64):
                resized = functional.interpolate(
                    block, (encoder.size,) * 2, mode="bicubic", antialias=True
                )
                parts.append(network(resized))
        return torch.cat(parts)

    return lambda: encode_rows(encoder, x, {}), reference


def prepare_identity(n: int) -> tuple[Callable[[], Tensor], Callable[[], Tensor]]:
    x = images(GRAY, n)
    return lambda: encode_rows(Identity(), x, {}), lambda: x.flatten(1)


def sides() -> Mapping[str, Side]:
    """Return the encoders, with EfficientNet-Lite0 if its weights are installed."""
    result = dict(
        [
            *(convolution(GRAY, filters, 5, 500) for filters in (16, 32, 64, 128, 256)),
            *(convolution(GRAY, 64, patch, 500) for patch in (3, 7)),
            *(convolution(COLOR, filters, 5, 250) for filters in (64, 128, 256)),
        ]
    )
    result["fourier:features=1024, gray"] = Side(
        2000, "scikit-learn RBFSampler", prepare_fourier
    )
    result["hashed-text, 12 words"] = Side(
        1000, "scikit-learn on sparse matrices", prepare_texts
    )
    if is_installed():
        result["efficientnet-lite0, color"] = Side(
            64, "the same network in a loop over batches of 64", prepare_photos
        )
    result["identity, gray"] = Side(PER, "torch flatten", prepare_identity)
    return result


def race(name: str, rows: int) -> Race:
    """Return the benchmark of an encoder; outputs must be equal in single precision."""
    ours, reference = sides()[name].prepare(rows)

    def outputs_equal() -> bool:
        return torch.allclose(ours(), reference(), rtol=1e-4, atol=1e-5)

    return Race(reference, ours, outputs_equal)


def read_memory(field: str) -> float:
    """Return a field of this process's status, in MB (Linux)."""
    for line in (PROCESS / "status").read_text(encoding="utf-8").splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0]) * 1024 / 1e6
    raise ValueError(f"{PROCESS / 'status'} has no {field}")


def measure_memory(name: str, rows: int) -> float:
    """Return the memory in MB that encoding needs beyond examples and features."""
    torch.set_num_threads(1)
    ours, _ = sides()[name].prepare(rows)
    (PROCESS / "clear_refs").write_text("5", encoding="utf-8")  # reset the peak
    before = read_memory("VmRSS")
    features = ours()
    return read_memory("VmHWM") - before - features.nbytes / 1e6


def measure(name: str, rows: int, runs: int) -> dict[str, Any]:
    """Return the row of an encoder in the table."""
    both = race(name, rows)
    theirs, ours = time_in_turn(both.reference, both.ours, runs, CPU)
    features, _ = sides()[name].prepare(2)
    with get_context("spawn").Pool(1) as workers:  # in a new process
        memory = workers.apply(measure_memory, (name, rows))
    scale = PER / rows
    return {
        "encoder": name,
        "features": features().shape[1],
        "rows": rows,
        "seconds": ours.median * scale,
        "fastest": ours.fastest * scale,
        "slowest": ours.slowest * scale,
        "reference": sides()[name].reference,
        "reference_seconds": theirs.median * scale,
        "ratio": theirs.median / ours.median,
        "outputs_equal": both.outputs_equal(),
        "memory_mb": max(memory, 0.0),
        "machine": describe_machine(),
    }


def main() -> int:
    """Return 0 if all features equal those of the references, else 1."""
    torch.set_num_threads(1)
    measured = []
    shown = Table("encoder", "features", "seconds", "reference", "ratio", "MB", "outputs")
    for name, side in sides().items():
        row = measure(name, side.rows, 5)
        measured.append(row)
        shown.add_row(
            name,
            str(row["features"]),
            f"{row['seconds']:.2f}",
            f"{row['reference_seconds']:.2f}",
            f"{row['ratio']:.2f}",
            f"{row['memory_mb']:.0f}",
            "equal" if row["outputs_equal"] else "differ",
        )
    Console().print(shown)
    protocol = "CPU seconds per 10,000 examples, one thread, in turn, median of five"
    content = {"about": protocol, "rows": measured}
    RESULTS.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    if not all(row["outputs_equal"] for row in measured):
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
