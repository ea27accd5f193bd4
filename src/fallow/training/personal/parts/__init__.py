"""Pure functions of personalized methods."""
