"""Datasets by name."""
