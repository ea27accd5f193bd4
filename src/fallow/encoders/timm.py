"""Image networks of the package timm, with weights from a file or from the hub's own cache."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, final

import torch
from torch import Tensor

from fallow.core.ask import Ask
from fallow.core.contract import Contract
from fallow.core.optional import import_optional
from fallow.core.types import Answer, State
from fallow.core.view import View
from fallow.encoders.base import Shape, check_positive
from fallow.encoders.photos import (
    ABOUT_COLOURS,
    PhotoNetwork,
    check_colours,
    check_photo,
    colour_totals,
    encode_photos,
    fit_colours,
)
from fallow.encoders.weights import (
    digest_of_module,
    find_cached_file,
    load_pretrained,
)

CACHED = ("model.safetensors",)
"""What timm calls weights in the hub's cache; other formats can hold code and are not read."""


@final
@dataclass(frozen=True)
class Timm:
    """What a pretrained image network of timm sees in pictures, before its classes.

    network: its name in timm, such as "vit_small_patch16_224".  weights: a file of
    safetensors; None: what the hub's cache of this machine has, where nothing is fetched.  sha256:
    of that file, without which sites cannot know that they have the same.  size: pixels in each
    direction to which pictures are brought; grey ones count for three colours.  normalise: pictures
    are brought to the colours that the network was trained on, for which sites tell totals of
    theirs; without it they are taken in the units of the data set.

    >>> Timm("resnet18", weights="resnet18.safetensors", size=64).normalise
    True
    """

    network: str = ""
    weights: str | None = None
    sha256: str | None = None
    size: int = 224
    batch: int = 64
    normalise: bool = True
    half: bool = False

    version: ClassVar[int] = 2
    contract: ClassVar[Contract] = Contract(title="Timm", sum={"colours": ABOUT_COLOURS})

    def __post_init__(self) -> None:
        check_positive(self, "size", "batch")
        if not self.network:
            raise ValueError(
                "Timm: network is missing; name one of timm, such as "
                "timm:network=vit_small_patch16_224"
            )
        if not self.normalise:
            object.__setattr__(self, "contract", Timm.contract.without("colours"))

    def width(self, shape: Shape) -> int:
        check_photo(shape)
        return self.encode(torch.zeros((1, *shape)), {}).shape[1]

    # -- server half ------------------------------------------------------------------------

    def fit(self, ask: Ask, shape: Shape) -> State:
        """``mean``, ``deviation`` (c,): of the colours of all rows; nothing without ``normalise``."""
        if not self.normalise:
            return {}
        return fit_colours(ask)

    # -- site half --------------------------------------------------------------------------

    def colours(self, view: View) -> Answer:
        return colour_totals(view)

    def check_state(self, shape: Shape, state: State) -> None:
        """Raise Refusal for colours that follow from no pictures."""
        check_colours(self.contract.title, shape, state, self.normalise)

    def encode(self, x: Tensor, state: State) -> Tensor:
        return encode_photos(self._load(), x, state, self.size, self.batch)

    def weights_digest(self) -> str:
        """Of the weights as they were loaded, wherever they came from."""
        return digest_of_module(self._load().module)

    def _load(self) -> PhotoNetwork:
        return load_timm(self.network, self.weights, self.sha256)


@cache
def load_timm(name: str, weights: str | None, sha256: str | None) -> PhotoNetwork:
    """The network without its classes, in evaluation mode, and the colours that it was trained on.

    Raises ValueError where the package, the network or its weights are missing.
    """
    purpose = f"the encoder timm:network={name}"
    package = import_optional("timm", "timm", purpose)
    module = load_pretrained(
        partial(package.create_model, name, pretrained=False, num_classes=0),
        purpose,
        weights=weights,
        sha256=sha256,
        find_cached=partial(_find_cached, package, name, purpose),
    )
    about: Any = module.pretrained_cfg  # of the package
    return PhotoNetwork(module, tuple(about["mean"]), tuple(about["std"]))


def _find_cached(package: ModuleType, name: str, purpose: str) -> Path:
    """The weights in the hub's cache; ValueError where they are not there."""
    about = package.get_pretrained_cfg(name)
    file = find_cached_file(getattr(about, "hf_hub_id", None), CACHED)
    if file is None:
        raise ValueError(
            f"{purpose}: this machine's cache has no safetensors of it, and a study fetches nothing; "
            "fetch them before with timm.create_model(NAME, pretrained=True), or give weights=FILE"
        )
    return file
