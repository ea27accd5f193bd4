"""Built-in experiment configurations, those of installed papers, and defaults of a study."""
