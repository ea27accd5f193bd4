"""Image networks of the package timm, with weights from a file or from the cache of the hub."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, final

from fallow.core.contract import Contract
from fallow.core.optional import import_optional
from fallow.core.suggestions import explain_constructor
from fallow.encoders.photos import PhotoEncoder, PhotoNetwork
from fallow_encoders.weights import find_cached_file, load_pretrained

CACHED = ("model.safetensors",)
"""File names of weights in the cache of the hub.  Other formats can contain code and are not read."""


@explain_constructor
@final
@dataclass(frozen=True)
class Timm(PhotoEncoder):
    """Encode images with a pretrained network of timm, without its classifier.

    Parameters
    ----------
    network : str
        Name in timm, such as "vit_small_patch16_224".
    weights : str, optional
        Path of a safetensors file.  None: the local cache of the hub; nothing is downloaded.
    sha256 : str, optional
        SHA-256 of the file, with which sites verify that they have the same one.
    size : int
        Pixels in each direction to which images are resized.  Grayscale images are repeated for
        three colors.
    batch : int
        Number of images at a time.
    normalize : bool
        Standardize colors to those of the pretraining data, from aggregates of the colors at the
        sites.  False: use the units of the dataset.
    half : bool
        Round features to float16.

    Examples
    --------
    >>> Timm("resnet18", weights="resnet18.safetensors", size=64).normalize
    True
    """

    network: str = ""
    weights: str | None = None
    sha256: str | None = None

    contract: ClassVar[Contract] = Contract(title="Timm")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.network:
            raise ValueError(
                "Timm: network is missing; set one of timm, such as "
                "timm:network=vit_small_patch16_224"
            )

    def load(self) -> PhotoNetwork:
        return load_timm(self.network, self.weights, self.sha256)


@cache
def load_timm(name: str, weights: str | None, sha256: str | None) -> PhotoNetwork:
    """Return the network without classifier, in evaluation mode, and its colors.

    Raises ValueError if the package, the network or its weights are missing.
    """
    purpose = f"the encoder timm:network={name}"
    package = import_optional("timm", "fallow-encoders[timm]", purpose)
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
    """Return the weights in the cache of the hub; ValueError if missing."""
    pretrained_cfg = package.get_pretrained_cfg(name)
    file = find_cached_file(getattr(pretrained_cfg, "hf_hub_id", None), CACHED)
    if file is None:
        raise ValueError(
            f"{purpose}: the cache of this machine does not have its safetensors file, "
            "and a study downloads nothing; download it first with "
            "timm.create_model(NAME, pretrained=True), or give weights=FILE"
        )
    return file
