"""Our own studies: demo, all strategies in one table, personalized active learning."""
