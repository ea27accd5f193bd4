"""Tables, figures and pages about studies, made from their records alone."""
