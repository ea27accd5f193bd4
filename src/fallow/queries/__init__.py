"""Query strategies: one algorithm, one file."""

from fallow.queries.ahfal import AHFAL
from fallow.queries.entropy import Entropy
from fallow.queries.least_confidence import LeastConfidence
from fallow.queries.margin import Margin
from fallow.queries.random import Random

__all__ = ["AHFAL", "Entropy", "LeastConfidence", "Margin", "Random"]
