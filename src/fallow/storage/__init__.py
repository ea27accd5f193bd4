"""Storage: files, databases, locks, checksums, their errors, and safe display of untrusted text."""
