"""Everything that touches a disk: files, databases, locks, checksums, what goes wrong there, and how
words from outside are written down and shown."""
