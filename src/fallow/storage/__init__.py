"""Everything that touches a disk: files, databases, locks, checksums, and what goes wrong there."""
