"""The measurements that the setting ``measure`` can name, besides the attacks of disclosure."""

from typing import TYPE_CHECKING

from fallow.core.exports import import_when_used

if TYPE_CHECKING:
    from fallow.measurements.fairness import Fairness as Fairness

MODULES = {
    "Fairness": "fallow.measurements.fairness",
}
"""Class -> the module that defines it."""
__all__ = [*MODULES]

if not TYPE_CHECKING:
    __getattr__, __dir__ = import_when_used(__name__, MODULES)
