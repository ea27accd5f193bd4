"""Query strategies that have not proved better than the standard ones, one algorithm per file."""

from fallow.contrib.chooser import Chooser
from fallow.contrib.coverage import Coverage
from fallow.contrib.fisher import Fisher
from fallow.contrib.prices import Prices

__all__ = [
    "Chooser",
    "Coverage",
    "Fisher",
    "Prices",
]


def __dir__() -> list[str]:
    return sorted(__all__)
