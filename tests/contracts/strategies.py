"""The contract table: every strategy, in the settings that take another path through its code."""

from __future__ import annotations

import pytest

from fallow.queries import (
    AHFAL,
    BADGE,
    KSAS,
    CoreSet,
    Entropy,
    FairFAL,
    LeastConfidence,
    LoGo,
    Margin,
    Random,
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
    KSAS(),
    LoGo(),
    FairFAL(),
    FairFAL(query_model="opposite", gradients="global"),
    FairFAL(query_model="local", prototypes=False),
]
every = pytest.mark.parametrize("strategy", STRATEGIES, ids=str)

# In the tests' world a row's features are its logits, so shifting logits moves features too.
READ_FEATURES = (CoreSet, BADGE, LoGo, FairFAL)
of_logits = pytest.mark.parametrize(
    "strategy", [s for s in STRATEGIES if not isinstance(s, READ_FEATURES)], ids=str
)
