"""Studies of our own: a first look, all strategies in one table, personalized active learning."""
