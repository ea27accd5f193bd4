"""Models by their settings, and construction, validation and scores of networks."""

from typing import TYPE_CHECKING

from fallow.core.exports import import_when_used

if TYPE_CHECKING:
    from fallow.models.architectures import CNN4 as CNN4
    from fallow.models.architectures import MLP as MLP
    from fallow.models.architectures import DigitsCNN as DigitsCNN
    from fallow.models.architectures import LeNet as LeNet
    from fallow.models.architectures import LeNetFEMNIST as LeNetFEMNIST
    from fallow.models.architectures import Linear as Linear
    from fallow.models.architectures import MobileNetV1 as MobileNetV1
    from fallow.models.architectures import MobileNetV2 as MobileNetV2
    from fallow.models.architectures import ResNet8 as ResNet8
    from fallow.models.architectures import ResNet18 as ResNet18
    from fallow.models.architectures import Trees as Trees
    from fallow.models.base import EmbeddingModel as EmbeddingModel
    from fallow.models.base import check_model as check_model
    from fallow.models.build import build_model as build_model
    from fallow.models.build import outline_model as outline_model

MODULES = {
    "CNN4": "fallow.models.architectures",
    "DigitsCNN": "fallow.models.architectures",
    "EmbeddingModel": "fallow.models.base",
    "LeNet": "fallow.models.architectures",
    "LeNetFEMNIST": "fallow.models.architectures",
    "Linear": "fallow.models.architectures",
    "MLP": "fallow.models.architectures",
    "MobileNetV1": "fallow.models.architectures",
    "MobileNetV2": "fallow.models.architectures",
    "ResNet18": "fallow.models.architectures",
    "ResNet8": "fallow.models.architectures",
    "Trees": "fallow.models.architectures",
    "build_model": "fallow.models.build",
    "check_model": "fallow.models.base",
    "outline_model": "fallow.models.build",
}
"""Class -> the module that defines it."""
__all__ = [*MODULES]

if not TYPE_CHECKING:
    __getattr__, __dir__ = import_when_used(
        __name__,
        MODULES,
        hidden=["EmbeddingModel", "check_model", "build_model", "outline_model"],
    )
