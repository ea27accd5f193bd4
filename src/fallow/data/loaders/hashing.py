"""Hashed n-grams of free text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fallow.core.missing import BUCKETS, CHARACTERS, WORDS

if TYPE_CHECKING:
    from sklearn.feature_extraction.text import HashingVectorizer

BLOCK = 1024  # number of texts per block, to limit memory
NGRAMS = (3, 5)  # characters, within words


def hash_texts(
    texts: Sequence[str], out: npt.NDArray[np.float32] | None = None
) -> npt.NDArray[np.float32]:
    """Return the hashed n-grams of each text, (n, BUCKETS); an empty text has zeros.

    Hashing needs no vocabulary, so each site computes the same features on its own.  A feature is a
    sum of signed counts.  `fallow.encoders.HashedText` weights them by inverse document frequency.

    out: array to write into.

    >>> x = hash_texts(["cough since monday", ""])
    >>> x.shape, float(abs(x[0, :2048]).sum()), float(abs(x[1]).sum())
    ((2, 4096), 3.0, 0.0)
    """
    from sklearn.feature_extraction.text import HashingVectorizer

    words = HashingVectorizer(n_features=WORDS, norm=None, dtype=np.float32)
    characters = HashingVectorizer(
        n_features=CHARACTERS,
        analyzer="char_wb",
        ngram_range=NGRAMS,
        norm=None,
        dtype=np.float32,
    )
    if out is None:
        out = np.empty((len(texts), BUCKETS), dtype=np.float32)
    tokens_in = words.build_analyzer()
    for begin in range(0, len(texts), BLOCK):
        block = [text.lower() for text in texts[begin : begin + BLOCK]]
        rows = out[begin : begin + len(block)]
        rows[:, :WORDS] = hash_parts(words, [tokens_in(text) for text in block])
        rows[:, WORDS:] = hash_parts(characters, [text.split() for text in block])
    return out


def hash_parts(
    vectorizer: HashingVectorizer, parts: Sequence[Sequence[str]]
) -> npt.NDArray[np.float32]:
    """Return the hashed features of texts, (n, features), as sums over their parts.

    Each different part of the texts is hashed once.  Counts are whole numbers, so the sums are
    exact.  parts: those of each text, such as words.
    """
    from scipy.sparse import csr_array

    places: dict[str, int] = {}
    index = [places.setdefault(part, len(places)) for text in parts for part in text]
    if not places:
        return np.zeros((len(parts), vectorizer.n_features), dtype=np.float32)
    ends = np.cumsum([0, *map(len, parts)])
    ones = np.ones(len(index), dtype=np.float32)
    counts = csr_array((ones, index, ends), shape=(len(parts), len(places)))
    features: npt.NDArray[np.float32] = (counts @ vectorizer.transform(places)).toarray()
    return features
