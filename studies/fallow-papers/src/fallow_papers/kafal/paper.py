"""Definition of KAFAL as a paper."""

from __future__ import annotations

from pathlib import Path

from fallow.configs.papers import Paper

KAFAL = Paper(
    title="Knowledge-Aware Federated Active Learning with Non-IID Data",
    authors="Cao et al.",
    year=2023,
    folder=Path(__file__).parent,
)
