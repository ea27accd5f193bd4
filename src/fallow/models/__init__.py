"""Models by their settings, and construction, validation and scores of networks."""

from fallow.models import architectures
from fallow.models.architectures import (
    CNN4,
    MLP,
    DigitsCNN,
    LeNet,
    LeNetFEMNIST,
    Linear,
    MobileNetV2,
    ResNet8,
)
from fallow.models.base import EmbeddingModel, check_model
from fallow.models.build import build_model, outline_model

__all__ = [
    "CNN4",
    "MLP",
    "DigitsCNN",
    "EmbeddingModel",
    "LeNet",
    "LeNetFEMNIST",
    "Linear",
    "MobileNetV2",
    "ResNet8",
    "build_model",
    "check_model",
    "outline_model",
]


def __dir__() -> list[str]:
    return [*architectures.__all__]
