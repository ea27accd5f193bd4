"""MobileNets for small images: V1 (Howard et al., 2017) and V2 (Sandler et al., CVPR 2018)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, final

from torch import Generator, Tensor, nn

from fallow.core.suggestions import require_known
from fallow.models.base import embed_by_body, image, predict_by_head
from fallow.models.init import fan_in_uniform, fill, kaiming_fan_out, zero_bias

BLOCKS = (
    # expansion, channels, repeats, stride of the first
    (1, 16, 1, 1),
    (6, 24, 2, 1),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 1),
    (6, 320, 1, 1),
)
KERNELS = {"3x3": 3, "1x1": 1}
SEPARABLE = (
    # channels, stride
    (64, 1),
    (128, 2),
    (128, 1),
    (256, 2),
    (256, 1),
    (512, 2),
    *[(512, 1)] * 5,
    (1024, 2),
    (1024, 1),
)


@final
class MobileNetV1(nn.Module):
    """MobileNet (version 1) for small images: 13 separable convolutions, 1,024 pooled features.

    3,217,226 parameters for (3, 32, 32) and 10 classes.

    Notes
    -----
    Any number of channels is supported, and images must be at least 4x4.  The first convolution
    keeps the resolution, so 32x32 becomes 2x2.  Convolutions and the head are initialized with
    PyTorch's default.
    """

    def __init__(self, shape: Sequence[int], outputs: int) -> None:
        super().__init__()
        size = image("MobileNetV1", shape, smallest=4)
        self.body = nn.Sequential(*_conv(size.channels, 32, 3, activation=nn.ReLU))
        narrow = 32
        for wide, stride in SEPARABLE:
            self.body.extend(
                _conv(narrow, narrow, 3, stride, groups=narrow, activation=nn.ReLU)
            )
            self.body.extend(_conv(narrow, wide, 1, activation=nn.ReLU))
            narrow = wide
        self.body.extend([nn.AdaptiveAvgPool2d(1), nn.Flatten()])
        self.head = nn.Linear(narrow, outputs)

    embed = embed_by_body
    forward = predict_by_head

    def reset(self, generator: Generator) -> None:
        """Initialize weights with PyTorch's default, and batch norm as the identity."""
        fill(self, generator, fan_in_uniform)


@final
class MobileNetV2(nn.Module):
    """MobileNetV2 for small images: 17 inverted residuals, 1,280 pooled features.

    Parameters
    ----------
    head : {"3x3", "1x1"}
        Kernel of the last convolution.  "3x3": 5,513,482 parameters for (3, 32, 32) and 10 classes,
        5,628,772 with 100; 5,512,906 for (1, 28, 28) and 10.  "1x1", as in the paper: 2,236,682 for
        (3, 32, 32) and 10 classes.

    Notes
    -----
    Any number of channels is supported, and images must be at least 4x4.  Convolutions are
    initialized from N(0, 2 / (k * k * channels out)), the head from N(0, 0.01 * 0.01) with bias 0.

    Only two blocks reduce the resolution, not five, so 32x32 becomes 8x8.  The 3x3 kernel before
    the pooling is that of AHFAL, and the default, because its published results use it.  There is
    no dropout.
    """

    def __init__(
        self, shape: Sequence[int], outputs: int, *, head: Literal["3x3", "1x1"] = "3x3"
    ) -> None:
        super().__init__()
        require_known(head, KERNELS, f"MobileNetV2 has no head {head!r}")
        size = image("MobileNetV2", shape, smallest=4)
        self.body = nn.Sequential(*_conv(size.channels, 32, 3))
        narrow = 32
        for times, wide, repeats, stride in BLOCKS:
            for step in (stride, *[1] * (repeats - 1)):
                self.body.append(_InvertedResidual3x3(narrow, wide, times, step))
                narrow = wide
        self.body.extend(_conv(narrow, 1280, KERNELS[head]))
        self.body.extend([nn.AdaptiveAvgPool2d(1), nn.Flatten()])
        self.head = nn.Linear(1280, outputs)

    embed = embed_by_body
    forward = predict_by_head

    def reset(self, generator: Generator) -> None:
        """Initialize weights: fan-out normal convolutions, identity batch norm, a small head."""
        fill(self.body, generator, kaiming_fan_out)
        nn.init.normal_(self.head.weight, 0, 0.01, generator=generator)
        zero_bias(self.head)


@final
class _InvertedResidual3x3(nn.Module):
    """Expand (1x1), filter each channel (3x3) and project (1x1, no ReLU).

    The input is added if it has the same shape.
    """

    def __init__(self, narrow: int, wide: int, times: int, stride: int) -> None:
        super().__init__()
        inside = times * narrow
        self.residual = nn.Sequential()
        if times > 1:
            self.residual.extend(_conv(narrow, inside, 1))
        self.residual.extend(_conv(inside, inside, 3, stride, groups=inside))
        self.residual.append(nn.Conv2d(inside, wide, 1, bias=False))
        self.residual.append(nn.BatchNorm2d(wide))
        self.adds_input = (narrow, stride) == (wide, 1)

    def forward(self, x: Tensor) -> Tensor:
        change: Tensor = self.residual(x)
        if self.adds_input:
            return x + change
        return change


def _conv(
    narrow: int,
    wide: int,
    kernel: int,
    stride: int = 1,
    groups: int = 1,
    activation: Callable[[], nn.Module] = nn.ReLU6,
) -> list[nn.Module]:
    return [
        nn.Conv2d(narrow, wide, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(wide),
        activation(),
    ]
