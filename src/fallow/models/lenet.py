"""The two LeNets of DPFL (Kharrat, Canini & Horvath, AISTATS 2025; sizes from the public code).

They have two unpadded 5x5 convolutions, each with ReLU and 2x2 pooling, then two hidden layers.
The text of the paper counts the layers in two ways and omits the second pooling, which its 400
features require.  Weights are Kaiming-uniform with the ReLU gain, and biases 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from torch import Generator, nn

from fallow.models.base import embed_by_body, image, predict_by_head
from fallow.models.init import fill, kaiming_uniform


@final
class LeNet(nn.Module):
    """LeNet with 6 and 16 channels and hidden layers of 120 and 84.

    It has 62,006 parameters for (3, 32, 32) and 10 classes.  Images must be at least 16x16; the
    first hidden layer adapts to their size.
    """

    def __init__(self, shape: Sequence[int], outputs: int) -> None:
        super().__init__()
        self.body = _body("LeNet", shape, channels=(6, 16), hidden=(120, 84))
        self.head = nn.Linear(84, outputs)

    embed = embed_by_body
    forward = predict_by_head

    def reset(self, generator: Generator) -> None:
        """Initialize weights: Kaiming-uniform, biases 0."""
        fill(self, generator, kaiming_uniform)


@final
class LeNetFEMNIST(nn.Module):
    """LeNet with 4 and 12 channels and hidden layers of 120 and 100.

    For (1, 28, 28), it has 37,586 parameters with 10 classes and 42,838 with 62.  Images must be at
    least 16x16.
    """

    def __init__(self, shape: Sequence[int], outputs: int) -> None:
        super().__init__()
        self.body = _body("LeNetFEMNIST", shape, channels=(4, 12), hidden=(120, 100))
        self.head = nn.Linear(100, outputs)

    embed = embed_by_body
    forward = predict_by_head

    def reset(self, generator: Generator) -> None:
        """Initialize weights: Kaiming-uniform, biases 0."""
        fill(self, generator, kaiming_uniform)


def _body(
    net: str, shape: Sequence[int], channels: tuple[int, int], hidden: tuple[int, int]
) -> nn.Sequential:
    size = image(net, shape, smallest=16)
    height = _after_convolutions(size.height)
    width = _after_convolutions(size.width)
    return nn.Sequential(
        nn.Conv2d(size.channels, channels[0], 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(channels[0], channels[1], 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(channels[1] * height * width, hidden[0]),
        nn.ReLU(),
        nn.Linear(hidden[0], hidden[1]),
        nn.ReLU(),
    )


def _after_convolutions(side: int) -> int:
    return ((side - 4) // 2 - 4) // 2  # a 5x5 kernel takes 4, a pool halves
