"""Studies: a recipe under several strategies and seeds, their records and statistics."""
