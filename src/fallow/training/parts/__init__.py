"""Pure functions shared by two or more training algorithms."""

from fallow.training.parts.linear import (
    Scaled,
    check_linear,
    column_means,
    coordinates,
    scale_columns,
)

__all__ = ["Scaled", "check_linear", "column_means", "coordinates", "scale_columns"]
