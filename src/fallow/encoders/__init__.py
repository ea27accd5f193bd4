"""Encoders: features of examples, identical at all sites and fixed for a study."""

from typing import TYPE_CHECKING

from fallow.core.exports import import_when_used

if TYPE_CHECKING:
    from fallow.encoders.auto import Auto as Auto
    from fallow.encoders.convolution import Convolution as Convolution
    from fallow.encoders.efficientnet_lite import EfficientNetLite0 as EfficientNetLite0
    from fallow.encoders.fourier import Fourier as Fourier
    from fallow.encoders.hashed_text import HashedText as HashedText
    from fallow.encoders.identity import Identity as Identity
    from fallow.encoders.tabular import Tabular as Tabular

MODULES = {
    "Auto": "fallow.encoders.auto",
    "Convolution": "fallow.encoders.convolution",
    "EfficientNetLite0": "fallow.encoders.efficientnet_lite",
    "Fourier": "fallow.encoders.fourier",
    "HashedText": "fallow.encoders.hashed_text",
    "Identity": "fallow.encoders.identity",
    "Tabular": "fallow.encoders.tabular",
}
"""Class -> the module that defines it."""
__all__ = [*MODULES]

if not TYPE_CHECKING:
    __getattr__, __dir__ = import_when_used(__name__, MODULES, hidden=["Auto"])
