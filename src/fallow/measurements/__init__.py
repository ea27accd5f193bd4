"""Measurements beside the algorithms, one per file."""
