"""Image towers of CLIP from the package open_clip, with weights from a file or from the hub's own
cache (Radford et al.: Learning Transferable Visual Models From Natural Language Supervision, 2021).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, final

import torch
from torch import Tensor, nn

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

CACHED = ("open_clip_model.safetensors", "model.safetensors")
TOWER = "visual."  # what files of whole models write before the weights of the image tower


@final
@dataclass(frozen=True)
class OpenCLIP:
    """What the image tower of a CLIP model sees in pictures: its embedding, of which no text is
    needed.

    network: its name in open_clip, such as "ViT-B-32".  weights: a file of safetensors, of the whole
    model or of its image tower; None: what the hub's cache of this machine has of ``tag``, such as
    "laion2b_s34b_b79k", where nothing is fetched.  sha256: of that file, without which sites cannot
    know that they have the same.  size: pixels in each direction to which pictures are brought; grey
    ones count for three colours.  normalise: pictures are brought to the colours that the network
    was trained on, for which sites tell totals of theirs; without it they are taken in the units of
    the data set.

    >>> OpenCLIP("ViT-B-32", weights="vit-b-32.safetensors").size
    224
    """

    network: str = ""
    weights: str | None = None
    sha256: str | None = None
    tag: str | None = None
    size: int = 224
    batch: int = 64
    normalise: bool = True
    half: bool = False

    version: ClassVar[int] = 2
    contract: ClassVar[Contract] = Contract(
        title="Open CLIP",
        paper="Learning Transferable Visual Models From Natural Language Supervision",
        year=2021,
        sum={"colours": ABOUT_COLOURS},
    )

    def __post_init__(self) -> None:
        check_positive(self, "size", "batch")
        if not self.network:
            raise ValueError(
                "Open CLIP: network is missing; name one of open_clip, such as "
                "open-clip:network=ViT-B-32"
            )
        if not self.normalise:
            object.__setattr__(self, "contract", OpenCLIP.contract.without("colours"))

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
        """Of the image tower's weights as they were loaded, wherever they came from."""
        return digest_of_module(self._load().module)

    def _load(self) -> PhotoNetwork:
        return load_tower(self.network, self.weights, self.sha256, self.tag)


@cache
def load_tower(
    name: str, weights: str | None, sha256: str | None, tag: str | None
) -> PhotoNetwork:
    """The image tower, in evaluation mode, and the colours that it was trained on.

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
    about: dict[str, Any] = {"mean": module.image_mean, "std": module.image_std}
    if tag is not None:
        about |= package.get_pretrained_cfg(name, tag)
    return PhotoNetwork(module, tuple(about["mean"]), tuple(about["std"]))


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
        about = package.get_pretrained_cfg(name, tag)
        repository = str(about.get("hf_hub", "")).strip("/")
    file = find_cached_file(repository, CACHED)
    if file is None:
        raise ValueError(
            f"{purpose}:tag={tag}: this machine's cache has no safetensors of it, and a study fetches "
            "nothing; fetch them before with open_clip.create_model(NAME, pretrained=TAG), or give "
            "weights=FILE"
        )
    return file
