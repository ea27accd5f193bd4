"""Texts as examples: one number per character."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

LARGEST = 0x10FFFF  # the last character of Unicode
SURROGATES = range(0xD800, 0xE000)  # surrogates, which do not occur in text


def texts_to_rows(texts: Sequence[str], length: int | None = None) -> Tensor:
    """Encode texts as character codes, zero-padded, (n, length) float32.

    Parameters
    ----------
    texts : sequence of str
        Texts.
    length : int, optional
        Number of characters per example; longer texts are truncated.  Default: the length of the
        longest text.

    Examples
    --------
    >>> texts_to_rows(["ab", "c"]).tolist()
    [[97.0, 98.0], [99.0, 0.0]]
    """
    if length is None:
        length = max((len(text) for text in texts), default=0)
    rows = torch.zeros(len(texts), length)
    for at, text in enumerate(texts):
        characters = [ord(character) for character in text[:length]]
        rows[at, : len(characters)] = torch.tensor(characters, dtype=torch.float32)
    return rows


def rows_to_texts(x: Tensor) -> list[str]:
    """Return the texts of examples (n, length) in the format of `texts_to_rows`.

    Raises ValueError for numbers that are not characters.

    >>> rows_to_texts(texts_to_rows(["naïve", ""]))
    ['naïve', '']
    """
    texts = []
    for at, row in enumerate(x.tolist()):
        characters = []
        for number in row:
            is_character = 0 <= number <= LARGEST and number == int(number)
            if not is_character or int(number) in SURROGATES:
                raise ValueError(
                    f"row {at + 1} is not a text: {number:g} is not the code of a "
                    "character; convert texts with fl.texts_to_rows"
                )
            characters.append(chr(int(number)))
        texts.append("".join(characters).rstrip("\0"))
    return texts
