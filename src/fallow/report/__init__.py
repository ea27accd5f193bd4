"""Tables, figures and pages about studies, created from their records."""
