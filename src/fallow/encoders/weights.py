"""Weights of pretrained networks from files, and packages that are imported where they are used."""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

from torch import Tensor, nn
from torch.nn import functional

from fallow.encoders.base import Shape, words_of

COLOURS = 3
CHUNK = 2**20  # bytes of a file that are read at a time


def import_package(module: str, package: str, purpose: str) -> ModuleType:
    """The imported module; ValueError that says which package to install where it is missing."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ValueError(
            f"{purpose} needs the package {package}, which is not installed; install it, for "
            f"example with: pip install {package}"
        ) from error


def check_file(path: str, sha256: str | None, purpose: str) -> Path:
    """The file of weights, which must have the digest that was agreed on, if one was.

    Raises ValueError where it is not there, or is another one.
    """
    file = Path(path)
    if not file.is_file():
        raise ValueError(
            f"{purpose}: there is no file of weights {path!r}; put it there, or name another one"
        )
    if sha256 is None:
        return file
    found = digest_of_file(file)
    if found != sha256.lower():
        raise ValueError(
            f"{purpose}: {path} has the SHA-256 {found} and {sha256} was agreed on: these are other "
            "weights"
        )
    return file


def digest_of_file(file: Path) -> str:
    """The SHA-256 of a file, 64 hexadecimal digits."""
    h = hashlib.sha256()
    with file.open("rb") as content:
        while block := content.read(CHUNK):
            h.update(block)
    return h.hexdigest()


def read_weights(file: Path) -> Mapping[str, Tensor]:
    """The tensors of a file of safetensors.  No other format is read: theirs can hold code.

    Raises ValueError for any other file.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(file)
    except SafetensorError as error:
        raise ValueError(
            f"{file} is no whole file of safetensors ({error}): convert it, or copy it again"
        ) from error


def fill(network: nn.Module, file: Path, purpose: str) -> nn.Module:
    """The network with the weights of a file, in evaluation mode; a head that it lacks is left out.

    Raises ValueError where weights are missing or of another shape.
    """
    own = network.state_dict()
    given = {name: value for name, value in read_weights(file).items() if name in own}
    missing = sorted(own.keys() - given.keys())
    if missing:
        raise ValueError(
            f"{purpose}: {file} lacks {len(missing)} of {len(own)} weights, the first is "
            f"{missing[0]!r}; it is a file of another network"
        )
    try:
        network.load_state_dict(given)
    except RuntimeError as error:
        raise ValueError(f"{purpose}: {file} does not fit: {error}") from error
    return network.eval()


def as_photos(x: Tensor, size: int) -> Tensor:
    """Pictures (b, c, h, w) with three colours and ``size`` pixels in each direction, float32.

    Raises ValueError for rows that are no pictures of one or three colours.
    """
    check_photo(tuple(x.shape[1:]))
    if x.shape[1] == 1:
        x = x.expand(-1, COLOURS, -1, -1)
    if x.shape[2:] != (size, size):
        x = functional.interpolate(
            x, size=(size, size), mode="bicubic", align_corners=False, antialias=True
        )
    return x.float()


def check_photo(shape: Shape) -> None:
    """Raise ValueError for the shape of a row that is no picture of one or three colours."""
    if len(shape) != 3 or shape[0] not in (1, COLOURS):
        raise ValueError(
            f"this encoder takes pictures of one or three colours, and a row is {words_of(shape)}"
        )
