"""The contract table: every strategy, in the settings that take another path through its code."""

from __future__ import annotations

import pytest

from fallow.queries import (
    AHFAL,
    BADGE,
    BALD,
    FALE,
    FEAL,
    IFAL,
    KSAS,
    CoreSet,
    Ensemble,
    Entropy,
    FairFAL,
    LeastConfidence,
    LoGo,
    Margin,
    NoiseStability,
    OracleHistogram,
    Random,
    Typicality,
)

STRATEGIES = [
    Random(),
    Entropy(),
    Entropy(model="global"),
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
    CoreSet(),
    CoreSet(model="global"),
    BADGE(),
    BADGE(model="global"),
    BALD(),
    BALD(model="global", passes=4),
    BALD(ensemble=True),
    Ensemble(),
    Ensemble("margin", "rank"),
    Ensemble("least_confidence"),
    Ensemble("badge"),
    Ensemble("badge", "rank"),
    Ensemble("core_set"),
    Ensemble("core_set", "rank"),
    NoiseStability(draws=8),
    NoiseStability(model="global", draws=4),
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
    FALE(drop_rows=True),  # else rows that are not finite are refused
    FALE(weights="none", mixture=0.5, drop_rows=True),
    OracleHistogram(),
    OracleHistogram(score="typicality"),
]
every = pytest.mark.parametrize("strategy", STRATEGIES, ids=str)

# In the tests' world a row's features are its logits, so shifting logits moves features too.
READ_FEATURES = (
    *(CoreSet, BADGE, BALD, Ensemble, NoiseStability, Typicality, LoGo, FEAL, IFAL, FairFAL),
    OracleHistogram,
)
of_logits = pytest.mark.parametrize(
    "strategy", [s for s in STRATEGIES if not isinstance(s, READ_FEATURES)], ids=str
)
