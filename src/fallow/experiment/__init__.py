"""Runs: one experiment configuration with one seed, from data to scores."""
