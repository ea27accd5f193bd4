"""Recipes by name: the short way to those of `fallow.papers`."""

from fallow.papers import RECIPES, find_recipe

__all__ = ["RECIPES", "find_recipe"]
