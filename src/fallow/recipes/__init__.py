"""Built-in recipes, papers of installed distributions, and defaults of a study."""
