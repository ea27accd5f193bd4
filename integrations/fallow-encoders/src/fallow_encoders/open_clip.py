"""Image towers of CLIP from the package open_clip.

Weights come from a file or from the cache of the hub (Radford et al.: Learning Transferable Visual
Models From Natural Language Supervision, 2021).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, final

from torch import nn

from fallow.core.contract import Contract
from fallow.core.optional import import_optional
from fallow.core.suggestions import explain_constructor
from fallow.encoders.photos import PhotoEncoder, PhotoNetwork
from fallow_encoders.weights import find_cached_file, load_pretrained

CACHED = ("open_clip_model.safetensors", "model.safetensors")
TOWER = "visual."  # prefix of the weights of the image tower in files of whole models


@explain_constructor
@final
@dataclass(frozen=True)
class OpenCLIP(PhotoEncoder):
    """Encode images with the image tower of a CLIP model.

    No text is needed.

    Parameters
    ----------
    network : str
        Name in open_clip, such as "ViT-B-32".
    weights : str, optional
        Path of a safetensors file of the whole model or of its image tower.  None: the local cache
        of the hub; nothing is downloaded.
    sha256 : str, optional
        SHA-256 of the file, with which sites verify that they have the same one.
    tag : str, optional
        Name of the pretrained weights in the cache, such as "laion2b_s34b_b79k".
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

    References
    ----------
    Radford, Kim, Hallacy, Ramesh, Goh, Agarwal, Sastry, Askell, Mishkin, Clark, Krueger, Sutskever.
    Learning Transferable Visual Models From Natural Language Supervision. 2021.

    Examples
    --------
    >>> OpenCLIP("ViT-B-32", weights="vit-b-32.safetensors").size
    224
    """

    network: str = ""
    weights: str | None = None
    sha256: str | None = None
    tag: str | None = None

    contract: ClassVar[Contract] = Contract(
        title="Open CLIP",
        paper="Learning Transferable Visual Models From Natural Language Supervision",
        year=2021,
        authors="Radford, Alec and Kim, Jong Wook and Hallacy, Chris and Ramesh, Aditya and "
        "Goh, Gabriel and Agarwal, Sandhini and Sastry, Girish and Askell, Amanda and "
        "Mishkin, Pamela and Clark, Jack and Krueger, Gretchen and Sutskever, Ilya",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.network:
            raise ValueError(
                "Open CLIP: network is missing; set one of open_clip, such as "
                "open-clip:network=ViT-B-32"
            )

    def load(self) -> PhotoNetwork:
        return load_tower(self.network, self.weights, self.sha256, self.tag)


@cache
def load_tower(
    name: str, weights: str | None, sha256: str | None, tag: str | None
) -> PhotoNetwork:
    """Return the image tower, in evaluation mode, and the colors of its pretraining data.

    Raises ValueError if the package, the network or its weights are missing.
    """
    purpose = f"the encoder open-clip:network={name}"
    package = import_optional("open_clip", "fallow-encoders[open-clip]", purpose)
    pretrained: dict[str, Any] = {}
    if tag is not None:
        pretrained = package.get_pretrained_cfg(name, tag)
        if not pretrained:
            tags = ", ".join(package.list_pretrained_tags_by_model(name)) or "none"
            raise ValueError(
                f"{purpose}: open_clip has no weights with the tag {tag!r}; its tags of this network "
                f"are {tags}"
            )
    elif weights is None:
        raise ValueError(
            f"{purpose} has neither tag nor weights; set tag=NAME or weights=FILE"
        )
    repository = str(pretrained.get("hf_hub", "")).strip("/")
    module = load_pretrained(
        partial(_build_tower, package, name),
        purpose,
        weights=weights,
        sha256=sha256,
        find_cached=partial(_find_cached, repository, f"{purpose}:tag={tag}"),
        prefix=TOWER,
    )
    tower = {"mean": module.image_mean, "std": module.image_std} | pretrained
    return PhotoNetwork(module, tuple(tower["mean"]), tuple(tower["std"]))


def _build_tower(package: ModuleType, name: str) -> nn.Module:
    """Return the image tower with new weights; nothing is downloaded."""
    whole = package.create_model(
        name,
        pretrained=None,
        load_weights=False,
        pretrained_image=False,
        pretrained_text=False,
    )
    tower: nn.Module = whole.visual
    return tower


def _find_cached(repository: str, purpose: str) -> Path:
    """Return the weights in the cache of the hub; ValueError if missing."""
    file = find_cached_file(repository, CACHED)
    if file is None:
        raise ValueError(
            f"{purpose}: the cache of this machine does not have its "
            "safetensors file, and a study downloads nothing; download it first with "
            "open_clip.create_model(NAME, pretrained=TAG), or give weights=FILE"
        )
    return file
