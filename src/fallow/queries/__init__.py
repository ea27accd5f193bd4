"""Query strategies: one algorithm, one file."""

from fallow.queries.acs_fw import ACSFW
from fallow.queries.ahfal import AHFAL
from fallow.queries.badge import BADGE
from fallow.queries.bait import BAIT
from fallow.queries.bald import BALD
from fallow.queries.chooser import Chooser
from fallow.queries.complementary import Complementary
from fallow.queries.core_set import CoreSet
from fallow.queries.coverage import Coverage
from fallow.queries.drop_query import DropQuery
from fallow.queries.ensemble import Ensemble
from fallow.queries.entropy import Entropy
from fallow.queries.fairfal import FairFAL
from fallow.queries.fale import FALE
from fallow.queries.feal import FEAL
from fallow.queries.fisher import Fisher
from fallow.queries.ifal import IFAL
from fallow.queries.ksas import KSAS
from fallow.queries.lcmd import LCMD
from fallow.queries.least_confidence import LeastConfidence
from fallow.queries.logo import LoGo
from fallow.queries.margin import Margin
from fallow.queries.max_herding import MaxHerding
from fallow.queries.noise_stability import NoiseStability
from fallow.queries.oracle_histogram import OracleHistogram
from fallow.queries.pivotal import Pivotal
from fallow.queries.prices import Prices
from fallow.queries.prob_cover import ProbCover
from fallow.queries.random import Random
from fallow.queries.typical import Typical
from fallow.queries.typical_unsure import TypicalUnsure
from fallow.queries.typicality import Typicality
from fallow.queries.uncertainty_herding import UncertaintyHerding

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
    "Chooser",
    "Complementary",
    "CoreSet",
    "Coverage",
    "DropQuery",
    "Ensemble",
    "Entropy",
    "FairFAL",
    "Fisher",
    "LeastConfidence",
    "LoGo",
    "Margin",
    "MaxHerding",
    "NoiseStability",
    "OracleHistogram",
    "Pivotal",
    "Prices",
    "ProbCover",
    "Random",
    "Typical",
    "TypicalUnsure",
    "Typicality",
    "UncertaintyHerding",
]
