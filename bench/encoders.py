"""Encoders against implementations of the same features by PyTorch and scikit-learn.

Images are random, since no time here depends on their content.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from scipy import sparse
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.kernel_approximation import RBFSampler
from sklearn.preprocessing import normalize
from torch import Tensor
from torch.nn import functional

from bench.timing import Entry, Race
from fallow.core.missing import BUCKETS, CHARACTERS, WORDS
from fallow.core.streams import stream
from fallow.core.types import State
from fallow.data.loaders.columns import NGRAMS, hash_texts
from fallow.encoders import Convolution, Fourier, HashedText
from fallow.encoders.base import encode_rows

GRAY = (1, 28, 28)
PATCH = 5
TEXT_WORDS = 12  # words per text
Side = Callable[[], Tensor]


def race_of(reference: Side, ours: Side) -> Race:
    """Return a benchmark whose outputs must be equal in single precision."""

    def are_equal() -> bool:
        return torch.allclose(ours(), reference(), rtol=1e-4, atol=1e-5)

    return Race(reference, ours, are_equal, runs=3)


def draw_images(n: int) -> Tensor:
    return torch.rand(n, *GRAY, generator=stream(0, "images", *GRAY))


def race_convolution(is_quick: bool) -> Race:
    """Return the benchmark of 64 filters of 5 x 5 pixels with normalized contrast."""
    encoder = Convolution(filters=64, patch=PATCH)
    d = PATCH**2
    directions = torch.randn(64, d, generator=stream(0, "filters"), dtype=torch.float64)
    state: State = {
        "contrast": torch.tensor(0.01, dtype=torch.float64),
        "filters": directions / directions.norm(dim=1, keepdim=True),
        "bias": torch.zeros(64, dtype=torch.float64),
    }
    x = draw_images(3 if is_quick else 500)
    kernels = state["filters"].float().view(64, 1, PATCH, PATCH)
    centered = kernels - kernels.mean((1, 2, 3), keepdim=True)
    box = torch.full((1, 1, PATCH, PATCH), 1 / d)

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
    d = math.prod(GRAY)
    state: State = {
        "length": torch.tensor(8.0, dtype=torch.float64),
        "center": torch.full((d,), 0.5, dtype=torch.float64),
        "spread": torch.ones(d, dtype=torch.float64),
    }
    x = draw_images(3 if is_quick else 10_000)
    waves = encoder.network(GRAY, state)
    sampler = RBFSampler(n_components=1024).fit(np.zeros((2, d), np.float32))
    sampler.random_weights_ = waves.w.T.numpy()
    sampler.random_offset_ = waves.c.numpy()

    def reference() -> Tensor:
        return torch.from_numpy(sampler.transform(x.flatten(1).numpy() - np.float32(0.5)))

    return race_of(reference, lambda: encode_rows(encoder, x, state))


def race_texts(is_quick: bool) -> Race:
    n = 3 if is_quick else 10_000
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

    return race_of(reference, ours)


ENTRIES = (
    Entry(
        "convolution",
        "torch conv2d with box filters, batches of 64",
        bar=1.0,
        compared="the features of 500 images: 1e-4",
        prepare=race_convolution,
    ),
    Entry(
        "fourier",
        "scikit-learn's RBFSampler",
        bar=1.0,
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
