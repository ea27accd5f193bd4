"""Studies: recipes run under seeds, their records, statistics and report pages."""
