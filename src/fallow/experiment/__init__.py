"""One run: a recipe under one seed, from its data to its scores."""
