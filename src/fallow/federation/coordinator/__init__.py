"""The coordinator's machine: it runs a study whose sites are real."""
