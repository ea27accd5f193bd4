"""Experiment configuration: settings, components by name, variants and label budgets."""
