"""All query strategies, with settings that take different paths through the code."""

from __future__ import annotations

from fallow.core.methods import Query
from fallow.settings.classes import classes_of
from fallow.strategies import (
    ACSFW,
    AHFAL,
    BADGE,
    BAIT,
    BALD,
    FALE,
    FEAL,
    IFAL,
    LCMD,
    Complementary,
    CoreSet,
    DropQuery,
    Ensemble,
    Entropy,
    FairFAL,
    LeastConfidence,
    LoGo,
    Margin,
    MaxHerding,
    NoiseStability,
    OracleHistogram,
    Pivotal,
    ProbCover,
    Typical,
    Typicality,
    TypicalUnsure,
    UncertaintyHerding,
)
from tests.each import each_of

NEED_SETTINGS = ("FALE", "Pivotal")  # in the tests' federation
STRATEGIES: list[Query] = [
    *(cls() for name, cls in classes_of("strategy").items() if name not in NEED_SETTINGS),
    Entropy(model="global"),
    Entropy(model="personal"),
    Entropy(model="better"),
    Entropy(model="average"),
    Margin(model="global"),
    LeastConfidence(model="global"),
    AHFAL(tau=1.2, tau_scale="cv"),
    AHFAL(tau=2, tau_scale="count"),
    AHFAL(score="margin", toggle="always", balance="target_deficit"),
    AHFAL(score="least_confidence", toggle="never", balance="uniform"),
    AHFAL(balance="none"),
    Complementary(temperature=0.5),
    CoreSet(model="global"),
    BADGE(model="global"),
    BALD(model="global", passes=4),
    BALD(ensemble=True),
    LCMD(model="global"),
    BAIT(model="global", forward_only=True, sigma=0.1),
    ACSFW(model="global", sigma=0.1),
    Ensemble("margin", "rank"),
    Ensemble("least_confidence"),
    Ensemble("badge"),
    Ensemble("badge", "rank"),
    Ensemble("core_set"),
    Ensemble("core_set", "rank"),
    NoiseStability(draws=8),
    NoiseStability(model="global", draws=4),
    Typical(neighbors=2, least=3),
    TypicalUnsure(neighbors=2, least=3),
    Typicality(model="global", neighbors=2),
    FEAL(neighbors=1, similar=0.0),
    IFAL(neighbors=3, epochs=2),
    FairFAL(query_model="opposite", gradients="global"),
    FairFAL(query_model="local", prototypes="none"),
    FALE(allot="site"),
    FALE(allot="site", weights="none", rotate=False, mixture=0.5),
    FALE(mode="fedsvd", allot="site"),
    FALE(mode="tsqr", allot="site"),
    MaxHerding(model="global", width=0.5),
    UncertaintyHerding(model="global", width=0.5),
    ProbCover(model="global", radius=0.5),
    DropQuery(model="global"),
    Pivotal(allot="site"),
    Pivotal(allot="site", tree=False),
    OracleHistogram(score="typicality"),
]
FOR_NUMBERS = (
    ACSFW,
    BAIT,
)  # they refuse classes; `tests.contracts.numbers` has a federation for them
of_all = each_of("strategy", STRATEGIES)
every = each_of(  # in the tests' federation with classes
    "strategy", [s for s in STRATEGIES if not isinstance(s, FOR_NUMBERS)]
)

# Features of the tests' federation are its logits, so a shift of logits moves features too.
READ_FEATURES = (
    *(
        CoreSet,
        BADGE,
        BALD,
        Ensemble,
        NoiseStability,
        Typical,
        TypicalUnsure,
        Typicality,
        LoGo,
        FEAL,
        IFAL,
        FairFAL,
    ),
    *(MaxHerding, UncertaintyHerding, ProbCover, DropQuery),
    *(OracleHistogram, LCMD, BAIT, ACSFW, Complementary),
)
of_logits = each_of("strategy", [s for s in STRATEGIES if not isinstance(s, READ_FEATURES)])
