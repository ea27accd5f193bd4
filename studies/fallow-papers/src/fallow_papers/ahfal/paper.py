"""Definition of AHFAL as a paper."""

from __future__ import annotations

from pathlib import Path

from fallow.configs.papers import Paper
from fallow.report.section import Sections
from fallow.study.known import Code

CODES = {
    "RatioAHFAL": "ahfal",
    "PixelBADGE": "badge",
    "PlainFEAL": "feal",
    "PlainLoGo": "logo",
    "PlainNoise": "noise-stability",
    "NaNKSAS": "ksas",
}
"""Variants of the public code, and the strategy that each replaces."""


def sections() -> Sections:
    """Return the report sections: findings 1 to 3, and routing of classes."""
    from fallow_papers.ahfal.sections import SECTIONS

    return SECTIONS


AHFAL = Paper(
    title="Federated Active Learning via Class-Adaptive Local-Global Balancing",
    authors="anonymous submission",
    year=2025,
    folder=Path(__file__).parent,
    codes=tuple(
        Code(
            name=name,
            home="fallow_papers.ahfal.codes",
            of=strategy,
        )
        for name, strategy in CODES.items()
    ),
    sections=sections,
)
