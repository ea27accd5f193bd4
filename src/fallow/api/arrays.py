"""A person's arrays as tensors, without a copy where that can be."""

from __future__ import annotations

import warnings
from typing import Any, Literal, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

OutputKind = Literal["probabilities", "logits"]
OUTPUT_KINDS: tuple[OutputKind, ...] = ("probabilities", "logits")
TOLERANCE = 0.02
"""How far the sum of probabilities may be from 1: they may be rounded to two digits."""
ROUNDING = 1e-4
"""How far below 0 a probability may be by rounding."""


def as_rows(given: Any, what: str, dtype: torch.dtype | None = None) -> Tensor:
    """Rows as a tensor on the memory they lie in, if their type allows: (n, ...) numbers.

    given: a tensor, an array, a DataFrame of numbers, or nested lists.  dtype: of the model; None
    keeps float32 and float64 as they are and makes float32 of whole numbers.
    Raises ValueError, which names ``what``, for texts, for a single row, and for a value that is
    not finite.

    >>> x = np.ones((3, 2), dtype=np.float32)
    >>> as_rows(x, "pool").data_ptr() == x.ctypes.data
    True
    """
    rows = _tensor(given, what)
    if rows.ndim < 2:
        hint = ""
        if rows.ndim == 1:
            hint = "; one feature a row is [[1.0], [2.0]]"
        raise ValueError(
            f"{what} has shape {tuple(rows.shape)}; give rows of shape (n, features){hint}"
        )
    if dtype is None and rows.dtype in (torch.float32, torch.float64):
        dtype = rows.dtype
    rows = rows.to(dtype or torch.float32)
    bad = ~rows.isfinite().flatten(1).all(1)
    if bool(bad.any()):
        raise ValueError(
            f"{what}: {int(bad.sum())} of {len(rows)} rows have a feature that is NaN or infinite "
            f"(the first is row {int(bad.nonzero()[0])}); fill them in or leave them out"
        )
    return rows


def as_outputs(values: Any, what: str, kind: OutputKind | None = None) -> Tensor:
    """Model outputs as logits: (n, c) floats.

    Probabilities become their logarithms.  ``kind`` says which of the two ``values`` are; None: rows
    that are nowhere negative and sum to 1 up to rounding (2 %) are probabilities, and rows with
    negative values are logits.  A row may be NaN: it is unknown and comes last.
    Raises ValueError, which names ``what``, for outputs that are neither.

    >>> as_outputs([[0.25, 0.75]], "outputs").softmax(1)
    tensor([[0.2500, 0.7500]], dtype=torch.float64)
    """
    outputs = _tensor(values, what)
    if outputs.ndim != 2:
        raise ValueError(
            f"{what} has shape {tuple(outputs.shape)}; give one row of outputs for each row of the "
            "pool, (n, classes)"
        )
    if outputs.dtype not in (torch.float32, torch.float64):
        outputs = outputs.float()
    known = outputs[outputs.isfinite().all(1)]
    if kind is None:
        kind = _recognize_outputs(known, what)
    elif kind == "probabilities":
        _check_probabilities(known, what)
    if kind == "probabilities":
        return outputs.clamp_min(torch.finfo(outputs.dtype).tiny).log()
    return outputs


def check_output_kind(value: object) -> None:
    """Raise ValueError where ``outputs_are`` is neither of its values."""
    if value not in (None, *OUTPUT_KINDS):
        raise ValueError(
            f"outputs_are is {value!r}; give 'probabilities' or 'logits', or leave it out"
        )


def _recognize_outputs(rows: Tensor, what: str) -> OutputKind:
    """What finite outputs (n, c) are.  One column holds predicted numbers, which are left as they
    are."""
    if len(rows) == 0 or rows.shape[1] < 2:
        return "logits"
    is_negative = (rows < -ROUNDING).any(1)
    sums = rows.double().sum(1)
    is_simplex = ((sums - 1).abs() <= TOLERANCE) & ~is_negative
    if bool(is_simplex.all()):
        return "probabilities"
    way_out = "say which they are with outputs_are='probabilities' or outputs_are='logits'"
    n_simplex = int(is_simplex.sum())
    if bool(is_negative.any()):
        if n_simplex > len(rows) / 2:
            raise ValueError(
                f"{what}: {n_simplex} of {len(rows)} rows are probabilities and the others are not; "
                f"{way_out}"
            )
        return "logits"
    row = int((~is_simplex).nonzero()[0])
    raise ValueError(
        f"{what} are nowhere negative, as probabilities are, but row {row} sums to "
        f"{float(sums[row]):.4g}, not 1; {way_out}"
    )


def _check_probabilities(rows: Tensor, what: str) -> None:
    """Raise ValueError where finite rows (n, c) cannot be probabilities, up to a factor."""
    is_wrong = (rows < -ROUNDING).any(1) | (rows.sum(1) <= 0)
    if bool(is_wrong.any()):
        row = int(is_wrong.nonzero()[0])
        raise ValueError(
            f"{what}: row {row} has a negative value or sums to 0, so these are no probabilities; "
            "give outputs_are='logits', or leave it out"
        )


def as_array(given: Any, what: str) -> npt.NDArray[Any]:
    """One value a row: (n,) of any kind; the index of a Series means nothing."""
    if isinstance(given, Tensor):
        given = given.detach().cpu()
        if given.dtype == torch.bfloat16:  # a type that NumPy lacks
            given = given.float()
        given = given.numpy()
    if hasattr(given, "to_numpy"):
        given = given.to_numpy()
    result = np.asarray(given)
    is_list = isinstance(given, list | tuple)
    if is_list and result.dtype.kind == "U" and not all(isinstance(v, str) for v in given):
        # beside a text NumPy makes a text of everything, of NaN too
        result = np.array(given, dtype=object)
    if result.ndim == 2 and result.shape[1] == 1:
        result = result[:, 0]
    if result.ndim != 1:
        raise ValueError(f"{what} has shape {result.shape}; give one value a row")
    return result


def _tensor(given: Any, what: str) -> Tensor:
    if isinstance(given, Tensor):
        if given.is_sparse:
            given = given.to_dense()
        if given.is_complex():
            raise ValueError(f"{what} holds {given.dtype} values; give numbers")
        return cast(Tensor, given.detach().cpu())
    if hasattr(given, "to_numpy"):  # a DataFrame
        given = given.to_numpy()
    try:
        result = np.asarray(given)
    except ValueError as error:
        raise ValueError(f"{what} is no array: {error}") from error
    if result.dtype == object:
        try:
            result = result.astype(np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{what} holds values that are no numbers: {error}") from error
    if result.dtype.kind not in "biuf":
        raise ValueError(f"{what} holds {result.dtype} values; give numbers")
    if (
        result.dtype.kind == "f" and result.dtype.itemsize > 8
    ):  # longer than torch's longest
        result = result.astype(np.float64)
    is_plain = result.dtype.isnative and all(step >= 0 for step in result.strides)
    if not is_plain:  # torch has no other byte order and no steps backwards
        result = np.ascontiguousarray(result.astype(result.dtype.newbyteorder("=")))
    with warnings.catch_warnings():
        # Nothing here writes into rows, so read-only memory (pandas hands it out) needs no copy.
        warnings.filterwarnings("ignore", "The given NumPy array is not writ", UserWarning)
        return torch.as_tensor(result)


class JoinedRows:
    """Pool, labeled and validation rows one after the other, as a site holds them, without a copy.

    A site knows its rows by number and asks for a part of them; here the parts stay the arrays they
    came as.  It offers what a site uses of a tensor, and no more.
    """

    def __init__(self, *parts: Tensor) -> None:
        self.parts = parts
        self.starts = [0]
        for part in parts:
            self.starts.append(self.starts[-1] + len(part))
        self.dtype = parts[0].dtype
        self.shape = torch.Size((self.starts[-1], *parts[0].shape[1:]))

    def __len__(self) -> int:
        return self.starts[-1]

    def __getitem__(self, rows: Tensor) -> Tensor:
        """The rows of these numbers; a part as a whole is handed over as it is."""
        for part, start in zip(self.parts, self.starts, strict=False):
            if len(part) == len(rows) and _counts_from(rows, start):
                return part.detach()
        result = []
        for part, start in zip(self.parts, self.starts, strict=False):
            inside = (rows >= start) & (rows < start + len(part))
            if bool(inside.any()):
                result.append(part[rows[inside] - start])
        if not result:
            return self.parts[0][:0]
        if len(result) == 1:
            return result[0]  # without a copy
        return torch.cat(result)

    def new_zeros(self, *shape: int) -> Tensor:
        return torch.zeros(*shape, dtype=self.dtype)

    def as_tensor(self) -> Tensor:
        """Itself, under the type that a site declares."""
        return cast(Tensor, self)


def _counts_from(rows: Tensor, start: int) -> bool:
    return bool((rows == torch.arange(start, start + len(rows))).all())
