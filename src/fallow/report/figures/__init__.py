"""Figures of a report, drawn from records, with one module per kind of figure."""
