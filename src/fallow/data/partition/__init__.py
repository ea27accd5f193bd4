"""Partitions of examples over sites."""
