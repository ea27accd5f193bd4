"""Experiment configurations, published results and public code of papers."""
