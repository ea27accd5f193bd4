"""The contract table: every strategy, in the settings that take another path through its code."""

from __future__ import annotations

import pytest

from fallow.core.methods import Query
from fallow.queries import (
    ACSFW,
    AHFAL,
    BADGE,
    BAIT,
    BALD,
    FALE,
    FEAL,
    IFAL,
    KSAS,
    LCMD,
    Chooser,
    Complementary,
    CoreSet,
    Coverage,
    Ensemble,
    Entropy,
    FairFAL,
    Fisher,
    LeastConfidence,
    LoGo,
    Margin,
    NoiseStability,
    OracleHistogram,
    Pivotal,
    Prices,
    Random,
    Typical,
    Typicality,
    TypicalUnsure,
)

STRATEGIES: list[Query] = [
    Random(),
    Entropy(),
    Entropy(model="global"),
    Entropy(model="personal"),
    Entropy(model="better"),
    Entropy(model="average"),
    Margin(),
    Margin(model="global"),
    LeastConfidence(),
    LeastConfidence(model="global"),
    AHFAL(),
    AHFAL(tau=1.2, tau_scale="cv"),
    AHFAL(tau=2, tau_scale="count"),
    AHFAL(score="margin", toggle="always", balance="target_deficit"),
    AHFAL(score="least_confidence", toggle="never", balance="uniform"),
    AHFAL(balance="none"),
    Chooser(("margin", "entropy")),  # which ask for the same; a query has one arm
    Chooser(("typicality",)),
    Complementary(),
    Complementary(temperature=0.5),
    CoreSet(),
    CoreSet(model="global"),
    Coverage(),
    Coverage(prices=False, least=3),
    BADGE(),
    BADGE(model="global"),
    BALD(),
    BALD(model="global", passes=4),
    BALD(ensemble=True),
    LCMD(),
    LCMD(model="global"),
    BAIT(),
    BAIT(model="global", forward_only=True, sigma=0.1),
    ACSFW(),
    ACSFW(model="global", sigma=0.1),
    Ensemble(),
    Ensemble("margin", "rank"),
    Ensemble("least_confidence"),
    Ensemble("badge"),
    Ensemble("badge", "rank"),
    Ensemble("core_set"),
    Ensemble("core_set", "rank"),
    NoiseStability(draws=8),
    NoiseStability(model="global", draws=4),
    Typical(),
    Typical(neighbours=2, least=3),
    TypicalUnsure(),
    TypicalUnsure(neighbours=2, least=3),
    Typicality(),
    Typicality(model="global", neighbours=2),
    KSAS(),
    LoGo(),
    FEAL(),
    FEAL(neighbours=1, similar=0.0),
    IFAL(),
    IFAL(neighbours=3, epochs=2),
    FairFAL(),
    FairFAL(query_model="opposite", gradients="global"),
    FairFAL(query_model="local", prototypes=False),
    FALE(allot="site", drop_rows=True),  # else rows that are not finite are refused
    FALE(allot="site", weights="none", rotate=False, mixture=0.5, drop_rows=True),
    FALE(mode="fedsvd", allot="site", drop_rows=True),
    FALE(mode="tsqr", allot="site", drop_rows=True),
    Fisher(),
    Fisher(ridge=1.0),
    Prices(),
    Pivotal(allot="site"),
    Pivotal(allot="site", tree=False),
    OracleHistogram(),
    OracleHistogram(score="typicality"),
]
FOR_NUMBERS = (
    ACSFW,
    BAIT,
)  # they refuse classes; `tests.contracts.numbers` has a world for them
of_all = pytest.mark.parametrize("strategy", STRATEGIES, ids=str)
every = pytest.mark.parametrize(  # in the tests' world of classes
    "strategy", [s for s in STRATEGIES if not isinstance(s, FOR_NUMBERS)], ids=str
)

# In the tests' world a row's features are its logits, so shifting logits moves features too.
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
    *(OracleHistogram, LCMD, BAIT, ACSFW, Chooser, Complementary, Coverage, Fisher),
)
of_logits = pytest.mark.parametrize(
    "strategy", [s for s in STRATEGIES if not isinstance(s, READ_FEATURES)], ids=str
)
