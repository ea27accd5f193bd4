"""Pure functions of personalized algorithms."""
