"""Papers, each in a folder of its own: recipes, printed numbers, names, report sections, and what
its public code did."""

from fallow.papers.find import KNOWN, PAPERS, RECIPES, find_recipe

__all__ = ["KNOWN", "PAPERS", "RECIPES", "find_recipe"]
