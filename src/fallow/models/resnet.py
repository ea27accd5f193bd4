"""ResNet-8 of KAFAL (Cao et al., ICCV 2023) and AHFAL, and ResNet-18 (He et al., 2016)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, final

from torch import Generator, Tensor, nn
from torch.nn import functional

from fallow.core.suggestions import require_known
from fallow.models.base import embed_by_body, image, predict_by_head
from fallow.models.init import fan_in_uniform, fill, kaiming_fan_out


@final
class ResNet8(nn.Module):
    """ResNet with three residual blocks of 16, 32 and 64 channels and 64 pooled features.

    Parameters
    ----------
    variant : {"cifar", "mnist"}
        "cifar": convolution first, ReLU after the sum; 77,946 parameters for (3, 32, 32) and 10
        classes, 83,796 with 100, and 77,658 with one channel.  "mnist": batch norm and ReLU first,
        nothing after the sum; 77,562 for (1, 28, 28).

    Notes
    -----
    Any number of channels is supported, and images must be at least 4x4.  Convolutions are
    initialized from N(0, 2 / (k * k * channels out)), the head with PyTorch's default.

    The trunk is pre-activation in both variants: no batch norm or ReLU after the stem, and both
    before the pooling.  Shortcuts that change the size are 1x1 convolutions without batch norm.
    In "mnist" they take the activated input; an identity shortcut passes its input unchanged.
    """

    def __init__(
        self,
        shape: Sequence[int],
        outputs: int,
        *,
        variant: Literal["cifar", "mnist"] = "cifar",
    ) -> None:
        super().__init__()
        blocks: dict[str, type[_PostActivation] | type[_PreActivation]] = {
            "cifar": _PostActivation,
            "mnist": _PreActivation,
        }
        require_known(variant, blocks, f"ResNet8 has no variant {variant!r}")
        block = blocks[variant]
        size = image("ResNet8", shape, smallest=4)
        self.body = nn.Sequential(
            _conv3x3(size.channels, 16),
            block(16, 16, stride=1),
            block(16, 32, stride=2),
            block(32, 64, stride=2),
            nn.BatchNorm2d(64),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
        )
        self.head = nn.Linear(64, outputs)

    embed = embed_by_body
    forward = predict_by_head

    def reset(self, generator: Generator) -> None:
        """Initialize weights: fan-out normal convolutions, identity batch norm, default head."""
        fill(self.body, generator, kaiming_fan_out)
        fill(self.head, generator, fan_in_uniform)


@final
class ResNet18(nn.Module):
    """ResNet-18 for small images: four pairs of residual blocks, 512 pooled features.

    11,173,962 parameters for (3, 32, 32) and 10 classes.

    Notes
    -----
    Any number of channels is supported, and images must be at least 8x8.  The stem is a 3x3
    convolution that keeps the resolution, without pooling, so 32x32 becomes 4x4.  Convolutions are
    initialized from N(0, 2 / (k * k * channels out)), the head with PyTorch's default.  The last
    batch norm of a block begins at weight 0, so each block begins as its shortcut.
    """

    def __init__(self, shape: Sequence[int], outputs: int) -> None:
        super().__init__()
        size = image("ResNet18", shape, smallest=8)
        self.body = nn.Sequential(
            _conv3x3(size.channels, 64), nn.BatchNorm2d(64), nn.ReLU()
        )
        narrow = 64
        for wide, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
            self.body.append(_PostActivation(narrow, wide, stride, is_normed=True))
            self.body.append(_PostActivation(wide, wide, 1, is_normed=True))
            narrow = wide
        self.body.extend([nn.AdaptiveAvgPool2d(1), nn.Flatten()])
        self.head = nn.Linear(narrow, outputs)

    embed = embed_by_body
    forward = predict_by_head

    def reset(self, generator: Generator) -> None:
        """Initialize weights: fan-out normal convolutions, blocks as shortcuts, default head."""
        fill(self.body, generator, kaiming_fan_out)
        for block in self.body:
            if isinstance(block, _PostActivation):
                nn.init.zeros_(block.residual[-1].get_parameter("weight"))
        fill(self.head, generator, fan_in_uniform)


@final
class _PostActivation(nn.Module):
    """Residual block relu(norm(conv(relu(norm(conv(x))))) + shortcut(x)).

    is_normed: whether a shortcut that changes the size has batch norm.
    """

    def __init__(
        self, narrow: int, wide: int, stride: int, is_normed: bool = False
    ) -> None:
        super().__init__()
        self.residual = nn.Sequential(
            _conv3x3(narrow, wide, stride),
            nn.BatchNorm2d(wide),
            nn.ReLU(),
            _conv3x3(wide, wide),
            nn.BatchNorm2d(wide),
        )
        self.shortcut = _shortcut(narrow, wide, stride)
        if is_normed and isinstance(self.shortcut, nn.Conv2d):
            self.shortcut = nn.Sequential(self.shortcut, nn.BatchNorm2d(wide))

    def forward(self, x: Tensor) -> Tensor:
        total: Tensor = self.residual(x) + self.shortcut(x)
        return functional.relu(total)


@final
class _PreActivation(nn.Module):
    """Residual block conv(relu(norm(conv(a)))) + shortcut(a or x), with a = relu(norm(x))."""

    def __init__(self, narrow: int, wide: int, stride: int) -> None:
        super().__init__()
        self.activation = nn.Sequential(nn.BatchNorm2d(narrow), nn.ReLU())
        self.residual = nn.Sequential(
            _conv3x3(narrow, wide, stride),
            nn.BatchNorm2d(wide),
            nn.ReLU(),
            _conv3x3(wide, wide),
        )
        self.shortcut = _shortcut(narrow, wide, stride)
        self.passes_input = (narrow, stride) == (wide, 1)

    def forward(self, x: Tensor) -> Tensor:
        active = self.activation(x)
        kept = active
        if self.passes_input:
            kept = x
        total: Tensor = self.residual(active) + self.shortcut(kept)
        return total


def _conv3x3(narrow: int, wide: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(narrow, wide, 3, stride=stride, padding=1, bias=False)


def _shortcut(narrow: int, wide: int, stride: int) -> nn.Module:
    if (narrow, stride) == (wide, 1):
        return nn.Identity()
    return nn.Conv2d(narrow, wide, 1, stride=stride, bias=False)
