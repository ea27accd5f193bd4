"""Python API: the classes and functions that `fallow` exports."""
