"""The two LeNets of DPFL (Kharrat, Canini & Horvath, AISTATS 2025; sizes from the public code).

Two unpadded 5x5 convolutions, each with ReLU and a halving pool, then two hidden layers. The
paper's text counts the layers in two ways and leaves out the second pool; its 400 features
need it. Weights are Kaiming-uniform with the ReLU gain, biases 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from torch import Generator, Tensor, nn

from fallow.models.base import image
from fallow.models.init import fill, kaiming_uniform


@final
class LeNet(nn.Module):
    """Channels 6 and 16, hidden layers 120 and 84: 62,006 parameters for (3, 32, 32) and 10
    classes. Takes any image of at least 16x16; the first hidden layer fits itself to it.
    """

    def __init__(self, shape: Sequence[int], outputs: int) -> None:
        super().__init__()
        self.body = _body("LeNet", shape, channels=(6, 16), hidden=(120, 84))
        self.head = nn.Linear(84, outputs)

    def embed(self, x: Tensor) -> Tensor:
        """The last hidden layer.  x: (n, channels, height, width) -> (n, 84)."""
        features: Tensor = self.body(x)
        return features

    def forward(self, x: Tensor) -> Tensor:
        """Logits.  x: (n, channels, height, width) -> (n, outputs)."""
        logits: Tensor = self.head(self.embed(x))
        return logits

    def reset(self, generator: Generator) -> None:
        """Fresh weights: Kaiming-uniform, biases 0."""
        fill(self, generator, kaiming_uniform)


@final
class LeNetFEMNIST(nn.Module):
    """Channels 4 and 12, hidden layers 120 and 100: for (1, 28, 28), 37,586 parameters with 10
    classes and 42,838 with 62. Takes any image of at least 16x16.
    """

    def __init__(self, shape: Sequence[int], outputs: int) -> None:
        super().__init__()
        self.body = _body("LeNetFEMNIST", shape, channels=(4, 12), hidden=(120, 100))
        self.head = nn.Linear(100, outputs)

    def embed(self, x: Tensor) -> Tensor:
        """The last hidden layer.  x: (n, channels, height, width) -> (n, 100)."""
        features: Tensor = self.body(x)
        return features

    def forward(self, x: Tensor) -> Tensor:
        """Logits.  x: (n, channels, height, width) -> (n, outputs)."""
        logits: Tensor = self.head(self.embed(x))
        return logits

    def reset(self, generator: Generator) -> None:
        """Fresh weights: Kaiming-uniform, biases 0."""
        fill(self, generator, kaiming_uniform)


def _body(
    net: str, shape: Sequence[int], channels: tuple[int, int], hidden: tuple[int, int]
) -> nn.Sequential:
    seen = image(net, shape, smallest=16)
    height = _after_convolutions(seen.height)
    width = _after_convolutions(seen.width)
    return nn.Sequential(
        nn.Conv2d(seen.channels, channels[0], 5),
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
