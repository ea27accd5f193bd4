"""Experiment configurations, published results and public code of the papers behind Fallow."""
