"""The built-in networks of `build_model`."""

from typing import TYPE_CHECKING

from fallow.core.exports import import_when_used

if TYPE_CHECKING:
    from fallow.models.cnn import CNN4 as CNN4
    from fallow.models.cnn import DigitsCNN as DigitsCNN
    from fallow.models.dense import MLP as MLP
    from fallow.models.dense import Linear as Linear
    from fallow.models.lenet import LeNet as LeNet
    from fallow.models.lenet import LeNetFEMNIST as LeNetFEMNIST
    from fallow.models.mobilenet import MobileNetV1 as MobileNetV1
    from fallow.models.mobilenet import MobileNetV2 as MobileNetV2
    from fallow.models.resnet import ResNet8 as ResNet8
    from fallow.models.resnet import ResNet18 as ResNet18
    from fallow.models.trees import Trees as Trees

MODULES = {
    "CNN4": "fallow.models.cnn",
    "DigitsCNN": "fallow.models.cnn",
    "LeNet": "fallow.models.lenet",
    "LeNetFEMNIST": "fallow.models.lenet",
    "Linear": "fallow.models.dense",
    "MLP": "fallow.models.dense",
    "MobileNetV1": "fallow.models.mobilenet",
    "MobileNetV2": "fallow.models.mobilenet",
    "ResNet18": "fallow.models.resnet",
    "ResNet8": "fallow.models.resnet",
    "Trees": "fallow.models.trees",
}
"""Class -> the module that defines it."""
__all__ = [*MODULES]

if not TYPE_CHECKING:
    __getattr__, __dir__ = import_when_used(__name__, MODULES)
