"""Image networks of the package timm, with weights from a file or from the hub's own cache."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, final

from fallow.core.contract import Contract
from fallow.core.optional import import_optional
from fallow.core.terms import explain_constructor
from fallow.encoders.photos import ABOUT_COLORS, PhotoEncoder, PhotoNetwork
from fallow.encoders.weights import (
    find_cached_file,
    load_pretrained,
)

CACHED = ("model.safetensors",)
"""What timm calls weights in the hub's cache; other formats can hold code and are not read."""


@explain_constructor
@final
@dataclass(frozen=True)
class Timm(PhotoEncoder):
    """What a pretrained image network of timm sees in pictures, before its classes.

    network: its name in timm, such as "vit_small_patch16_224".  weights: a file of
    safetensors; None: what the hub's cache of this machine has, where nothing is fetched.  sha256:
    of that file, without which sites cannot know that they have the same.  size: pixels in each
    direction to which pictures are brought; gray ones count for three colors.  normalize: pictures
    are brought to the colors that the network was trained on, for which sites tell totals of
    theirs; without it they are taken in the units of the data set.

    >>> Timm("resnet18", weights="resnet18.safetensors", size=64).normalize
    True
    """

    network: str = ""
    weights: str | None = None
    sha256: str | None = None

    contract: ClassVar[Contract] = Contract(title="Timm", sum={"colors": ABOUT_COLORS})

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.network:
            raise ValueError(
                "Timm: network is missing; name one of timm, such as "
                "timm:network=vit_small_patch16_224"
            )

    def load(self) -> PhotoNetwork:
        return load_timm(self.network, self.weights, self.sha256)


@cache
def load_timm(name: str, weights: str | None, sha256: str | None) -> PhotoNetwork:
    """The network without its classes, in evaluation mode, and the colors that it was trained on.

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
    details: Any = module.pretrained_cfg  # of the package
    return PhotoNetwork(module, tuple(details["mean"]), tuple(details["std"]))


def _find_cached(package: ModuleType, name: str, purpose: str) -> Path:
    """The weights in the hub's cache; ValueError where they are not there."""
    pretrained_cfg = package.get_pretrained_cfg(name)
    file = find_cached_file(getattr(pretrained_cfg, "hf_hub_id", None), CACHED)
    if file is None:
        raise ValueError(
            f"{purpose}: this machine's cache has no safetensors of it, and a study fetches nothing; "
            "fetch them before with timm.create_model(NAME, pretrained=True), or give weights=FILE"
        )
    return file
