"""Recipes by name: a paper's experiments with its settings and published numbers."""

from fallow.recipes.find import RECIPES, find_recipe

__all__ = ["RECIPES", "find_recipe"]
