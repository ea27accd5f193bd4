"""Recipes, published results and public code of the papers that Fallow implements."""
