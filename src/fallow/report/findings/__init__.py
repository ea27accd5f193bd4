"""Findings of papers, recomputed from the records of one or several studies."""
