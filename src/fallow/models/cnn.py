"""Plain convolutional nets: the 4-layer one of LoGo, FairFAL and IFAL, and one for 8x8 digits."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import final

from torch import Generator, Tensor, nn

from fallow.models.base import image
from fallow.models.init import fan_in_uniform, fill, zero_bias


@final
class CNN4(nn.Module):
    """Four times 3x3 convolution (64 channels) - batch norm - ReLU - halving pool, then the head.

    The net of LoGo (Kim et al., CVPR 2023), also used by FairFAL and IFAL. Parameters: 115,658
    for (3, 32, 32) and 10 classes, with 256 features; 112,586 for (1, 28, 28) with 64 features.
    Takes any image of at least 16x16. PyTorch's default weights; the head's bias is 0.
    """

    def __init__(self, shape: Sequence[int], outputs: int) -> None:
        super().__init__()
        seen = image("CNN4", shape, smallest=16)
        self.body = nn.Sequential()
        for narrow, wide in pairwise([seen.channels, 64, 64, 64, 64]):
            self.body.extend(
                [
                    nn.Conv2d(narrow, wide, 3, padding=1),
                    nn.BatchNorm2d(wide),
                    nn.ReLU(),
                    nn.MaxPool2d(2),
                ]
            )
        self.body.append(nn.Flatten())
        self.head = nn.Linear(64 * (seen.height // 16) * (seen.width // 16), outputs)

    def embed(self, x: Tensor) -> Tensor:
        """Flattened feature maps.  x: (n, channels, height, width) -> (n, head.in_features)."""
        features: Tensor = self.body(x)
        return features

    def forward(self, x: Tensor) -> Tensor:
        """Logits.  x: (n, channels, height, width) -> (n, outputs)."""
        logits: Tensor = self.head(self.embed(x))
        return logits

    def reset(self, generator: Generator) -> None:
        """Fresh weights: PyTorch's default rule, batch norm the identity, the head's bias 0."""
        fill(self, generator, fan_in_uniform)
        zero_bias(self.head)


@final
class DigitsCNN(nn.Module):
    """Two times 3x3 convolution (16, then 32 channels) - ReLU - halving pool, then the head.

    A net for small pictures and quick runs: 6,090 parameters and 128 features for the 8x8
    digits of scikit-learn. Takes any image of at least 4x4. PyTorch's default weights.
    """

    def __init__(self, shape: Sequence[int], outputs: int) -> None:
        super().__init__()
        seen = image("DigitsCNN", shape, smallest=4)
        self.body = nn.Sequential(
            nn.Conv2d(seen.channels, 16, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
        )
        self.head = nn.Linear(32 * (seen.height // 4) * (seen.width // 4), outputs)

    def embed(self, x: Tensor) -> Tensor:
        """Flattened feature maps.  x: (n, channels, height, width) -> (n, head.in_features)."""
        features: Tensor = self.body(x)
        return features

    def forward(self, x: Tensor) -> Tensor:
        """Logits.  x: (n, channels, height, width) -> (n, outputs)."""
        logits: Tensor = self.head(self.embed(x))
        return logits

    def reset(self, generator: Generator) -> None:
        """Fresh weights: PyTorch's default rule."""
        fill(self, generator, fan_in_uniform)
