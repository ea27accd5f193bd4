"""Pure functions with two or more users among the training methods."""

from fallow.training.parts.linear import Scaled, centred, check_linear, coordinates, scaled

__all__ = ["Scaled", "centred", "check_linear", "coordinates", "scaled"]
