"""Hashed word and character n-grams of text columns.

Hashing needs no vocabulary, so each site computes the same features on its own.  A feature is a sum
of signed counts.  `fallow.encoders.HashedText` weights them by inverse document frequency.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from fallow.core.missing import BUCKETS, CHARACTERS, WORDS

BLOCK = 1024  # number of texts per block, to limit memory
NGRAMS = (3, 5)  # characters, within words


def hash_texts(
    texts: Sequence[str], out: npt.NDArray[np.float32] | None = None
) -> npt.NDArray[np.float32]:
    """Return the hashed n-grams of each text, (n, BUCKETS); an empty text has zeros.

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
    for begin in range(0, len(texts), BLOCK):
        block = texts[begin : begin + BLOCK]
        out[begin : begin + len(block), :WORDS] = words.transform(block).toarray()
        out[begin : begin + len(block), WORDS:] = characters.transform(block).toarray()
    return out
