"""Definition of LoGo as a paper."""

from __future__ import annotations

from pathlib import Path

from fallow.configs.papers import Paper

LOGO = Paper(
    title="Re-thinking Federated Active Learning Based on Inter-class Diversity",
    authors="Kim et al.",
    year=2023,
    folder=Path(__file__).parent,
)
