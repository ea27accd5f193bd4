"""Query strategies, one algorithm per file."""

from typing import TYPE_CHECKING

from fallow.core.exports import import_when_used

if TYPE_CHECKING:
    from fallow.strategies.acs_fw import ACSFW as ACSFW
    from fallow.strategies.ahfal import AHFAL as AHFAL
    from fallow.strategies.badge import BADGE as BADGE
    from fallow.strategies.bait import BAIT as BAIT
    from fallow.strategies.bald import BALD as BALD
    from fallow.strategies.complementary import Complementary as Complementary
    from fallow.strategies.core_set import CoreSet as CoreSet
    from fallow.strategies.drop_query import DropQuery as DropQuery
    from fallow.strategies.ensemble import Ensemble as Ensemble
    from fallow.strategies.entropy import Entropy as Entropy
    from fallow.strategies.fairfal import FairFAL as FairFAL
    from fallow.strategies.fale import FALE as FALE
    from fallow.strategies.feal import FEAL as FEAL
    from fallow.strategies.ifal import IFAL as IFAL
    from fallow.strategies.ksas import KSAS as KSAS
    from fallow.strategies.lcmd import LCMD as LCMD
    from fallow.strategies.least_confidence import LeastConfidence as LeastConfidence
    from fallow.strategies.logo import LoGo as LoGo
    from fallow.strategies.margin import Margin as Margin
    from fallow.strategies.max_herding import MaxHerding as MaxHerding
    from fallow.strategies.noise_stability import NoiseStability as NoiseStability
    from fallow.strategies.oracle_histogram import OracleHistogram as OracleHistogram
    from fallow.strategies.pivotal import Pivotal as Pivotal
    from fallow.strategies.prob_cover import ProbCover as ProbCover
    from fallow.strategies.random import Random as Random
    from fallow.strategies.typical import Typical as Typical
    from fallow.strategies.typical_unsure import TypicalUnsure as TypicalUnsure
    from fallow.strategies.typicality import Typicality as Typicality
    from fallow.strategies.uncertainty_herding import (
        UncertaintyHerding as UncertaintyHerding,
    )

MODULES = {
    "ACSFW": "fallow.strategies.acs_fw",
    "AHFAL": "fallow.strategies.ahfal",
    "BADGE": "fallow.strategies.badge",
    "BAIT": "fallow.strategies.bait",
    "BALD": "fallow.strategies.bald",
    "Complementary": "fallow.strategies.complementary",
    "CoreSet": "fallow.strategies.core_set",
    "DropQuery": "fallow.strategies.drop_query",
    "Ensemble": "fallow.strategies.ensemble",
    "Entropy": "fallow.strategies.entropy",
    "FALE": "fallow.strategies.fale",
    "FEAL": "fallow.strategies.feal",
    "FairFAL": "fallow.strategies.fairfal",
    "IFAL": "fallow.strategies.ifal",
    "KSAS": "fallow.strategies.ksas",
    "LCMD": "fallow.strategies.lcmd",
    "LeastConfidence": "fallow.strategies.least_confidence",
    "LoGo": "fallow.strategies.logo",
    "Margin": "fallow.strategies.margin",
    "MaxHerding": "fallow.strategies.max_herding",
    "NoiseStability": "fallow.strategies.noise_stability",
    "OracleHistogram": "fallow.strategies.oracle_histogram",
    "Pivotal": "fallow.strategies.pivotal",
    "ProbCover": "fallow.strategies.prob_cover",
    "Random": "fallow.strategies.random",
    "Typical": "fallow.strategies.typical",
    "TypicalUnsure": "fallow.strategies.typical_unsure",
    "Typicality": "fallow.strategies.typicality",
    "UncertaintyHerding": "fallow.strategies.uncertainty_herding",
}
"""Class -> the module that defines it."""
__all__ = [*MODULES]

if not TYPE_CHECKING:
    __getattr__, __dir__ = import_when_used(__name__, MODULES)
