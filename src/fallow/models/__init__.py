"""Models: ordinary modules with ``embed(x)`` and a linear ``head``, and mathematics on logits."""

from fallow.models.base import Model
from fallow.models.build import build_model, outline_model
from fallow.models.check import check_model
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
    "Model",
    "ResNet8",
    "build_model",
    "check_model",
    "outline_model",
]
