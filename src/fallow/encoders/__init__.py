"""Encoders: features of examples, identical at all sites and fixed for a study."""

from fallow.encoders.auto import Auto
from fallow.encoders.convolution import Convolution
from fallow.encoders.efficientnet_lite import EfficientNetLite0
from fallow.encoders.fourier import Fourier
from fallow.encoders.hashed_text import HashedText
from fallow.encoders.identity import Identity

__all__ = [
    "Auto",
    "Convolution",
    "EfficientNetLite0",
    "Fourier",
    "HashedText",
    "Identity",
]


def __dir__() -> list[str]:
    return sorted({*__all__} - {"Auto"})
