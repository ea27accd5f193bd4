"""Encoders: how rows become features, the same at every site and fixed for a study."""

from fallow.encoders.convolution import Convolution
from fallow.encoders.fourier import Fourier
from fallow.encoders.identity import Identity

__all__ = ["Convolution", "Fourier", "Identity"]
