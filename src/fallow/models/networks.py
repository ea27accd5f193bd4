"""The built-in networks of `build_model`."""

from fallow.models.cnn import CNN4, DigitsCNN
from fallow.models.dense import MLP, Linear
from fallow.models.lenet import LeNet, LeNetFEMNIST
from fallow.models.mobilenet import MobileNetV2
from fallow.models.resnet import ResNet8

__all__ = [
    "CNN4",
    "MLP",
    "DigitsCNN",
    "LeNet",
    "LeNetFEMNIST",
    "Linear",
    "MobileNetV2",
    "ResNet8",
]
