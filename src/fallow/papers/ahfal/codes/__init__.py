"""What public codes ran where it is not what their papers say: for reproduction, never a default.

A study names one with its package: ``fallow compare demo --strategy ahfal,fallow.compat:RatioAHFAL``.
"""

from fallow.papers.ahfal.codes.ahfal import RatioAHFAL
from fallow.papers.ahfal.codes.baselines import PixelBADGE, PlainFEAL, PlainLoGo, PlainNoise
from fallow.papers.ahfal.codes.kafal import NaNKSAS

__all__ = ["NaNKSAS", "PixelBADGE", "PlainFEAL", "PlainLoGo", "PlainNoise", "RatioAHFAL"]
