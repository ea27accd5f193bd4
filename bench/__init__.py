"""Speed benchmarks against reference implementations: `python -m bench`."""
