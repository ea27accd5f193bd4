"""Built-in models, for the argument ``model`` of `fallow.run`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Literal

from torch import nn

from fallow.core.names import spell_class
from fallow.core.streams import stream
from fallow.core.suggestions import explain_constructor
from fallow.models.build import build_model

__all__ = [
    "CNN4",
    "MLP",
    "DigitsCNN",
    "LeNet",
    "LeNetFEMNIST",
    "Linear",
    "MobileNetV1",
    "MobileNetV2",
    "ResNet8",
    "ResNet18",
    "Trees",
]


@dataclass(frozen=True)
class Architecture:
    """Model description without input shape and weights."""

    def build(self, shape: Sequence[int], outputs: int, seed: int = 0) -> nn.Module:
        """Build the network with newly initialized weights.

        Parameters
        ----------
        shape : sequence of int
            Shape of one example, such as ``(64,)`` or ``(1, 28, 28)``.
        outputs : int
            Number of classes, or 1 for regression.
        seed : int, default=0
            Seed of the initialization.

        Returns
        -------
        torch.nn.Module

        Raises
        ------
        ValueError
            If the network does not support the shape.

        Examples
        --------
        >>> import fallow as fl
        >>> sum(w.numel() for w in fl.MLP(hidden=[32]).build((64,), 10).parameters())
        2410
        """
        settings = {field.name: getattr(self, field.name) for field in fields(self)}
        name = spell_class(type(self))
        return build_model(name, shape, outputs, stream(seed, "init"), **settings)


@explain_constructor
@dataclass(frozen=True)
class Linear(Architecture):
    """Logistic or linear regression: one linear layer on the flattened example.

    Parameters
    ----------
    bias : bool, default=True
        Whether the layer has a bias.
    init : {"zeros", "default"}, default="zeros"
        Initialization: zeros, or the uniform default of PyTorch.

    Examples
    --------
    >>> import fallow as fl
    >>> fl.Linear().build((64,), 10).head
    Linear(in_features=64, out_features=10, bias=True)
    """

    bias: bool = True
    init: Literal["zeros", "default"] = "zeros"


@explain_constructor
@dataclass(frozen=True)
class MLP(Architecture):
    """Multilayer perceptron with ReLU activations on the flattened example.

    Parameters
    ----------
    hidden : sequence of int, default=(64,)
        Width of each hidden layer.

    Examples
    --------
    >>> import fallow as fl
    >>> fl.MLP(hidden=[64, 32])
    MLP(hidden=(64, 32))
    """

    hidden: Sequence[int] = (64,)

    def __post_init__(self) -> None:
        object.__setattr__(self, "hidden", tuple(int(width) for width in self.hidden))


@explain_constructor
@dataclass(frozen=True)
class CNN4(Architecture):
    """Convolutional network of four 3x3 layers with 64 filters and batch norm.

    Images must have at least 16 x 16 pixels.

    References
    ----------
    Kim et al., 2023.

    Examples
    --------
    >>> import fallow as fl
    >>> sum(w.numel() for w in fl.CNN4().build((3, 32, 32), 10).parameters())
    115658
    """


@explain_constructor
@dataclass(frozen=True)
class DigitsCNN(Architecture):
    """Convolutional network of two small layers, for images such as scikit-learn's digits.

    Images must have at least 4 x 4 pixels.

    Examples
    --------
    >>> import fallow as fl
    >>> sum(w.numel() for w in fl.DigitsCNN().build((1, 8, 8), 10).parameters())
    6090
    """


@explain_constructor
@dataclass(frozen=True)
class LeNet(Architecture):
    """LeNet with 6 and 16 filters and hidden layers of 120 and 84 units, as in DPFL.

    Images must have at least 16 x 16 pixels.

    References
    ----------
    Kharrat et al., 2025.

    Examples
    --------
    >>> import fallow as fl
    >>> sum(w.numel() for w in fl.LeNet().build((3, 32, 32), 10).parameters())
    62006
    """


@explain_constructor
@dataclass(frozen=True)
class LeNetFEMNIST(Architecture):
    """LeNet with 4 and 12 filters and hidden layers of 120 and 100 units, for FEMNIST.

    The configuration is that of DPFL (Kharrat et al., 2025).

    Examples
    --------
    >>> import fallow as fl
    >>> sum(w.numel() for w in fl.LeNetFEMNIST().build((1, 28, 28), 62).parameters())
    42838
    """


@explain_constructor
@dataclass(frozen=True)
class MobileNetV1(Architecture):
    """MobileNet (Howard et al., 2017) for small images.

    Examples
    --------
    >>> import fallow as fl
    >>> sum(w.numel() for w in fl.MobileNetV1().build((3, 32, 32), 10).parameters())
    3217226
    """


@explain_constructor
@dataclass(frozen=True)
class MobileNetV2(Architecture):
    """MobileNetV2 (Sandler et al., 2018) for small images.

    Parameters
    ----------
    head : {"3x3", "1x1"}, default="3x3"
        Kernel of the last convolution: "3x3" as in AHFAL, or the standard "1x1".

    Examples
    --------
    >>> import fallow as fl
    >>> sum(
    ...     w.numel()
    ...     for w in fl.MobileNetV2(head="1x1").build((3, 32, 32), 10).parameters()
    ... )
    2236682
    """

    head: Literal["3x3", "1x1"] = "3x3"


@explain_constructor
@dataclass(frozen=True)
class ResNet8(Architecture):
    """Residual network of eight layers (He et al., 2016).

    Parameters
    ----------
    variant : {"cifar", "mnist"}, default="cifar"
        Variant for CIFAR or for MNIST images.

    Examples
    --------
    >>> import fallow as fl
    >>> sum(w.numel() for w in fl.ResNet8().build((3, 32, 32), 10).parameters())
    77946
    """

    variant: Literal["cifar", "mnist"] = "cifar"


@explain_constructor
@dataclass(frozen=True)
class ResNet18(Architecture):
    """Residual network of 18 layers (He et al., 2016) for small images.

    Examples
    --------
    >>> import fallow as fl
    >>> sum(w.numel() for w in fl.ResNet18().build((3, 32, 32), 10).parameters())
    11173962
    """


@explain_constructor
@dataclass(frozen=True)
class Trees(Architecture):
    """Boosted decision trees on the flattened example, for training by `BoostedTrees`.

    Training determines the fields.

    Parameters
    ----------
    stages : int, default=100
        Number of trees that are added up, for each class if there are more than two.
    depth : int, default=3
        Number of decisions from the root of a tree to a leaf.

    Examples
    --------
    >>> import fallow as fl
    >>> fl.Trees(stages=20).build((13,), 2).leaf.shape
    torch.Size([20, 1, 8])
    """

    stages: int = 100
    depth: int = 3
