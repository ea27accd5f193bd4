"""Image towers of CLIP from the package open_clip, with weights from a file or from the hub's own
cache (Radford et al.: Learning Transferable Visual Models From Natural Language Supervision, 2021).
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
from fallow.core.terms import explain_constructor
from fallow.encoders.photos import ABOUT_COLORS, PhotoEncoder, PhotoNetwork
from fallow.encoders.weights import (
    find_cached_file,
    load_pretrained,
)

CACHED = ("open_clip_model.safetensors", "model.safetensors")
TOWER = "visual."  # what files of whole models write before the weights of the image tower


@explain_constructor
@final
@dataclass(frozen=True)
class OpenCLIP(PhotoEncoder):
    """What the image tower of a CLIP model sees in pictures: its embedding, of which no text is
    needed.

    network: its name in open_clip, such as "ViT-B-32".  weights: a file of safetensors, of the whole
    model or of its image tower; None: what the hub's cache of this machine has of ``tag``, such as
    "laion2b_s34b_b79k", where nothing is fetched.  sha256: of that file, without which sites cannot
    know that they have the same.  size: pixels in each direction to which pictures are brought; gray
    ones count for three colors.  normalize: pictures are brought to the colors that the network
    was trained on, for which sites tell totals of theirs; without it they are taken in the units of
    the data set.

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
        authors="Radford, Alec and others",
        sum={"colors": ABOUT_COLORS},
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.network:
            raise ValueError(
                "Open CLIP: network is missing; name one of open_clip, such as "
                "open-clip:network=ViT-B-32"
            )

    def load(self) -> PhotoNetwork:
        return load_tower(self.network, self.weights, self.sha256, self.tag)


@cache
def load_tower(
    name: str, weights: str | None, sha256: str | None, tag: str | None
) -> PhotoNetwork:
    """The image tower, in evaluation mode, and the colors that it was trained on.

    Raises ValueError where the package, the network or its weights are missing.
    """
    purpose = f"the encoder open-clip:network={name}"
    package = import_optional("open_clip", "open_clip_torch", purpose)
    module = load_pretrained(
        partial(_build_tower, package, name),
        purpose,
        weights=weights,
        sha256=sha256,
        find_cached=partial(_find_cached, package, name, tag, purpose),
        prefix=TOWER,
    )
    tower: dict[str, Any] = {"mean": module.image_mean, "std": module.image_std}
    if tag is not None:
        tower |= package.get_pretrained_cfg(name, tag)
    return PhotoNetwork(module, tuple(tower["mean"]), tuple(tower["std"]))


def _build_tower(package: ModuleType, name: str) -> nn.Module:
    """The image tower with fresh weights; nothing is fetched."""
    whole = package.create_model(
        name,
        pretrained=None,
        load_weights=False,
        pretrained_image=False,
        pretrained_text=False,
    )
    tower: nn.Module = whole.visual
    return tower


def _find_cached(package: ModuleType, name: str, tag: str | None, purpose: str) -> Path:
    """The weights in the hub's cache; ValueError where they are not there."""
    repository = ""
    if tag is not None:
        pretrained_cfg = package.get_pretrained_cfg(name, tag)
        repository = str(pretrained_cfg.get("hf_hub", "")).strip("/")
    file = find_cached_file(repository, CACHED)
    if file is None:
        raise ValueError(
            f"{purpose}:tag={tag}: this machine's cache has no safetensors of it, and a study fetches "
            "nothing; fetch them before with open_clip.create_model(NAME, pretrained=TAG), or give "
            "weights=FILE"
        )
    return file
