"""Protection of everything that leaves a site."""
