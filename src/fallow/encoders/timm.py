"""Image networks of the package timm, with weights from a file or from its own cache."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from typing import ClassVar, final

import torch
from torch import Tensor, nn

from fallow.core.ask import Ask
from fallow.core.contract import Contract
from fallow.core.types import State
from fallow.encoders.base import Shape, check_positive
from fallow.encoders.weights import (
    as_photos,
    check_file,
    check_photo,
    fill,
    import_package,
)


@final
@dataclass(frozen=True)
class Timm:
    """What a pretrained image network of timm sees in pictures, before its classes.

    network: its name in timm, such as "vit_small_patch16_224".  weights: a file of
    safetensors; None: what timm has in its cache or fetches.  sha256: of that file, without which
    sites cannot know that they have the same.  size: pixels in each direction to which pictures are
    brought.  Pictures are taken in the units of the data set; grey ones count for three colours.
    """

    network: str = ""
    weights: str | None = None
    sha256: str | None = None
    size: int = 224
    batch: int = 64
    half: bool = False

    version: ClassVar[int] = 1
    contract: ClassVar[Contract] = Contract(title="Timm")

    def __post_init__(self) -> None:
        check_positive(self, "size", "batch")
        if not self.network:
            raise ValueError(
                "Timm: network is missing; name one of timm, such as "
                "timm:network=vit_small_patch16_224"
            )

    def width(self, shape: Shape) -> int:
        check_photo(shape)
        return self.encode(torch.zeros(1, *shape), {}).shape[1]

    def fit(self, ask: Ask, shape: Shape) -> State:
        return {}

    def encode(self, x: Tensor, state: State) -> Tensor:
        network = load_timm(self.network, self.weights, self.sha256)
        parts = []
        with torch.no_grad():
            for block in torch.split(x, self.batch):
                parts.append(network(as_photos(block, self.size)).flatten(1).float())
        return torch.cat(parts)

    def weights_digest(self) -> str:
        """Of the weights as they were loaded, wherever they came from."""
        h = hashlib.sha256()
        network = load_timm(self.network, self.weights, self.sha256)
        for name, value in sorted(network.state_dict().items()):
            h.update(repr((name, str(value.dtype), tuple(value.shape))).encode())
            h.update(value.contiguous().numpy().tobytes())
        return h.hexdigest()


@cache
def load_timm(name: str, weights: str | None, sha256: str | None) -> nn.Module:
    """The network without its classes, in evaluation mode.

    Raises ValueError where the package, the network or its weights are missing.
    """
    purpose = f"the encoder timm:network={name}"
    timm = import_package("timm", "timm", purpose)
    file = None if weights is None else check_file(weights, sha256, purpose)
    try:
        network: nn.Module = timm.create_model(name, pretrained=file is None, num_classes=0)
    except (
        Exception
    ) as error:  # of a package with errors of its own, and of a network connection
        raise ValueError(
            f"{purpose} cannot be made: {error}; check its name, and where its weights are not in "
            "timm's cache give weights=FILE"
        ) from error
    return network.eval() if file is None else fill(network, file, purpose)
