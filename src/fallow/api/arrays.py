"""Conversion of arrays to tensors, without a copy where possible."""

from __future__ import annotations

import warnings
from typing import Any, Literal, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fallow.core.refusal import explain_errors
from fallow.data.predictions import find_tolerance

OutputKind = Literal["probabilities", "logits"]
OUTPUT_KINDS: tuple[OutputKind, ...] = ("probabilities", "logits")
ROUNDING = 1e-4
"""Tolerance of negative probabilities, for rounding errors."""


def as_rows(value: Any, what: str, dtype: torch.dtype | None = None) -> Tensor:
    """Convert examples to a tensor that shares their memory if the type allows it.

    Parameters
    ----------
    value : tensor, array, DataFrame or nested lists of shape (n, ...)
        Numeric examples.
    what : str
        Name of the argument, for error messages.
    dtype : torch.dtype, optional
        Type of the result.  Default: float32 and float64 are kept, integers become float32.

    Raises
    ------
    ValueError
        If the input is text, a single example, or has a value that is not finite.

    >>> x = np.ones((3, 2), dtype=np.float32)
    >>> as_rows(x, "pool").data_ptr() == x.ctypes.data
    True
    """
    rows = _tensor(value, what)
    if rows.ndim < 2:
        hint = ""
        if rows.ndim == 1:
            hint = "; with one feature, write [[1.0], [2.0]]"
        raise ValueError(
            f"{what} has shape {tuple(rows.shape)}; give rows of shape (n, features){hint}"
        )
    if dtype is None and rows.dtype in (torch.float32, torch.float64):
        dtype = rows.dtype
    rows = rows.to(dtype or torch.float32)
    bad = ~rows.isfinite().flatten(1).all(1)
    if bool(bad.any()):
        raise ValueError(
            f"{what}: {int(bad.sum())} of {len(rows)} rows have a feature that is NaN or "
            f"infinite (the first is row {int(bad.nonzero()[0])}); impute or omit them"
        )
    return rows


def as_outputs(values: Any, what: str, kind: OutputKind | None = None) -> Tensor:
    """Convert model outputs to logits of shape (n, n_classes).

    Probabilities are replaced by their logarithms.  A row may be NaN if its output is unknown.
    It is then selected last.

    Parameters
    ----------
    values : array-like of shape (n, n_classes)
        Model outputs.
    what : str
        Name of the argument, for error messages.
    kind : {"probabilities", "logits"}, optional
        Kind of ``values``.  Default: rows that are non-negative and sum to 1 within 2 % (or
        0.5 % for each class) are probabilities, and rows with negative values are logits.

    Raises
    ------
    ValueError
        If the outputs are neither probabilities nor logits.

    >>> as_outputs([[0.25, 0.75]], "outputs").softmax(1)
    tensor([[0.2500, 0.7500]], dtype=torch.float64)
    """
    if kind not in (None, *OUTPUT_KINDS):
        raise ValueError(
            f"outputs_are is {kind!r}; give 'probabilities' or 'logits', or leave it out"
        )
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


def _recognize_outputs(rows: Tensor, what: str) -> OutputKind:
    """Return the kind of finite outputs (n, c).  A single column is a regression output."""
    if len(rows) == 0 or rows.shape[1] < 2:
        return "logits"
    is_negative = (rows < -ROUNDING).any(1)
    sums = rows.double().sum(1)
    tolerance = find_tolerance(rows.shape[1]) + ROUNDING
    is_simplex = ((sums - 1).abs() <= tolerance) & ~is_negative
    if bool(is_simplex.all()):
        return "probabilities"
    way_out = "set outputs_are='probabilities' or outputs_are='logits'"
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
        f"{what} are non-negative like probabilities, but row {row} sums to "
        f"{float(sums[row]):.4g}, not 1; {way_out}"
    )


def _check_probabilities(rows: Tensor, what: str) -> None:
    """Raise ValueError if finite rows (n, c) cannot be probabilities, up to a factor."""
    is_wrong = (rows < -ROUNDING).any(1) | (rows.sum(1) <= 0)
    if bool(is_wrong.any()):
        row = int(is_wrong.nonzero()[0])
        raise ValueError(
            f"{what}: row {row} has a negative value or sums to 0, so these are not "
            "probabilities; give outputs_are='logits', or omit it"
        )


def as_array(value: Any, what: str) -> npt.NDArray[Any]:
    """Convert one value per row to an array of shape (n,), ignoring the index of a Series.

    Masked values become None.
    """
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        plain = np.asarray(value).astype(object)
        plain[np.ma.getmaskarray(value)] = None
        value = plain
    if isinstance(value, Tensor):
        value = value.detach().cpu()
        if value.dtype == torch.bfloat16:  # NumPy lacks this type
            value = value.float()
        value = value.numpy()
    if hasattr(value, "to_numpy"):
        value = value.to_numpy()
    result = np.asarray(value)
    is_list = isinstance(value, list | tuple)
    if is_list and result.dtype.kind == "U" and not all(isinstance(v, str) for v in value):
        # NumPy converts all values to strings if one is a string, NaN included
        result = np.array(value, dtype=object)
    if result.ndim == 2 and result.shape[1] == 1:
        result = result[:, 0]
    if result.ndim != 1:
        raise ValueError(f"{what} has shape {result.shape}; give one value per row")
    return result


def _tensor(value: Any, what: str) -> Tensor:
    if isinstance(value, Tensor):
        if value.is_sparse:
            value = value.to_dense()
        if value.is_complex():
            raise ValueError(f"{what} contains {value.dtype} values; give numbers")
        return cast(Tensor, value.detach().cpu())
    if hasattr(value, "to_numpy"):  # a DataFrame
        value = value.to_numpy()
    with explain_errors(f"{what} is not an array: "):
        result = np.asarray(value)
    if result.dtype == object:
        with explain_errors(
            f"{what} contains values that are not numbers: ", of=(TypeError, ValueError)
        ):
            result = result.astype(np.float64)
    if result.dtype.kind not in "biuf":
        raise ValueError(f"{what} contains {result.dtype} values; give numbers")
    if result.dtype.kind == "f" and result.dtype.itemsize > 8:  # torch has no longer type
        result = result.astype(np.float64)
    is_plain = result.dtype.isnative and all(step >= 0 for step in result.strides)
    if not is_plain:  # torch supports neither other byte orders nor negative strides
        result = np.ascontiguousarray(result.astype(result.dtype.newbyteorder("=")))
    with warnings.catch_warnings():
        # Examples are never written to, so read-only memory from pandas needs no copy.
        warnings.filterwarnings("ignore", "The given NumPy array is not writ", UserWarning)
        return torch.as_tensor(result)


class JoinedRows:
    """Unlabeled, labeled and validation examples of a site, concatenated without a copy.

    A site addresses its examples by index.  This class maps an index to the array that holds the
    example, and implements only those tensor methods that a site uses.
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
        """Return the examples at these indices; a complete part is returned without a copy."""
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
        """Return self with the type that a site declares."""
        return cast(Tensor, self)


def _counts_from(rows: Tensor, start: int) -> bool:
    return bool((rows == torch.arange(start, start + len(rows))).all())
