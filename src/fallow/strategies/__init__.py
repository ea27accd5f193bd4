"""Query strategies, one algorithm per file."""

from fallow.strategies.acs_fw import ACSFW
from fallow.strategies.ahfal import AHFAL
from fallow.strategies.badge import BADGE
from fallow.strategies.bait import BAIT
from fallow.strategies.bald import BALD
from fallow.strategies.complementary import Complementary
from fallow.strategies.core_set import CoreSet
from fallow.strategies.drop_query import DropQuery
from fallow.strategies.ensemble import Ensemble
from fallow.strategies.entropy import Entropy
from fallow.strategies.fairfal import FairFAL
from fallow.strategies.fale import FALE
from fallow.strategies.feal import FEAL
from fallow.strategies.ifal import IFAL
from fallow.strategies.ksas import KSAS
from fallow.strategies.lcmd import LCMD
from fallow.strategies.least_confidence import LeastConfidence
from fallow.strategies.logo import LoGo
from fallow.strategies.margin import Margin
from fallow.strategies.max_herding import MaxHerding
from fallow.strategies.noise_stability import NoiseStability
from fallow.strategies.oracle_histogram import OracleHistogram
from fallow.strategies.pivotal import Pivotal
from fallow.strategies.prob_cover import ProbCover
from fallow.strategies.random import Random
from fallow.strategies.typical import Typical
from fallow.strategies.typical_unsure import TypicalUnsure
from fallow.strategies.typicality import Typicality
from fallow.strategies.uncertainty_herding import UncertaintyHerding

__all__ = [
    "ACSFW",
    "AHFAL",
    "BADGE",
    "BAIT",
    "BALD",
    "FALE",
    "FEAL",
    "IFAL",
    "KSAS",
    "LCMD",
    "Complementary",
    "CoreSet",
    "DropQuery",
    "Ensemble",
    "Entropy",
    "FairFAL",
    "LeastConfidence",
    "LoGo",
    "Margin",
    "MaxHerding",
    "NoiseStability",
    "OracleHistogram",
    "Pivotal",
    "ProbCover",
    "Random",
    "Typical",
    "TypicalUnsure",
    "Typicality",
    "UncertaintyHerding",
]


def __dir__() -> list[str]:
    return sorted(__all__)
