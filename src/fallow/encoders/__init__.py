"""Encoders: how rows become features, the same at every site and fixed for a study."""

from fallow.encoders.auto import Auto
from fallow.encoders.convolution import Convolution
from fallow.encoders.fourier import Fourier
from fallow.encoders.identity import Identity

__all__ = ["Auto", "Convolution", "Fourier", "Identity"]
