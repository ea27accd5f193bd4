"""Papers: experiment configurations, published results, display names and report sections."""

from fallow.papers.find import KNOWN, PAPERS, RECIPES, find_recipe

__all__ = ["KNOWN", "PAPERS", "RECIPES", "find_recipe"]
