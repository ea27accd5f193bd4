"""Query strategies: one algorithm, one file."""

from fallow.queries.ahfal import AHFAL
from fallow.queries.badge import BADGE
from fallow.queries.core_set import CoreSet
from fallow.queries.entropy import Entropy
from fallow.queries.fairfal import FairFAL
from fallow.queries.ksas import KSAS
from fallow.queries.least_confidence import LeastConfidence
from fallow.queries.logo import LoGo
from fallow.queries.margin import Margin
from fallow.queries.random import Random

__all__ = [
    "AHFAL",
    "BADGE",
    "KSAS",
    "CoreSet",
    "Entropy",
    "FairFAL",
    "LeastConfidence",
    "LoGo",
    "Margin",
    "Random",
]
