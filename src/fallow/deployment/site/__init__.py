"""Site: folder, data, labels, and the process that handles instructions."""
