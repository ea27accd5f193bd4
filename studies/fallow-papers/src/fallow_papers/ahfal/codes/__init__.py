"""Variants of strategies in public code that differs from the paper, for reproduction only.

A strategy is named with its module: ``--strategy
ahfal,fallow_papers.ahfal.codes:RatioAHFAL``.
"""

from fallow_papers.ahfal.codes.ahfal import RatioAHFAL
from fallow_papers.ahfal.codes.baselines import PixelBADGE, PlainFEAL, PlainLoGo, PlainNoise
from fallow_papers.ahfal.codes.kafal import NaNKSAS

__all__ = ["NaNKSAS", "PixelBADGE", "PlainFEAL", "PlainLoGo", "PlainNoise", "RatioAHFAL"]
