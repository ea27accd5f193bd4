"""Speed beside an obvious reference, in one run, with the outputs compared: `python -m bench`."""
