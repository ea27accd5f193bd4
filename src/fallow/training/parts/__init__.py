"""Pure functions with two or more users among the training methods."""

from fallow.training.parts.linear import (
    Scaled,
    check_linear,
    column_means,
    coordinates,
    scale_columns,
)

__all__ = ["Scaled", "check_linear", "column_means", "coordinates", "scale_columns"]
