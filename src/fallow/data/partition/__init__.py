"""Which rows each site holds."""
