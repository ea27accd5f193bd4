"""Pure functions of personalised methods."""
