"""Pure functions shared by two or more query strategies."""
