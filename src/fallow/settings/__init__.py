"""What a user sets: recipes, their parts by name, variants of them, budgets."""
