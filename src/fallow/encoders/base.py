"""Interfaces and helpers of encoders.

Features of examples are identical at all sites and fixed for a study.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from fallow.core.methods import Encoder
from fallow.core.missing import filled
from fallow.core.types import State, Values
from fallow.core.values import Kind
from fallow.core.view import View

Shape = tuple[int, ...]
"""Shape of one example before encoding."""
LOST = 1e-11  # a variance below this share of the mean square is rounding of float64
FINE = 12  # binary digits of fitted values
DIGITS = 32  # hexadecimal digits of a digest
EMPTY_CELLS = "empty_cells"
"""Key of the fitted state: imputed values of empty cells, (d,)."""


@runtime_checkable
class HasWeights(Protocol):
    """An encoder with weights that do not follow from its fields."""

    def weights_digest(self) -> str:
        """Return a digest of all weights."""
        ...


@runtime_checkable
class ShapeDependent(Protocol):
    """An encoder with fields that depend on the shape of an example."""

    def settle(self, shape: Shape) -> Encoder:
        """Return the same encoder with these fields set."""
        ...


@runtime_checkable
class StateDeclaring(Protocol):
    """An encoder that declares its fitted state."""

    def state_kinds(self, shape: Shape) -> Mapping[str, Kind]:
        """Return the kind of each part of the state, for examples of that shape."""
        ...


@runtime_checkable
class Exportable(Protocol):
    """An encoder that can be exported as a network."""

    def network(self, shape: Shape, state: State) -> nn.Module:
        """Return the network, for float32 examples (m, *shape) without empty cells."""
        ...


def encode_rows(encoder: Encoder, x: Tensor, state: State) -> Tensor:
    """Return the features of examples, (m, *shape) -> (m, D) float32, without gradients.

    state: fitted state, with `EMPTY_CELLS` if examples have empty cells.  Raises ValueError for
    features of another width than declared, and for NaN.
    """
    x = filled(x, state.get(EMPTY_CELLS))
    own = {name: value for name, value in state.items() if name != EMPTY_CELLS}
    wanted = encoder.width(tuple(x.shape[1:]))
    if not len(x):
        return torch.zeros(0, wanted)
    with torch.no_grad():
        z = encoder.encode(x, own)
    title = encoder.contract.title
    if tuple(z.shape) != (len(x), wanted):
        raise ValueError(
            f"the encoder {title} returned features of shape {tuple(z.shape)} for "
            f"{len(x)} examples, and declared {wanted} per example"
        )
    z = z.detach().float()
    if is_half(encoder):
        z = z.half().float()
    if not bool(z.sum().isfinite()):  # one pass; a sum can also overflow
        check_features(z, title)
    return z


def check_features(z: Tensor, title: str) -> None:
    """Raise ValueError if an example has NaN or infinite features, with the first one."""
    wrong = ~z.isfinite().all(1)
    if bool(wrong.any()):
        raise ValueError(
            f"the encoder {title} returned NaN or infinite features for "
            f"{int(wrong.sum())} examples, the first is row "
            f"{int(wrong.int().argmax()) + 1}; check these examples, or use another "
            "encoder"
        )


def is_half(encoder: Encoder) -> bool:
    """Return whether features are rounded to float16, which halves their size on disk."""
    return bool(getattr(encoder, "half", False))


def encoder_digest(encoder: Encoder, state: State | None = None) -> str:
    """Return 32 hexadecimal digits of everything that determines the features.

    This includes class and version, fields, weights and the fitted state.  Without ``state``, it
    covers what is known before fitting.
    """
    cls = type(encoder)
    details: dict[str, object] = {
        "class": cls.__qualname__,
        "version": getattr(cls, "version", 1),  # a custom encoder may have none
        "fields": _plain_fields(encoder),
    }
    if isinstance(encoder, HasWeights):
        details["weights"] = encoder.weights_digest()
    h = hashlib.sha256(json.dumps(details, sort_keys=True).encode())
    for name, value in sorted((state or {}).items()):
        h.update(repr((name, str(value.dtype), tuple(value.shape))).encode())
        h.update(value.detach().contiguous().numpy().tobytes())
    return h.hexdigest()[:DIGITS]


def _plain_fields(encoder: Encoder) -> dict[str, object]:
    """Return the fields of an encoder that can be serialized; others are weights."""
    if not dataclasses.is_dataclass(encoder):
        raise ValueError(
            f"{encoder!r} is not an encoder: make its class a frozen dataclass"
        )
    values: dict[str, object] = {}
    for field in dataclasses.fields(encoder):
        value = getattr(encoder, field.name)
        if value is None or isinstance(value, bool | int | float | str | list | tuple):
            values[field.name] = value
    return values


def mean_and_variance(total: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Return mean and variance of columns, from their sums; a rounding error counts as 0."""
    mean = total["columns"] / total["rows"]  # (d,)
    square = total["squares"] / total["rows"]
    variance = square - mean.square()
    return mean, torch.where(variance > LOST * square, variance, 0.0)


def round_digits(value: Tensor, digits: int = FINE) -> Tensor:
    """Round numbers to ``digits`` binary digits, in float64.

    The last digits of aggregates depend on the order of sites.  Features must not.

    >>> round_digits(torch.tensor([0.1, 3.0], dtype=torch.float64), digits=4)
    tensor([0.1016, 3.0000], dtype=torch.float64)
    """
    parts, power = torch.frexp(value.double())
    steps = 2.0**digits
    return torch.ldexp((parts * steps).round() / steps, power)


def round_to_grid(value: Tensor, digits: int = FINE) -> Tensor:
    """Round numbers to multiples of ``2 ** -digits``, in float64; see `round_digits`."""
    steps = 2.0**digits
    return (value.double() * steps).round() / steps


def describe_shape(shape: Sequence[int]) -> str:
    """Format the shape of an example.

    >>> describe_shape((1, 28, 28)), describe_shape((5,))
    ('1 x 28 x 28', '5')
    """
    return " x ".join(map(str, shape))


CHUNK = 4096  # examples per block, so that no second copy of all examples is in memory
PICTURES = 256


def all_blocks(view: View, size: int = CHUNK) -> Iterator[Tensor]:
    """Yield examples (b, d) in float64, labeled or not."""
    for block in picture_blocks(view, size):
        yield block.flatten(1)


def picture_blocks(view: View, size: int = PICTURES) -> Iterator[Tensor]:
    """Yield examples in their shape, (b, *shape) in float64, labeled or not."""
    for rows in view.blocks("all", size):
        yield rows.double()


def column_moments(view: View) -> Values:
    """Return the number of examples, and sums of each column and of its squares."""
    rows = 0
    columns = torch.zeros((), dtype=torch.float64)
    squares = torch.zeros((), dtype=torch.float64)
    for block in all_blocks(view):  # (b, d)
        rows += len(block)
        columns = columns + block.sum(0)
        squares = squares + block.square().sum(0)
    return {"rows": float(rows), "columns": columns, "squares": squares}


def empty_sum(*shape: int) -> Tensor:
    """Return zeros in float64, as start of a sum."""
    return torch.zeros(*shape, dtype=torch.float64)


def check_file(path: str, sha256: str | None, purpose: str) -> Path:
    """Return the path of a weights file with the agreed digest, if any.

    Raises ValueError if it is missing or different.
    """
    file = Path(path)
    if not file.is_file():
        raise ValueError(
            f"{purpose}: there is no weights file {path!r}; put it there, or give "
            "another one"
        )
    if sha256 is not None:
        check_digest(path, digest_of_file(file), sha256, purpose)
    return file


def check_digest(path: str, digest: str, sha256: str, purpose: str) -> None:
    """Raise ValueError if the SHA-256 differs from the agreed one."""
    if digest != sha256.lower():
        raise ValueError(
            f"{purpose}: {path} has the SHA-256 {digest} and the agreed one is {sha256}: "
            "these are other weights"
        )


def digest_of_file(file: Path) -> str:
    """Return the SHA-256 of a file, 64 hexadecimal digits."""
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def digest_of_module(network: nn.Module) -> str:
    """Return a SHA-256 of all weights by name, 64 hexadecimal digits."""
    h = hashlib.sha256()
    for name, value in sorted(network.state_dict().items()):
        h.update(repr((name, str(value.dtype), tuple(value.shape))).encode())
        h.update(value.detach().cpu().contiguous().numpy().tobytes())
    return h.hexdigest()
