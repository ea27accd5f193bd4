"""Coordinator: runs a study at remote sites."""
