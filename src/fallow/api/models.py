"""Built-in models, described by their settings: what `fallow.run` takes as ``model=``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from torch import nn

from fallow.core.streams import stream
from fallow.models import build_model
from fallow.settings.spec import Spec


class Architecture:
    """A model before its shape is known: settings only, no weights."""

    def build(self, shape: Sequence[int], outputs: int, seed: int = 0) -> nn.Module:
        """The network itself, with fresh weights.

        shape: of one row, such as ``(64,)`` or ``(1, 28, 28)``; outputs: classes, or 1 for a number
        to predict; seed: equal seeds give equal weights.  Raises ValueError for a shape that the
        network cannot take.

        >>> import fallow as fl
        >>> sum(w.numel() for w in fl.MLP(hidden=[32]).build((64,), 10).parameters())
        2410
        """
        spec = Spec.of(self)
        return build_model(spec.name, shape, outputs, stream(seed, "init"), **spec.fields)


@dataclass(frozen=True)
class Linear(Architecture):
    """One linear layer on the flattened row: logistic or linear regression.

    bias: whether outputs have one.  init: "zeros" (the start of a convex problem) or "default"
    (PyTorch's uniform).

    >>> import fallow as fl
    >>> fl.Linear().build((64,), 10).head
    Linear(in_features=64, out_features=10, bias=True)
    """

    bias: bool = True
    init: Literal["zeros", "default"] = "zeros"


@dataclass(frozen=True)
class MLP(Architecture):
    """Hidden layers with ReLU, one for each width in ``hidden``, on the flattened row.

    >>> import fallow as fl
    >>> fl.MLP(hidden=[64, 32])
    MLP(hidden=(64, 32))
    """

    hidden: Sequence[int] = (64,)

    def __post_init__(self) -> None:
        object.__setattr__(self, "hidden", tuple(int(width) for width in self.hidden))


@dataclass(frozen=True)
class CNN4(Architecture):
    """Four 3x3 convolutions of 64 filters with batch norm (Kim et al., 2023): images of 16 x 16
    pixels or more.

    >>> import fallow as fl
    >>> sum(w.numel() for w in fl.CNN4().build((3, 32, 32), 10).parameters())
    115658
    """


@dataclass(frozen=True)
class DigitsCNN(Architecture):
    """Two small convolutions: images of 4 x 4 pixels or more, such as scikit-learn's digits.

    >>> import fallow as fl
    >>> sum(w.numel() for w in fl.DigitsCNN().build((1, 8, 8), 10).parameters())
    6090
    """


@dataclass(frozen=True)
class LeNet(Architecture):
    """6 and 16 filters, hidden layers of 120 and 84, as in DPFL (Kharrat et al., 2025): images of
    16 x 16 pixels or more.

    >>> import fallow as fl
    >>> sum(w.numel() for w in fl.LeNet().build((3, 32, 32), 10).parameters())
    62006
    """


@dataclass(frozen=True)
class LeNetFEMNIST(Architecture):
    """4 and 12 filters, hidden layers of 120 and 100, as in DPFL's runs on FEMNIST.

    >>> import fallow as fl
    >>> sum(w.numel() for w in fl.LeNetFEMNIST().build((1, 28, 28), 62).parameters())
    42838
    """


@dataclass(frozen=True)
class MobileNetV2(Architecture):
    """MobileNetV2 (Sandler et al., 2018) for small images; head: kernel of the last convolution,
    "3x3" as AHFAL has it or the usual "1x1".

    >>> import fallow as fl
    >>> sum(
    ...     w.numel()
    ...     for w in fl.MobileNetV2(head="1x1").build((3, 32, 32), 10).parameters()
    ... )
    2236682
    """

    head: Literal["3x3", "1x1"] = "3x3"


@dataclass(frozen=True)
class ResNet8(Architecture):
    """A residual network of eight layers (He et al., 2016), for CIFAR ("cifar") or MNIST ("mnist")
    images.

    >>> import fallow as fl
    >>> sum(w.numel() for w in fl.ResNet8().build((3, 32, 32), 10).parameters())
    77946
    """

    variant: Literal["cifar", "mnist"] = "cifar"
