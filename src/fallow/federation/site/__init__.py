"""A site's machine: its folder, its rows, its labels, and the process that answers."""
