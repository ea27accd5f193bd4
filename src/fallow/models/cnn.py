"""Plain CNNs: the 4-layer network of LoGo, FairFAL and IFAL, and one for 8x8 digits."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import final

from torch import Generator, nn

from fallow.models.base import embed_by_body, image, predict_by_head
from fallow.models.init import fan_in_uniform, fill, zero_bias


@final
class CNN4(nn.Module):
    """CNN with four blocks of 3x3 convolution (64 channels), batch norm, ReLU and pooling.

    This is the network of LoGo (Kim et al., CVPR 2023), also used by FairFAL and IFAL.  It has
    115,658 parameters for (3, 32, 32) and 10 classes, with 256 features, and 112,586 for (1, 28,
    28), with 64 features.  Images must be at least 16x16.  Weights have PyTorch's default
    initialization; the bias of the head is 0.
    """

    def __init__(self, shape: Sequence[int], outputs: int) -> None:
        super().__init__()
        size = image("CNN4", shape, smallest=16)
        self.body = nn.Sequential()
        for narrow, wide in pairwise([size.channels, 64, 64, 64, 64]):
            self.body.extend(
                [
                    nn.Conv2d(narrow, wide, 3, padding=1),
                    nn.BatchNorm2d(wide),
                    nn.ReLU(),
                    nn.MaxPool2d(2),
                ]
            )
        self.body.append(nn.Flatten())
        self.head = nn.Linear(64 * (size.height // 16) * (size.width // 16), outputs)

    embed = embed_by_body
    forward = predict_by_head

    def reset(self, generator: Generator) -> None:
        """Initialize weights: PyTorch's default, identity batch norm, bias of the head 0."""
        fill(self, generator, fan_in_uniform)
        zero_bias(self.head)


@final
class DigitsCNN(nn.Module):
    """CNN with two blocks of 3x3 convolution (16 and 32 channels), ReLU and pooling.

    The network is for small images and fast runs: 6,090 parameters and 128 features for the 8x8
    digits of scikit-learn.  Images must be at least 4x4.  Weights have PyTorch's default
    initialization.
    """

    def __init__(self, shape: Sequence[int], outputs: int) -> None:
        super().__init__()
        size = image("DigitsCNN", shape, smallest=4)
        self.body = nn.Sequential(
            nn.Conv2d(size.channels, 16, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
        )
        self.head = nn.Linear(32 * (size.height // 4) * (size.width // 4), outputs)

    embed = embed_by_body
    forward = predict_by_head

    def reset(self, generator: Generator) -> None:
        """Initialize weights with PyTorch's default."""
        fill(self, generator, fan_in_uniform)
