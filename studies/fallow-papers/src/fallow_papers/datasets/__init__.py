"""Datasets that only the papers' studies use, by name in ``fallow.datasets``."""
