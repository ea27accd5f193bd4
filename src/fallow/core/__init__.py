"""`Ask`, views, contracts, named random streams and flat models: no I/O, no algorithms."""
