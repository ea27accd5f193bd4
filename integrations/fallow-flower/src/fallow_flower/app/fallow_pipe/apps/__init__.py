"""The two ends, which Flower starts; they alone need it."""
