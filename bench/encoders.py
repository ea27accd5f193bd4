"""Encoders against implementations of the same features by PyTorch and scikit-learn.

Two ratios below 1 have a reason:

* ``fourier``: both sides spend most of their time in the same product in float32. Fallow also
  centers examples in float64, so that features are the same for every partition.
* ``convolution``: Fallow normalizes each patch before the product with the filters, which is more
  precise than a division of the responses. oneDNN convolves without a copy of the patches.

    python -m bench.encoders    seconds and memory of each encoder per 10,000 examples

Images are random, since no time here depends on their content.  Memory is the peak of a new process
while it encodes, without the examples and the features.  Writes ``bench/encoders.json``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import torch
from scipy import sparse
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.kernel_approximation import RBFSampler
from sklearn.preprocessing import normalize
from torch import Tensor
from torch.nn import functional

from bench.memory import read_memory
from bench.timing import CPU, Entry, Race, Seconds, describe_machine
from fallow.core.methods import Encoder
from fallow.core.missing import BUCKETS, CHARACTERS, WORDS
from fallow.core.streams import stream
from fallow.core.types import State
from fallow.data.loaders.hashing import NGRAMS, hash_texts
from fallow.encoders import (
    Convolution,
    EfficientNetLite0,
    Fourier,
    HashedText,
    Identity,
)
from fallow.encoders.base import encode_rows
from fallow.encoders.efficientnet_lite import is_installed

RESULTS = Path(__file__).with_name("encoders.json")
GRAY = (1, 28, 28)
COLOR = (3, 32, 32)
PATCH = 5
TEXT_WORDS = 12  # words per text
Side = Callable[[], Tensor]


def race_of(reference: Side, ours: Side) -> Race:
    """Return a benchmark whose outputs must be equal in single precision."""

    def are_equal() -> bool:
        return torch.allclose(ours(), reference(), rtol=1e-4, atol=1e-5)

    return Race(reference, ours, are_equal, runs=3)


def draw_images(n: int, shape: tuple[int, int, int] = GRAY) -> Tensor:
    return torch.rand(n, *shape, generator=stream(0, "images", *shape))


def draw_texts(n: int) -> list[str]:
    """Return texts of random words of a vocabulary of 3,000."""
    draw = np.random.default_rng(0)
    characters = np.array(list("etaoinshrdlucmfw"))
    vocabulary = [
        "".join(draw.choice(characters, size)) for size in draw.integers(2, 10, 3000)
    ]
    return [" ".join(draw.choice(vocabulary, TEXT_WORDS)) for _ in range(n)]


def draw_filters(encoder: Convolution, shape: tuple[int, int, int]) -> State:
    """Return a state of the encoder with random filters of length 1."""
    settled = encoder.settle(shape)
    filters = settled.filters or 1
    d = shape[0] * (settled.patch or 1) ** 2
    directions = torch.randn(
        filters, d, generator=stream(0, "filters"), dtype=torch.float64
    )
    return {
        "contrast": torch.tensor(0.01, dtype=torch.float64),
        "filters": directions / directions.norm(dim=1, keepdim=True),
        "bias": torch.zeros(filters, dtype=torch.float64),
    }


def fit_fourier() -> State:
    d = math.prod(GRAY)
    return {
        "length": torch.tensor(8.0, dtype=torch.float64),
        "center": torch.full((d,), 0.5, dtype=torch.float64),
        "spread": torch.ones(d, dtype=torch.float64),
    }


def weigh_ngrams() -> State:
    return {
        "weight": 1
        + torch.rand(BUCKETS, generator=stream(0, "weights"), dtype=torch.float64)
    }


def race_convolution(is_quick: bool) -> Race:
    """Return the benchmark of 64 filters of 5 x 5 pixels with normalized contrast."""
    encoder = Convolution(filters=64, patch=PATCH)
    state = draw_filters(encoder, GRAY)
    x = draw_images(3 if is_quick else 500)
    kernels = state["filters"].float().view(64, 1, PATCH, PATCH)
    centered = kernels - kernels.mean((1, 2, 3), keepdim=True)
    box = torch.full((1, 1, PATCH, PATCH), 1 / PATCH**2)

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

    return race_of(reference, lambda: encode_rows(encoder, x, state))


def race_fourier(is_quick: bool) -> Race:
    encoder = Fourier(features=1024)
    state = fit_fourier()
    x = draw_images(3 if is_quick else 10_000)
    waves = encoder.network(GRAY, state)
    sampler = RBFSampler(n_components=1024).fit(np.zeros((2, math.prod(GRAY)), np.float32))
    sampler.random_weights_ = waves.w.T.numpy()
    sampler.random_offset_ = waves.c.numpy()

    def reference() -> Tensor:
        return torch.from_numpy(sampler.transform(x.flatten(1).numpy() - np.float32(0.5)))

    return race_of(reference, lambda: encode_rows(encoder, x, state))


def race_texts(is_quick: bool) -> Race:
    texts = draw_texts(3 if is_quick else 10_000)
    encoder = HashedText()
    state = weigh_ngrams()
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
        weighted = normalize(sparse.csr_array(counts) * state["weight"].float().numpy())
        return torch.from_numpy((weighted @ projection).toarray())

    return race_of(reference, ours)


ENTRIES = (
    Entry(
        "convolution",
        "torch conv2d with box filters, batches of 64",
        bar=0.9,
        compared="the features of 500 images: 1e-4",
        prepare=race_convolution,
    ),
    Entry(
        "fourier",
        "scikit-learn's RBFSampler",
        bar=0.8,
        compared="the 1,024 features of 10,000 images: 1e-4",
        prepare=race_fourier,
    ),
    Entry(
        "hashed-text",
        "scikit-learn's HashingVectorizer on sparse matrices",
        bar=1.0,
        compared="the features of 10,000 texts: 1e-4",
        prepare=race_texts,
    ),
)


# -- costs per 10,000 examples --------------------------------------------------------------


def prepare_images(
    encoder: Encoder, shape: tuple[int, int, int], state: State, n: int
) -> Callable[[], Tensor]:
    x = draw_images(n, shape)
    return lambda: encode_rows(encoder, x, state)


def prepare_texts(n: int) -> Callable[[], Tensor]:
    texts = draw_texts(n)
    state = weigh_ngrams()
    return lambda: encode_rows(HashedText(), torch.from_numpy(hash_texts(texts)), state)


def prepare(name: str, n: int) -> Callable[[], Tensor]:
    """Return a function that encodes ``n`` examples."""
    if name == "hashed-text, 12 words":
        return prepare_texts(n)
    if name == "identity, gray":
        return prepare_images(Identity(), GRAY, {}, n)
    if name == "fourier, gray":
        return prepare_images(Fourier(features=1024), GRAY, fit_fourier(), n)
    if name == "efficientnet-lite0, color":
        return prepare_images(EfficientNetLite0(normalize=False), COLOR, {}, n)
    shape = GRAY if name.endswith("gray") else COLOR
    encoder = Convolution(filters=256 if "256" in name else None)
    return prepare_images(encoder, shape, draw_filters(encoder, shape), n)


SIZES = {
    "identity, gray": 10_000,
    "fourier, gray": 2000,
    "hashed-text, 12 words": 1000,
    "convolution, gray": 500,
    "convolution, color": 250,
    "convolution:filters=256, color": 250,
    "efficientnet-lite0, color": 64,
}
"""Number of examples that are encoded, by encoder; seconds are scaled to 10,000."""


def measure_memory(name: str, n: int) -> float:
    """Return the memory in MB that encoding needs beyond examples and features."""
    torch.set_num_threads(1)
    encode = prepare(name, n)
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")  # reset the peak
    before = read_memory("VmRSS")
    features = encode()
    return max(0.0, read_memory("VmHWM") - before - features.nbytes / 1e6)


def measure(name: str, n: int) -> dict[str, object]:
    """Return CPU seconds per 10,000 examples (median of five, and their range) and memory."""
    encode = prepare(name, n)
    width = encode().shape[1]
    seconds = []
    for _ in range(5):
        begin = CPU()
        encode()
        seconds.append((CPU() - begin) * 10_000 / n)
    with get_context("spawn").Pool(1) as workers:  # in a new process
        memory = workers.apply(measure_memory, (name, n))
    return {
        "encoder": name,
        "features": width,
        "examples": n,
        **asdict(Seconds.of(seconds)),
        "memory_mb": memory,
    }


def main() -> None:
    torch.set_num_threads(1)
    rows = []
    for name, n in SIZES.items():
        if name.startswith("efficientnet") and not is_installed():
            print(f"{name}: skipped, the extra photos is not installed")
            continue
        row = measure(name, n)
        rows.append(row)
        print(
            f"{name:32} {row['features']:5} features  {row['median']:8.2f} s  "
            f"{row['memory_mb']:5.0f} MB",
            flush=True,
        )
    content = {"machine": describe_machine(), "rows": rows}
    RESULTS.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
